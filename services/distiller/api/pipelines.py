"""Pipelines, their runs, lanes and usage."""

from dataclasses import asdict, replace
from datetime import UTC, date, datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from libs.chassis import idempotency
from libs.chassis.auth import Caller
from libs.chassis.errors import (
    Aborted,
    AlreadyExists,
    InvalidParameter,
    NotFound,
    PermissionDenied,
)
from libs.chassis.http import Authenticated
from libs.chassis.idempotency import NO_STORE, REPLAYED, IdempotencyKey
from libs.chassis.masks import update_mask
from libs.chassis.paging import decode_token, encode_token, page_size
from libs.chassis.permissions import bare_name
from libs.chassis.texts import Text, check_bytes
from libs.chassis.times import optional_rfc3339, rfc3339
from libs.chassis.unit_of_work import UnitOfWork
from libs.contracts.ids import uuid7
from libs.contracts.routes import BASE, MEMORY_STORES, SESSION_STORES
from services.distiller.api.authorization import Authorization
from services.distiller.domain import TRIGGERS, Pipeline, Trigger
from services.distiller.lanes import LaneWorkers
from services.distiller.llm import Models
from services.distiller.runs import Runner
from services.distiller.settings import DistillerSettings
from services.distiller.store import Batches, Lanes, Pipelines, Run, Runs
from services.distiller.sweep import Sweeper

QUIET_PERIOD_S = 2.0
MAX_WAIT_S = 15.0
LANE_STATES = ("settled", "waiting", "due", "running", "unanswered", "waiting_provider", "parked")
MASKS = (
    "display_name",
    "dreamer_policy.model",
    "dreamer_policy.instructions",
    "dreamer_policy.trigger",
    "dreamer_policy.quiet_period_s",
    "dreamer_policy.max_wait_s",
    "dreamer_policy.daily_token_budget",
)

Size = Annotated[str | None, Query(alias="page_size")]
Token = Annotated[str | None, Query(alias="page_token")]


class DreamerPolicy(BaseModel):
    """How a pipeline distils; the name is the contract's."""

    model: Text | None = None
    instructions: Text | None = None
    trigger: Literal["MANUAL_ONLY", "SCHEDULED", "CONTINUOUS", "TRIGGER_UNSPECIFIED"] | None = None
    quiet_period_s: float | None = Field(default=None, ge=0, le=86_400)
    max_wait_s: float | None = Field(default=None, ge=0, le=86_400)
    daily_token_budget: int | None = Field(default=None, ge=0)


class PipelineBody(BaseModel):
    model_config = ConfigDict(extra="ignore")

    session_store: Text | None = None
    memory_store: Text | None = None
    display_name: Text | None = None
    dreamer_policy: DreamerPolicy = DreamerPolicy()
    etag: str | None = None


class RedriveBody(BaseModel):
    actor_id: Text | None = None


class PipelineApi:
    def __init__(
        self,
        settings: DistillerSettings,
        models: Models,
        pipelines: Pipelines,
        runs: Runs,
        lanes: Lanes,
        batches: Batches,
        runner: Runner,
        sweeper: Sweeper,
        workers: LaneWorkers,
        unit_of_work: UnitOfWork,
        authorization: Authorization,
    ) -> None:
        self._limits = settings.limits
        self._models = models
        self._pipelines = pipelines
        self._runs = runs
        self._lanes = lanes
        self._batches = batches
        self._runner = runner
        self._sweeper = sweeper
        self._workers = workers
        self._unit_of_work = unit_of_work
        self._authorization = authorization

    def routes(self) -> APIRouter:
        router = APIRouter(prefix=BASE, tags=["memory pipelines"])
        one = "/memory-pipelines/{pipeline_id}"
        router.add_api_route("/memory-pipelines", self.create, methods=["POST"])
        router.add_api_route("/memory-pipelines", self.list_pipelines, methods=["GET"])
        router.add_api_route(f"{one}/run", self.run, methods=["POST"])
        router.add_api_route(f"{one}/runs", self.list_runs, methods=["GET"])
        router.add_api_route(f"{one}/runs/{{run_id}}", self.get_run, methods=["GET"])
        router.add_api_route(f"{one}/lanes", self.list_lanes, methods=["GET"])
        router.add_api_route(f"{one}/lanes:redrive", self.redrive, methods=["POST"])
        router.add_api_route(f"{one}/usage", self.usage, methods=["GET"])
        router.add_api_route(one, self.get, methods=["GET"])
        router.add_api_route(one, self.update, methods=["PATCH"])
        router.add_api_route(one, self.delete, methods=["DELETE"])
        return router

    async def create(self, body: PipelineBody, request: Request, response: Response, caller: Authenticated) -> Any:
        """Links a session store to a memory store; needs READ on the one, WRITE on the other, and a known model."""
        policy = body.dreamer_policy
        pipeline = self._new(body, caller)
        source_id = bare_name(SESSION_STORES, body.session_store or "")
        target_id = bare_name(MEMORY_STORES, body.memory_store or "")
        source_uid, target_uid = await self._authorization.pair(caller, source_id, target_id)
        pipeline = replace(
            pipeline,
            session_store_uid=source_uid,
            session_store_id=source_id,
            memory_store_uid=target_uid,
            memory_store_id=target_id,
        )
        self._check_model(policy.model)
        key = IdempotencyKey.of(request, caller, await request.body())
        async with self._unit_of_work.begin() as tx:
            made_before = None
            if key is not None:
                made_before = await idempotency.claim(tx, NO_STORE, key, str(pipeline.pipeline_uid))
            created = None if made_before else await self._pipelines.create(tx, pipeline)
            if created is not None and created.trigger == "SCHEDULED":
                await self._pipelines.set_next_run(tx, created.pipeline_uid, self._runner.pause_s() / 24)
            if created is None and not made_before:
                other = await self._pipelines.of_pair(source_uid, target_uid)
                name = f": {other.name}" if other else ""
                raise AlreadyExists(f"These two stores already have a pipeline{name}; update or delete it.")
        if created is None:
            response.headers.update(REPLAYED)
            created = await self._pipelines.get(caller.workspace_id, UUID(made_before))
            if created is None:
                raise NotFound("The pipeline that this Idempotency-Key made was deleted.")
        self._sweeper.wake.set()
        return _pipeline(created)

    async def list_pipelines(self, caller: Authenticated, size: Size = None, token: Token = None) -> Any:
        """The pipelines both of whose stores the caller may read, oldest first; for an admin every one."""
        limit = page_size(size, default=25, maximum=100)
        scope = ("pipelines", caller.workspace_id)
        cursor = decode_token(scope, token, (str,))
        after = UUID(cursor[0]) if cursor else None
        found = await self._pipelines.page(caller.workspace_id, after, limit + 1)
        page: dict[str, Any] = {
            "memory_pipelines": [_pipeline(p) for p in found[:limit] if await self._visible(p, caller)]
        }
        if len(found) > limit:
            page["next_page_token"] = encode_token(scope, [str(found[limit - 1].pipeline_uid)])
        return page

    async def get(self, pipeline_id: str, caller: Authenticated) -> Any:
        return _pipeline(await self._seen(pipeline_id, caller))

    async def update(
        self,
        pipeline_id: str,
        body: PipelineBody,
        caller: Authenticated,
        mask: Annotated[str | None, Query(alias="update_mask")] = None,
    ) -> Any:
        """Leaf masks: what is not named stays. A stale `etag` in the body is `ABORTED`."""
        paths = update_mask(mask, MASKS)
        pipeline = await self._managed(pipeline_id, caller)
        if body.etag is not None and body.etag != _etag(pipeline):
            raise Aborted("The pipeline was changed since this etag was read. Get it again.")
        policy = body.dreamer_policy
        changes: dict[str, Any] = {}
        if "display_name" in paths:
            changes["display_name"] = body.display_name
        for leaf in ("model", "instructions", "quiet_period_s", "max_wait_s", "daily_token_budget"):
            if f"dreamer_policy.{leaf}" in paths:
                changes[leaf] = getattr(policy, leaf) or (0 if getattr(policy, leaf) == 0 else None)
        if "dreamer_policy.trigger" in paths:
            changes["trigger"] = _trigger(policy.trigger)
        if "quiet_period_s" in changes and changes["quiet_period_s"] is None:
            changes["quiet_period_s"] = QUIET_PERIOD_S
        if "max_wait_s" in changes and changes["max_wait_s"] is None:
            changes["max_wait_s"] = MAX_WAIT_S
        check_bytes("instructions", changes.get("instructions"), self._limits.instructions_bytes)
        changed = replace(pipeline, **changes)
        _check_times(changed.quiet_period_s, changed.max_wait_s)
        self._check_model(changed.model)
        async with self._unit_of_work.begin() as tx:
            updated = await self._pipelines.update(tx, pipeline.pipeline_uid, pipeline.revision, changes)
            if updated is None:
                raise Aborted("The pipeline was changed at the same time. Get it again.")
            if "trigger" in changes:
                scheduled = updated.trigger == "SCHEDULED"
                await self._pipelines.set_next_run(
                    tx, updated.pipeline_uid, self._runner.pause_s() if scheduled else None
                )
                if updated.trigger == "CONTINUOUS":
                    await self._lanes.make_due(tx, updated.pipeline_uid)
        if {"model", "instructions", "daily_token_budget"} & changes.keys():
            await self._lanes.redrive(pipeline.pipeline_uid)
            self._workers.due_in(0)
        return _pipeline(updated)

    async def delete(self, pipeline_id: str, caller: Authenticated) -> Any:
        """The pipeline with its runs and lanes; memories stay, and a batch already on its way is applied."""
        pipeline = await self._managed(pipeline_id, caller)
        async with self._unit_of_work.begin() as tx:
            if not await self._pipelines.delete(tx, pipeline.pipeline_uid):
                raise _missing(pipeline_id)
        return {}

    async def run(self, pipeline_id: str, request: Request, response: Response, caller: Authenticated) -> Any:
        """Starts a run over everything that is stored now; `ABORTED`, naming it, while one is active."""
        pipeline = await self._managed(pipeline_id, caller)
        key = IdempotencyKey.of(request, caller, await request.body())
        run: Run | None
        async with self._unit_of_work.begin() as tx:
            run = await self._runs.start(tx, pipeline.pipeline_uid)
            started = run is not None
            if key is not None:
                made_before = await idempotency.claim(tx, pipeline.pipeline_uid, key, str(run.run_id) if run else "")
                if made_before is not None:
                    if run is not None:
                        await self._runs.withdraw(tx, run.run_id)
                    response.headers.update(REPLAYED)
                    run = await self._runs.get(pipeline.pipeline_uid, int(made_before))
            if run is None:
                active = await self._runs.active(pipeline.pipeline_uid)
                raise Aborted(
                    f"A run of this pipeline is in progress: {active.name}."
                    if active
                    else "A run has just ended. Try again."
                )
        if started:
            self._runner.wake.set()
        return _run(run)

    async def list_runs(self, pipeline_id: str, caller: Authenticated, size: Size = None, token: Token = None) -> Any:
        pipeline = await self._seen(pipeline_id, caller)
        limit = page_size(size, default=50, maximum=100)
        scope = ("runs", pipeline.pipeline_uid)
        cursor = decode_token(scope, token, (int,))
        found = await self._runs.page(pipeline.pipeline_uid, cursor[0] if cursor else None, limit + 1)
        page: dict[str, Any] = {"pipeline_runs": [_run(run) for run in found[:limit]]}
        if len(found) > limit:
            page["next_page_token"] = encode_token(scope, [found[limit - 1].run_id])
        return page

    async def get_run(self, pipeline_id: str, run_id: str, caller: Authenticated) -> Any:
        pipeline = await self._seen(pipeline_id, caller)
        number = int(run_id) if run_id.isascii() and run_id.isdigit() and len(run_id) < 19 else None
        run = None if number is None else await self._runs.get(pipeline.pipeline_uid, number)
        if run is None:
            raise NotFound(f"Run '{run_id[:40]}' of {pipeline.name} does not exist.")
        return _run(run)

    async def list_lanes(
        self,
        pipeline_id: str,
        caller: Authenticated,
        state: str | None = None,
        actor_id: str | None = None,
        size: Size = None,
        token: Token = None,
    ) -> Any:
        """Where each actor's distillation stands, by actor."""
        pipeline = await self._managed(pipeline_id, caller)
        if state is not None and state not in LANE_STATES:
            raise InvalidParameter(f"state must be one of {', '.join(LANE_STATES)}.")
        limit = page_size(size, default=50, maximum=100)
        scope = ("lanes", pipeline.pipeline_uid, state, actor_id)
        cursor = decode_token(scope, token, (str,))
        found = await self._lanes.page(pipeline.pipeline_uid, state, actor_id, cursor[0] if cursor else None, limit + 1)
        page: dict[str, Any] = {
            "lanes": [
                {
                    "actor_id": lane.actor_id,
                    "state": lane.state,
                    "behind": lane.behind,
                    "attempts": lane.attempts,
                    "reason": lane.reason,
                    "due_time": optional_rfc3339(lane.due_at),
                }
                for lane in found[:limit]
            ]
        }
        if len(found) > limit:
            page["next_page_token"] = encode_token(scope, [found[limit - 1].actor_id])
        return page

    async def redrive(self, pipeline_id: str, body: RedriveBody, caller: Authenticated) -> Any:
        """Failing and parked lanes, one actor's or all, are tried again at once."""
        pipeline = await self._managed(pipeline_id, caller)
        redriven = await self._lanes.redrive(pipeline.pipeline_uid, body.actor_id)
        self._workers.due_in(0)
        return {"redriven": redriven}

    async def usage(
        self,
        pipeline_id: str,
        caller: Authenticated,
        since: Annotated[date | None, Query(alias="from")] = None,
        until: Annotated[date | None, Query(alias="to")] = None,
    ) -> Any:
        """Calls and tokens by day (UTC), model and outcome, failed calls too; both ends are included."""
        pipeline = await self._managed(pipeline_id, caller)
        rows = await self._batches.usage(pipeline.pipeline_uid, since, until)
        return {"usage": [{**asdict(row), "day": row.day.isoformat()} for row in rows]}

    def _new(self, body: PipelineBody, caller: Caller) -> Pipeline:
        policy = body.dreamer_policy
        if not body.session_store or not body.memory_store:
            raise InvalidParameter("session_store and memory_store are required.")
        check_bytes("instructions", policy.instructions, self._limits.instructions_bytes)
        check_bytes("display_name", body.display_name, self._limits.description_bytes)
        quiet = QUIET_PERIOD_S if policy.quiet_period_s is None else policy.quiet_period_s
        longest = max(MAX_WAIT_S, quiet) if policy.max_wait_s is None else policy.max_wait_s
        _check_times(quiet, longest)
        now = datetime.now(UTC)
        return Pipeline(
            pipeline_uid=uuid7(),
            workspace_id=caller.workspace_id,
            display_name=body.display_name,
            session_store_uid=NO_STORE,
            session_store_id="",
            memory_store_uid=NO_STORE,
            memory_store_id="",
            model=policy.model or None,
            instructions=policy.instructions or None,
            trigger=_trigger(policy.trigger),
            quiet_period_s=quiet,
            max_wait_s=longest,
            daily_token_budget=policy.daily_token_budget,
            revision=1,
            creator_type=caller.principal_type,
            creator=caller.principal,
            create_time=now,
            update_time=now,
        )

    async def _visible(self, pipeline: Pipeline, caller: Caller) -> bool:
        if caller.admin or _is_creator(pipeline, caller):
            return True
        source = await self._authorization.session_store(caller, "READ", store_uid=pipeline.session_store_uid)
        if not source.allowed:
            return False
        target = await self._authorization.memory_store(caller, "READ", store_uid=pipeline.memory_store_uid)
        return target.allowed

    async def _find(self, pipeline_id: str, caller: Caller) -> Pipeline:
        try:
            uid = UUID(pipeline_id)
        except ValueError:
            raise _missing(pipeline_id) from None
        pipeline = await self._pipelines.get(caller.workspace_id, uid)
        if pipeline is None:
            raise _missing(pipeline_id)
        return pipeline

    async def _seen(self, pipeline_id: str, caller: Caller) -> Pipeline:
        pipeline = await self._find(pipeline_id, caller)
        if not await self._visible(pipeline, caller):
            raise PermissionDenied("You need READ on both stores of this pipeline to see it.")
        return pipeline

    async def _managed(self, pipeline_id: str, caller: Caller) -> Pipeline:
        pipeline = await self._find(pipeline_id, caller)
        if not caller.admin and not _is_creator(pipeline, caller):
            raise PermissionDenied("Only the creator of this pipeline or an admin may do this.")
        return pipeline

    def _check_model(self, name: str | None) -> None:
        if name and self._models.get(name) is None:
            raise InvalidParameter(f"Unknown model; known are {', '.join(self._models.names)}.")


def _is_creator(pipeline: Pipeline, caller: Caller) -> bool:
    return (pipeline.creator_type, pipeline.creator) == (caller.principal_type, caller.principal)


def _missing(pipeline_id: str) -> NotFound:
    return NotFound(f"Pipeline '{pipeline_id[:60]}' does not exist.")


def _trigger(asked: str | None) -> Trigger:
    return next((trigger for trigger in TRIGGERS if trigger == asked), "MANUAL_ONLY")


def _check_times(quiet_period_s: float, max_wait_s: float) -> None:
    if max_wait_s < quiet_period_s:
        raise InvalidParameter(
            f"dreamer_policy.max_wait_s ({max_wait_s:g}) must not be less than quiet_period_s ({quiet_period_s:g})."
        )


def _etag(pipeline: Pipeline) -> str:
    return f'"{pipeline.revision}"'


def _pipeline(pipeline: Pipeline) -> dict[str, Any]:
    policy = {
        "model": pipeline.model,
        "instructions": pipeline.instructions,
        "trigger": pipeline.trigger,
        "enabled": pipeline.trigger != "MANUAL_ONLY",
        "quiet_period_s": pipeline.quiet_period_s,
        "max_wait_s": pipeline.max_wait_s,
        "daily_token_budget": pipeline.daily_token_budget,
    }
    shown = {
        "name": pipeline.name,
        "display_name": pipeline.display_name,
        "session_store": f"{SESSION_STORES}/{pipeline.session_store_id}",
        "memory_store": f"{MEMORY_STORES}/{pipeline.memory_store_id}",
        "dreamer_policy": {name: value for name, value in policy.items() if value is not None},
        "model": pipeline.model,
        "etag": _etag(pipeline),
        "create_time": rfc3339(pipeline.create_time),
        "update_time": rfc3339(pipeline.update_time),
    }
    return {name: value for name, value in shown.items() if value is not None}


def _run(run: Run) -> dict[str, Any]:
    shown = {
        "name": run.name,
        "state": run.state,
        "error": run.error,
        "create_time": rfc3339(run.create_time),
        "end_time": optional_rfc3339(run.end_time),
    }
    return {name: value for name, value in shown.items() if value is not None}
