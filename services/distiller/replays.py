"""Replays: what was said is distilled again, beside what is known, and takes its place actor by actor.

A replay gathers in a shadow store. Once an actor's replay has reached the live watermark, its live lane is held, the
tail is distilled, and memory swaps that actor's entries in one transaction: all or nothing. Every step is a transaction
or may be repeated, so that any replica goes on where another died.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

from libs.chassis.logs import logger
from libs.chassis.unit_of_work import Tx, UnitOfWork
from libs.contracts.events import ReplayEnded
from libs.contracts.requests import MemoriesSwapped, ShadowStore, StoreShadowed, SwapMemories
from services.distiller.access import Access
from services.distiller.domain import LaneFailure, Pipeline
from services.distiller.lanes import LaneWorkers
from services.distiller.store import Pipelines, Replay, Replays
from services.distiller.store.replays import ERASED, AtWork, ReplayState

SWAP_TIMEOUT_S = 30.0
DELAYS_S = (1.0, 5.0, 15.0, 60.0, 120.0)  # its live lane may be held meanwhile

Ask = Callable[..., Awaitable[Any]]

log = logger(__name__)


class Replayer:
    """`step` moves every active replay on; any replica may."""

    def __init__(
        self,
        actors_at_once: int,
        replays: Replays,
        pipelines: Pipelines,
        workers: LaneWorkers,
        unit_of_work: UnitOfWork,
        access: Access,
        ask: Ask,
    ) -> None:
        self._actors_at_once = actors_at_once
        self._replays = replays
        self._pipelines = pipelines
        self._workers = workers
        self._unit_of_work = unit_of_work
        self._access = access
        self._ask = ask
        self.wake = asyncio.Event()

    async def step(self) -> None:
        for replay in await self._replays.all_active():
            hidden = await self._pipelines.of_run(replay.hidden_uid)
            if hidden is None:
                continue
            try:
                await self._access.check(replace(hidden, memory_store_uid=replay.into_store_uid))
                await (self._open(replay, hidden) if replay.state == "PENDING" else self._go_on(replay))
            except LaneFailure as failure:
                await self._end(replay, "FAILED", str(failure))
            except Exception as failed:  # the other replays go on
                log.warning("replay_interrupted", replay_uid=str(replay.replay_uid), error=type(failed).__name__)

    async def _open(self, replay: Replay, hidden: Pipeline) -> None:
        made: StoreShadowed = await self._ask(
            ShadowStore(
                workspace_id=hidden.workspace_id, store_uid=replay.shadow_uid, of_store_uid=replay.into_store_uid
            ),
            StoreShadowed,
        )
        if made.gone:
            raise LaneFailure(f"NOT_FOUND: memory-stores/{replay.into_store_id} was deleted")
        async with self._unit_of_work.begin() as tx:
            if not await self._replays.run(tx, replay):
                tx.emit(ReplayEnded(workspace_id=hidden.workspace_id, store_uid=replay.shadow_uid))
        self.wake.set()

    async def _go_on(self, replay: Replay) -> None:
        pipeline = await self._pipelines.of_run(replay.pipeline_uid)
        if pipeline is None:
            return
        for actor in await self._replays.at_work(replay):
            if actor.is_due:
                await self._attempt(replay, pipeline, actor)
        room = self._actors_at_once - len(await self._replays.at_work(replay))
        if room > 0:
            async with self._unit_of_work.begin() as tx:
                begun = await self._replays.begin(tx, replay, room)
            if begun:
                self._workers.due_in(0)
        counts = await self._replays.counts(replay.replay_uid)
        if counts.left:
            return
        if counts.canceled:
            await self._end(replay, "CANCELED", None)
        elif counts.failed:
            plural = "s" * (counts.failed != 1)
            await self._end(replay, "FAILED", f"{counts.failed} actor{plural} not replayed: {counts.reason}")
        else:
            await self._end(replay, "SUCCEEDED", None)

    async def _attempt(self, replay: Replay, pipeline: Pipeline, actor: AtWork) -> None:
        try:
            await (self._swap if actor.state == "swapping" else self._follow)(replay, pipeline, actor)
        except Exception as failed:  # the other actors go on, and in the end the live lane does
            error = type(failed).__name__
            attempts = actor.attempts + 1
            log.warning("replay_actor_failed", replay_uid=str(replay.replay_uid), error=error, attempts=attempts)
            async with self._unit_of_work.begin() as tx:
                if attempts > len(DELAYS_S):
                    await self._replays.settle(tx, replay, actor, "failed", f"internal: {error}")
                else:
                    await self._replays.put_off(tx, replay, actor, attempts, DELAYS_S[attempts - 1])

    async def _follow(self, replay: Replay, pipeline: Pipeline, actor: AtWork) -> None:
        if not await self._replays.may_move(replay, pipeline.pipeline_uid, actor):
            return
        async with self._unit_of_work.begin() as tx:
            # First, so that an erasure or another replica comes before or after all of this.
            if not await self._replays.keep(tx, replay, actor):
                return
            lane = await self._replays.hidden_lane(tx, replay, actor.actor_id)
            if lane is None:
                await self._replays.settle(tx, replay, actor, "gone", ERASED)
            elif lane.parked:
                await self._replays.settle(tx, replay, actor, "failed", lane.reason)
            elif actor.state == "held" and lane.reason is not None:
                # Nobody waits for a replay that itself waits: the live lane goes on meanwhile.
                await self._replays.let_go(tx, replay, actor.actor_id)
                await self._replays.move(tx, replay, actor, "distilling")
            elif lane.rests:
                await self._meet(tx, replay, pipeline, actor)
        self._workers.due_in(0)

    async def _meet(self, tx: Tx, replay: Replay, pipeline: Pipeline, actor: AtWork) -> None:
        """The replay has reached its goal; where the live lane writes too, both must stand at the same watermark."""
        actor_id = actor.actor_id
        is_live = replay.into_store_uid == pipeline.memory_store_uid
        if is_live:
            if not await self._replays.hold(tx, replay, actor_id):
                await self._replays.move(tx, replay, actor, "held")
                return
            await self._replays.aim(tx, replay, actor_id)
        if not await self._replays.nudge(tx, replay, actor_id):
            await self._replays.move(tx, replay, actor, "swapping")
        elif is_live:
            await self._replays.move(tx, replay, actor, "held")

    async def _swap(self, replay: Replay, pipeline: Pipeline, actor: AtWork) -> None:
        swapped: MemoriesSwapped = await self._ask(
            SwapMemories(
                swap_id=actor.swap_id,
                store_uid=replay.into_store_uid,
                shadow_uid=replay.shadow_uid,
                actor_id=actor.actor_id,
                pipeline_uid=pipeline.pipeline_uid,
                session_store_uid=pipeline.session_store_uid,
                source_epoch=actor.source_epoch,
                keeps_up=replay.into_store_uid == pipeline.memory_store_uid,
            ),
            MemoriesSwapped,
            timeout_s=SWAP_TIMEOUT_S,
        )
        async with self._unit_of_work.begin() as tx:
            match swapped.outcome:
                case "swapped":
                    await self._replays.settle(tx, replay, actor, "swapped")
                case "behind":
                    await self._replays.move(tx, replay, actor, "held")
                case "erased":
                    await self._replays.settle(tx, replay, actor, "gone", ERASED)
                case "gone":
                    await self._replays.settle(tx, replay, actor, "failed", "the memory store was deleted")
        self._workers.due_in(0)

    async def _end(self, replay: Replay, state: ReplayState, error: str | None) -> None:
        hidden = await self._pipelines.of_run(replay.hidden_uid)
        if hidden is None:
            return
        async with self._unit_of_work.begin() as tx:
            if await self._replays.end(tx, replay, state, error):
                tx.emit(ReplayEnded(workspace_id=hidden.workspace_id, store_uid=replay.shadow_uid))
        self._workers.due_in(0)
