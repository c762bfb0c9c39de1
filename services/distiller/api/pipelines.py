"""Pipelines: create, get, list, update by leaf masks, delete."""

import asyncio
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Query, Request, Response

from libs.chassis import idempotency
from libs.chassis.auth import Caller
from libs.chassis.errors import Aborted, AlreadyExists, Contended, InvalidParameter, PermissionDenied
from libs.chassis.http import Authenticated
from libs.chassis.idempotency import NO_STORE, REPLAYED, IdempotencyKey
from libs.chassis.masks import update_mask
from libs.chassis.openapi import Empty
from libs.chassis.paging import decode_token, encode_token, page_size
from libs.chassis.permissions import bare_name
from libs.chassis.texts import check_bytes
from libs.chassis.unit_of_work import UnitOfWork
from libs.contracts.events import ReplayEnded
from libs.contracts.ids import uuid7
from libs.contracts.limits import Limits
from libs.contracts.routes import BASE, MEMORY_STORES, PIPELINES, SESSION_STORES
from services.distiller.access import Access
from services.distiller.api.access import PipelineAccess, missing
from services.distiller.api.authorization import Authorization
from services.distiller.api.shapes import PipelineBody, PipelinePage, PipelineShape, Size, Token, etag_of
from services.distiller.domain import TRIGGERS, Pipeline, Trigger
from services.distiller.lanes import LaneWorkers
from services.distiller.llm import Models
from services.distiller.runs import Runner
from services.distiller.store import Lanes, Pipelines, Replays
from services.distiller.sweep import Sweeper

QUIET_PERIOD_S = 2.0
MAX_WAIT_S = 15.0
DELETE_TRIES = 3
MASKS = (
    "display_name",
    "dreamer_policy.model",
    "dreamer_policy.instructions",
    "dreamer_policy.trigger",
    "dreamer_policy.enabled",
    "dreamer_policy.quiet_period_s",
    "dreamer_policy.max_wait_s",
    "dreamer_policy.daily_token_budget",
)


class PipelineApi:
    def __init__(
        self,
        limits: Limits,
        models: Models,
        pipelines: Pipelines,
        lanes: Lanes,
        replays: Replays,
        runner: Runner,
        sweeper: Sweeper,
        workers: LaneWorkers,
        unit_of_work: UnitOfWork,
        authorization: Authorization,
        access: PipelineAccess,
        creators: Access,
    ) -> None:
        self._limits = limits
        self._models = models
        self._pipelines = pipelines
        self._lanes = lanes
        self._replays = replays
        self._runner = runner
        self._sweeper = sweeper
        self._workers = workers
        self._unit_of_work = unit_of_work
        self._authorization = authorization
        self._access = access
        self._creators = creators

    def routes(self) -> APIRouter:
        router = APIRouter(prefix=f"{BASE}/{PIPELINES}", tags=["memory pipelines"])
        shown: dict[str, Any] = {"response_model_exclude_none": True}
        router.add_api_route("", self.create, methods=["POST"], **shown)
        router.add_api_route("", self.list_pipelines, methods=["GET"], **shown)
        router.add_api_route("/{pipeline_id}", self.get, methods=["GET"], **shown)
        router.add_api_route("/{pipeline_id}", self.update, methods=["PATCH"], **shown)
        router.add_api_route("/{pipeline_id}", self.delete, methods=["DELETE"], **shown)
        return router

    async def create(
        self, body: PipelineBody, request: Request, response: Response, caller: Authenticated
    ) -> PipelineShape:
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
        self._check_model(policy.model, caller.principal)
        key = IdempotencyKey.of(request, caller, await request.body())
        async with self._unit_of_work.begin() as tx:

            async def made(uid: str) -> Pipeline | None:
                return await self._pipelines.get(caller.workspace_id, UUID(uid), tx)

            uid = str(pipeline.pipeline_uid)
            if key and (earlier := await idempotency.claim(tx, NO_STORE, key, uid, made)):
                response.headers.update(REPLAYED)
                return PipelineShape.of(earlier, self._models)
            created = await self._pipelines.create(tx, pipeline)
            if created is not None and created.trigger == "SCHEDULED":
                await self._pipelines.set_next_run(tx, created.pipeline_uid, self._runner.pause_s() / 24)
        if created is None:
            other = await self._pipelines.of_pair(source_uid, target_uid)
            name = f": {other.name}" if other else ""
            raise AlreadyExists(f"These two stores already have a pipeline{name}; update or delete it.")
        self._sweeper.wake.set()
        return PipelineShape.of(created, self._models)

    async def list_pipelines(self, caller: Authenticated, size: Size = None, token: Token = None) -> PipelinePage:
        """The pipelines both of whose stores the caller may read, oldest first; for an admin every one.

        Whoever made one sees it also when a store of it is gone, with the reason as its `error`.
        """
        limit = page_size(size, default=25, maximum=100)
        scope = ("pipelines", caller.workspace_id)
        cursor = decode_token(scope, token, (UUID,))
        after = cursor[0] if cursor else None
        found = await self._pipelines.page(caller.workspace_id, after, limit + 1)
        visible = [each for each in found[:limit] if await self._access.is_visible(each, caller)]
        shown = await asyncio.gather(*map(self._shape, visible))
        more = encode_token(scope, [found[limit - 1].pipeline_uid]) if len(found) > limit else None
        return PipelinePage(memory_pipelines=shown, next_page_token=more)

    async def get(self, pipeline_id: str, caller: Authenticated) -> PipelineShape:
        return await self._shape(await self._access.seen(pipeline_id, caller))

    async def update(
        self,
        pipeline_id: str,
        body: PipelineBody,
        caller: Authenticated,
        mask: Annotated[str | None, Query(alias="update_mask")] = None,
    ) -> PipelineShape:
        """Leaf masks: what is not named stays. A stale `etag` in the body is `ABORTED`."""
        paths = update_mask(mask, MASKS)
        pipeline = await self._access.managed(pipeline_id, caller)
        if body.etag is not None and body.etag != etag_of(pipeline):
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
        if "dreamer_policy.enabled" in paths:
            if "trigger" in changes:
                raise InvalidParameter("update_mask may name one of dreamer_policy.trigger and dreamer_policy.enabled.")
            if policy.enabled is None:
                raise InvalidParameter("dreamer_policy.enabled must be true or false where update_mask names it.")
            changes["trigger"] = pipeline.trigger_when(enabled=policy.enabled)
        if "quiet_period_s" in changes and changes["quiet_period_s"] is None:
            changes["quiet_period_s"] = QUIET_PERIOD_S
        if "max_wait_s" in changes and changes["max_wait_s"] is None:
            changes["max_wait_s"] = _longest(changes.get("quiet_period_s", pipeline.quiet_period_s))
        check_bytes("display_name", changes.get("display_name"), self._limits.description_bytes)
        check_bytes("instructions", changes.get("instructions"), self._limits.instructions_bytes)
        changed = replace(pipeline, **changes)
        _check_times(changed.quiet_period_s, changed.max_wait_s)
        if "model" in changes:
            self._check_model(changed.model, pipeline.creator)
        async with self._unit_of_work.begin() as tx:
            updated = await self._pipelines.update(tx, pipeline.pipeline_uid, pipeline.revision, changes)
            if updated is None:
                raise Aborted("The pipeline was changed at the same time. Get it again.")
            if updated.trigger != pipeline.trigger:
                scheduled = updated.trigger == "SCHEDULED"
                await self._pipelines.set_next_run(
                    tx, updated.pipeline_uid, self._runner.pause_s() if scheduled else None
                )
                if updated.trigger == "CONTINUOUS":
                    await self._lanes.make_due(tx, updated.pipeline_uid)
        if {"model", "instructions", "daily_token_budget"} & changes.keys():
            await self._lanes.redrive(pipeline.pipeline_uid)
            self._workers.due_in(0)
        return await self._shape(updated)

    async def delete(self, pipeline_id: str, caller: Authenticated) -> Empty:
        """The pipeline with its runs, replays and lanes; memories stay, and a batch already on its way is applied."""
        pipeline = await self._access.managed(pipeline_id, caller)
        for _ in range(DELETE_TRIES - 1):
            with suppress(Contended):  # with lanes at work, whose batches need the pipeline's row
                return await self._delete(pipeline)
        return await self._delete(pipeline)

    async def _delete(self, pipeline: Pipeline) -> Empty:
        async with self._unit_of_work.begin() as tx:
            for shadow_uid in await self._replays.shadows_of(tx, pipeline.pipeline_uid):
                tx.emit(ReplayEnded(workspace_id=pipeline.workspace_id, store_uid=shadow_uid))
            if not await self._pipelines.delete(tx, pipeline.pipeline_uid):
                raise missing(str(pipeline.pipeline_uid))
        return Empty()

    async def _shape(self, pipeline: Pipeline) -> PipelineShape:
        return PipelineShape.of(pipeline, self._models, await self._creators.obstacle(pipeline))

    def _new(self, body: PipelineBody, caller: Caller) -> Pipeline:
        policy = body.dreamer_policy
        if not body.session_store or not body.memory_store:
            raise InvalidParameter("session_store and memory_store are required.")
        check_bytes("instructions", policy.instructions, self._limits.instructions_bytes)
        check_bytes("display_name", body.display_name, self._limits.description_bytes)
        quiet = QUIET_PERIOD_S if policy.quiet_period_s is None else policy.quiet_period_s
        longest = _longest(quiet) if policy.max_wait_s is None else policy.max_wait_s
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
            parent_uid=None,
        )

    def _check_model(self, name: str | None, creator: str) -> None:
        if self._models.get(name) is None:
            raise InvalidParameter(f"Unknown model; known are {', '.join(self._models.names)}.")
        if not self._models.may_be_used_by(creator, name):
            raise PermissionDenied(
                f"The creator of this pipeline may not use the model {name or self._models.default}."
            )


def _trigger(asked: str | None) -> Trigger:
    return next((trigger for trigger in TRIGGERS if trigger == asked), "MANUAL_ONLY")


def _longest(quiet_period_s: float) -> float:
    """How long a lane waits at most where nobody says it."""
    return max(MAX_WAIT_S, quiet_period_s)


def _check_times(quiet_period_s: float, max_wait_s: float) -> None:
    if max_wait_s < quiet_period_s:
        raise InvalidParameter(
            f"dreamer_policy.max_wait_s ({max_wait_s:g}) must not be less than quiet_period_s ({quiet_period_s:g})."
        )
