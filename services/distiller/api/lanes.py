"""Where each actor's distillation stands, how to make a failing one go on, and what a pipeline has spent."""

from datetime import date
from typing import Annotated, Any

from fastapi import APIRouter, Query

from libs.chassis.errors import NotFound
from libs.chassis.http import Authenticated
from libs.chassis.paging import decode_token, encode_token, page_size
from libs.chassis.texts import Text
from libs.contracts.routes import BASE, PIPELINES
from services.distiller.api.access import PipelineAccess
from services.distiller.api.shapes import (
    LanePage,
    LaneShape,
    RedriveBody,
    Redriven,
    Size,
    Token,
    UsageList,
)
from services.distiller.lanes import LaneWorkers
from services.distiller.llm import Models
from services.distiller.store import Lanes, Usage
from services.distiller.store.lanes import LaneState


class LaneApi:
    def __init__(
        self, models: Models, lanes: Lanes, usage: Usage, workers: LaneWorkers, access: PipelineAccess
    ) -> None:
        self._models = models
        self._lanes = lanes
        self._usage = usage
        self._workers = workers
        self._access = access

    def routes(self) -> APIRouter:
        router = APIRouter(tags=["lanes and usage"])
        shown: dict[str, Any] = {"response_model_exclude_none": True}
        pipeline = f"{BASE}/{PIPELINES}/{{pipeline_id}}"
        router.add_api_route(f"{pipeline}/lanes", self.list_lanes, methods=["GET"])
        router.add_api_route(f"{pipeline}/lanes:redrive", self.redrive, methods=["POST"], **shown)
        router.add_api_route(f"{pipeline}/usage", self.usage, methods=["GET"], **shown)
        router.add_api_route("/ops/distiller/usage", self.workspace_usage, methods=["GET"], **shown)
        return router

    async def list_lanes(
        self,
        pipeline_id: str,
        caller: Authenticated,
        state: LaneState | None = None,
        actor_id: Text | None = None,
        size: Size = None,
        token: Token = None,
    ) -> LanePage:
        """Where each actor's distillation stands, by actor."""
        pipeline = await self._access.managed(pipeline_id, caller)
        limit = page_size(size, default=50, maximum=100)
        scope = ("lanes", pipeline.pipeline_uid, state, actor_id)
        cursor = decode_token(scope, token, (str,))
        found = await self._lanes.page(pipeline.pipeline_uid, state, actor_id, cursor[0] if cursor else None, limit + 1)
        more = encode_token(scope, [found[limit - 1].actor_id]) if len(found) > limit else None
        return LanePage(lanes=[LaneShape.of(lane) for lane in found[:limit]], next_page_token=more)

    async def redrive(self, pipeline_id: str, caller: Authenticated, body: RedriveBody | None = None) -> Redriven:
        """Failing and parked lanes, one actor's or all, are tried again at once, their attempts counted from 0.

        An actor of whom the pipeline knows nothing is `NOT_FOUND`.
        """
        pipeline = await self._access.managed(pipeline_id, caller)
        uid, actor_id = pipeline.pipeline_uid, body.actor_id if body else None
        redriven = await self._lanes.redrive(uid, actor_id)
        if not redriven and actor_id is not None and not await self._lanes.page(uid, None, actor_id, None, 1):
            raise NotFound(f"{pipeline.name} has no lane of this actor.")
        self._workers.due_in(0)
        model = self._models.get(pipeline.model)
        is_over = model is not None and model.paid and await self._usage.spent_budget(uid) is not None
        return Redriven(redriven=redriven, over_budget=is_over)

    async def usage(
        self,
        pipeline_id: str,
        caller: Authenticated,
        since: Annotated[date | None, Query(alias="from")] = None,
        until: Annotated[date | None, Query(alias="to")] = None,
    ) -> UsageList:
        """Calls and tokens by day (UTC), model and outcome, failed calls too; both ends are included."""
        pipeline = await self._access.managed(pipeline_id, caller)
        rows = await self._usage.of_pipeline(pipeline.pipeline_uid, since, until)
        return UsageList.of(rows, self._models)

    async def workspace_usage(
        self,
        caller: Authenticated,
        since: Annotated[date | None, Query(alias="from")] = None,
        until: Annotated[date | None, Query(alias="to")] = None,
    ) -> UsageList:
        """What a workspace has spent: all its pipelines, deleted ones too, and its extractions."""
        caller.require_admin()
        rows = await self._usage.of_workspace(caller.workspace_id, since, until)
        return UsageList.of(rows, self._models)
