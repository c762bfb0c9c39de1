"""Runs of a pipeline: start, get, list."""

from typing import Any

from fastapi import APIRouter, Request, Response

from libs.chassis import idempotency
from libs.chassis.errors import Aborted, NotFound
from libs.chassis.http import Authenticated
from libs.chassis.idempotency import REPLAYED, IdempotencyKey
from libs.chassis.paging import decode_token, encode_token, page_size
from libs.chassis.unit_of_work import UnitOfWork
from libs.contracts.routes import BASE, PIPELINES
from services.distiller.api.access import PipelineAccess
from services.distiller.api.shapes import RunPage, RunShape, Size, Token
from services.distiller.runs import Runner
from services.distiller.store import Runs
from services.distiller.store.runs import Run


class RunApi:
    def __init__(self, runs: Runs, runner: Runner, unit_of_work: UnitOfWork, access: PipelineAccess) -> None:
        self._runs = runs
        self._runner = runner
        self._unit_of_work = unit_of_work
        self._access = access

    def routes(self) -> APIRouter:
        router = APIRouter(prefix=f"{BASE}/{PIPELINES}/{{pipeline_id}}", tags=["pipeline runs"])
        shown: dict[str, Any] = {"response_model_exclude_none": True}
        router.add_api_route("/run", self.run, methods=["POST"], **shown)
        router.add_api_route("/runs", self.list_runs, methods=["GET"], **shown)
        router.add_api_route("/runs/{run_id}", self.get_run, methods=["GET"], **shown)
        return router

    async def run(self, pipeline_id: str, request: Request, response: Response, caller: Authenticated) -> RunShape:
        """Starts a run over everything that is stored now; `ABORTED`, naming it, while one is active."""
        pipeline = await self._access.managed(pipeline_id, caller)
        key = IdempotencyKey.of(request, caller, await request.body())
        uid = pipeline.pipeline_uid
        async with self._unit_of_work.begin() as tx:

            async def made(run_id: str) -> Run | None:
                return await self._runs.get(uid, int(run_id), tx)

            run, earlier = await self._runs.start(tx, uid), None
            if key and run is None:
                earlier = await idempotency.recall(tx, uid, key, made)
            elif key and run is not None:
                earlier = await idempotency.claim(tx, uid, key, str(run.run_id), made)
                if earlier is not None:
                    await self._runs.withdraw(tx, run.run_id)
        if earlier is not None:
            response.headers.update(REPLAYED)
            return RunShape.of(earlier)
        if run is None:
            active = await self._runs.active(pipeline.pipeline_uid)
            if active is None:
                raise Aborted("A run of this pipeline has just ended. Try again.")
            raise Aborted(f"A run of this pipeline is in progress: {active.name}.")
        self._runner.wake.set()
        return RunShape.of(run)

    async def list_runs(
        self, pipeline_id: str, caller: Authenticated, size: Size = None, token: Token = None
    ) -> RunPage:
        pipeline = await self._access.seen(pipeline_id, caller)
        limit = page_size(size, default=50, maximum=100)
        scope = ("runs", pipeline.pipeline_uid)
        cursor = decode_token(scope, token, (int,))
        found = await self._runs.page(pipeline.pipeline_uid, cursor[0] if cursor else None, limit + 1)
        more = encode_token(scope, [found[limit - 1].run_id]) if len(found) > limit else None
        return RunPage(pipeline_runs=[RunShape.of(run) for run in found[:limit]], next_page_token=more)

    async def get_run(self, pipeline_id: str, run_id: str, caller: Authenticated) -> RunShape:
        pipeline = await self._access.seen(pipeline_id, caller)
        number = int(run_id) if run_id.isascii() and run_id.isdigit() and len(run_id) < 19 else None
        run = None if number is None else await self._runs.get(pipeline.pipeline_uid, number)
        if run is None:
            raise NotFound(f"Run '{run_id[:40]}' of {pipeline.name} does not exist.")
        return RunShape.of(run)
