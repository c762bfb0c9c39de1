"""Replays of a pipeline: start, get, list, cancel."""

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from fastapi import APIRouter, Request, Response

from libs.chassis import idempotency
from libs.chassis.auth import Caller
from libs.chassis.errors import Aborted, NotFound
from libs.chassis.http import Authenticated
from libs.chassis.idempotency import REPLAYED, IdempotencyKey
from libs.chassis.openapi import Empty
from libs.chassis.paging import decode_token, encode_token, page_size
from libs.chassis.permissions import bare_name
from libs.chassis.texts import check_actor
from libs.chassis.unit_of_work import UnitOfWork
from libs.contracts.ids import uuid7
from libs.contracts.limits import Limits
from libs.contracts.requests import PrincipalType
from libs.contracts.routes import BASE, MEMORY_STORES, PIPELINES
from services.distiller.api.access import PipelineAccess
from services.distiller.api.authorization import Authorization
from services.distiller.api.shapes import ReplayBody, ReplayPage, ReplayShape, Size, Token
from services.distiller.domain import Pipeline
from services.distiller.replays import Replayer
from services.distiller.store import Replay, ReplayActors, Replays
from services.distiller.store.replays import CANCELED


class ReplayApi:
    def __init__(
        self,
        limits: Limits,
        replays: Replays,
        actors: ReplayActors,
        replayer: Replayer,
        unit_of_work: UnitOfWork,
        authorization: Authorization,
        access: PipelineAccess,
    ) -> None:
        self._limits = limits
        self._replays = replays
        self._actors = actors
        self._replayer = replayer
        self._unit_of_work = unit_of_work
        self._authorization = authorization
        self._access = access

    def routes(self) -> APIRouter:
        router = APIRouter(prefix=f"{BASE}/{PIPELINES}", tags=["replays"])
        shown: dict[str, Any] = {"response_model_exclude_none": True}
        router.add_api_route("/{pipeline_id}:replay", self.replay, methods=["POST"], **shown)
        router.add_api_route("/{pipeline_id}/replays", self.list_replays, methods=["GET"], **shown)
        router.add_api_route("/{pipeline_id}/replays/{replay_id}", self.get_replay, methods=["GET"], **shown)
        router.add_api_route("/{pipeline_id}/replays/{replay_id}", self.cancel_replay, methods=["DELETE"], **shown)
        return router

    async def replay(
        self,
        pipeline_id: str,
        request: Request,
        response: Response,
        caller: Authenticated,
        body: ReplayBody | None = None,
    ) -> ReplayShape:
        """Distils again what one actor or everybody said, and puts it in the place of what the pipeline had written.

        Into another store it needs WRITE there and READ on the session store. `ABORTED` names one that is active.
        """
        pipeline = await self._access.managed(pipeline_id, caller)
        replay, creator = await self._new(pipeline, body or ReplayBody(), caller)
        key = IdempotencyKey.of(request, caller, await request.body())
        uid = pipeline.pipeline_uid
        async with self._unit_of_work.begin() as tx:

            async def made(replay_id: str) -> Replay | None:
                return await self._replays.get(uid, UUID(replay_id), tx)

            earlier = await idempotency.claim(tx, uid, key, str(replay.replay_uid), made) if key else None
            if earlier is None and not await self._replays.start(tx, replay, *creator):
                active = await self._replays.active(tx, uid)
                if active is None:
                    raise Aborted("A replay of this pipeline has just ended. Try again.")
                raise Aborted(f"A replay of this pipeline is in progress: {active.name}.")
        if earlier is not None:
            response.headers.update(REPLAYED)
        self._replayer.wake.set()
        return await self._shape(pipeline, (earlier or replay).replay_uid)

    async def list_replays(
        self, pipeline_id: str, caller: Authenticated, size: Size = None, token: Token = None
    ) -> ReplayPage:
        """The latest started first; each is kept for 30 days after its end."""
        pipeline = await self._access.managed(pipeline_id, caller)
        limit = page_size(size, default=50, maximum=100)
        scope = ("replays", pipeline.pipeline_uid)
        cursor = decode_token(scope, token, (UUID,))
        found = await self._replays.page(pipeline.pipeline_uid, cursor[0] if cursor else None, limit + 1)
        more = encode_token(scope, [found[limit - 1].replay_uid]) if len(found) > limit else None
        counts = await self._actors.counts_of(found[:limit])
        shown = [ReplayShape.of(replay, counts[replay.replay_uid]) for replay in found[:limit]]
        return ReplayPage(replays=shown, next_page_token=more)

    async def get_replay(self, pipeline_id: str, replay_id: str, caller: Authenticated) -> ReplayShape:
        pipeline = await self._access.managed(pipeline_id, caller)
        return await self._shape(pipeline, _uid(replay_id))

    async def cancel_replay(self, pipeline_id: str, replay_id: str, caller: Authenticated) -> Empty:
        """Who was not swapped yet keeps what there was, and live lanes go on; the replay is then `CANCELED`.

        An actor whose swap is just being made may be swapped all the same, whole, and is counted so. A replay whose
        actors all are, and one that is over, stays what it is.
        """
        pipeline = await self._access.managed(pipeline_id, caller)
        replay = await self._find(pipeline, _uid(replay_id))
        async with self._unit_of_work.begin() as tx:
            await self._replays.stop(tx, replay, "gone", CANCELED)
        self._replayer.wake.set()
        return Empty()

    async def _new(
        self, pipeline: Pipeline, body: ReplayBody, caller: Caller
    ) -> tuple[Replay, tuple[PrincipalType, str]]:
        """The replay, and in whose name it reads and writes."""
        store_uid, store_id = pipeline.memory_store_uid, pipeline.memory_store_id
        creator = (pipeline.creator_type, pipeline.creator)
        named = None if body.memory_store is None else bare_name(MEMORY_STORES, body.memory_store)
        if named is not None and named != store_id:
            # Whoever sends conversations elsewhere must be able to read them.
            _, store_uid = await self._authorization.pair(caller, pipeline.session_store_id, named)
            store_id, creator = named, (caller.principal_type, caller.principal)
        replay = Replay(
            replay_uid=uuid7(),
            pipeline_uid=pipeline.pipeline_uid,
            hidden_uid=uuid7(),
            shadow_uid=uuid7(),
            into_store_uid=store_uid,
            into_store_id=store_id,
            actor_id=None if body.actor_id is None else check_actor(body.actor_id, self._limits),
            state="PENDING",
            error=None,
            create_time=datetime.now(UTC),
            end_time=None,
        )
        return replay, creator

    async def _find(self, pipeline: Pipeline, replay_uid: UUID | None) -> Replay:
        replay = None if replay_uid is None else await self._replays.get(pipeline.pipeline_uid, replay_uid)
        if replay is None:
            raise NotFound(f"{pipeline.name} has no such replay.")
        return replay

    async def _shape(self, pipeline: Pipeline, replay_uid: UUID | None) -> ReplayShape:
        replay = await self._find(pipeline, replay_uid)
        return ReplayShape.of(replay, await self._actors.counts(replay))


def _uid(replay_id: str) -> UUID | None:
    try:
        return UUID(replay_id)
    except ValueError:
        return None
