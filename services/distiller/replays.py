"""Replays: what was said is distilled again, beside what is known, and takes its place actor by actor.

A replay gathers in a shadow store. Once an actor's replay has reached the live watermark, its live lane is held, the
tail is distilled, and memory swaps that actor's entries in one transaction: all or nothing. Every step is a transaction
or may be repeated, so that any replica goes on where another died.

What waits for another service is tried again; whatever else goes wrong ends the replay, or the actor's part in it, with
its reason. A live lane is held while the tail is distilled, and let go where that fails or waits; then for the tries of
the swap, some minutes at most (`DELAYS_S`, `SWAP_TIMEOUT_S`, and what other replays take between them); and both once
more where memory turns out to know more by then.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

from libs.chassis.errors import ApiError, Reject, Retry
from libs.chassis.logs import logger
from libs.chassis.unit_of_work import Tx, UnitOfWork
from libs.contracts.events import ReplayEnded
from libs.contracts.requests import (
    KnownSession,
    MemoriesSwapped,
    ShadowStore,
    StoreShadowed,
    SwapMemories,
    SwapWithdrawn,
    WithdrawSwap,
)
from services.distiller.access import Access
from services.distiller.domain import LaneFailure, Pipeline
from services.distiller.lanes import LaneWorkers
from services.distiller.store import Pipelines, Replay, ReplayActors, Replays
from services.distiller.store.replays import CANCELED, ERASED, ActorState, AtWork, ReplayState
from services.distiller.store.replays.lanes import aim, aim_at, hidden_lane, hold, let_go, nudge

SWAP_TIMEOUT_S = 30.0
DELAYS_S = (1.0, 5.0, 15.0, 60.0, 120.0)  # its live lane may be held meanwhile
TRIES = 30  # while nothing is held: about an hour
REPLAYS_AT_ONCE = 8

LOST = "the memory store, or what was gathered for it, is gone: replay again if it is there"
UNKNOWN = "memory does not say whether the swap was made"
STUCK = "lines up to the live lane's watermark cannot be read: replay again once the session store is repaired"

Ask = Callable[..., Awaitable[Any]]

log = logger(__name__)


class Replayer:
    """`step` moves every active replay on, each by itself: a swap takes its time, and others' live lanes may be held.

    Any replica may, until `close`.
    """

    def __init__(
        self,
        actors_at_once: int,
        replays: Replays,
        actors: ReplayActors,
        pipelines: Pipelines,
        workers: LaneWorkers,
        unit_of_work: UnitOfWork,
        access: Access,
        ask: Ask,
    ) -> None:
        self._actors_at_once = actors_at_once
        self._replays = replays
        self._actors = actors
        self._pipelines = pipelines
        self._workers = workers
        self._unit_of_work = unit_of_work
        self._access = access
        self._ask = ask
        self._turns = asyncio.Semaphore(REPLAYS_AT_ONCE)
        self._moving: dict[UUID, asyncio.Task[None]] = {}
        self.wake = asyncio.Event()

    async def step(self) -> None:
        for replay in await self._replays.all_active():
            if replay.replay_uid not in self._moving:
                self._begin(replay)

    def _begin(self, replay: Replay) -> None:
        task = self._moving[replay.replay_uid] = asyncio.create_task(self._move(replay))
        task.add_done_callback(lambda _: self._moving.pop(replay.replay_uid))

    async def close(self) -> None:
        tasks = list(self._moving.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _move(self, replay: Replay) -> None:
        try:
            async with self._turns:
                try:
                    await self._go_on(replay)
                except (ApiError, Retry) as away:
                    await self._wait(replay, str(away))
                except Exception as failed:
                    log.warning("replay_failed", replay_uid=str(replay.replay_uid), error=type(failed).__name__)
                    await self._stop(replay, _reason(failed))
        except Exception as failed:  # the database is away: the next step comes back to it
            log.warning("replay_interrupted", replay_uid=str(replay.replay_uid), error=type(failed).__name__)

    async def _go_on(self, replay: Replay) -> None:
        pipeline = await self._pipelines.of_run(replay.pipeline_uid)
        hidden = await self._pipelines.of_run(replay.hidden_uid)
        if pipeline is None or hidden is None:
            return
        if (await self._actors.counts(replay)).wanted:
            if not replay.is_due:
                return
            await self._access.check(replace(hidden, memory_store_uid=replay.into_store_uid))
            await self._open(replay, hidden)
        due = [actor for actor in await self._actors.at_work(replay) if actor.is_due]
        attempts = [self._attempt(replay, pipeline, actor) for actor in due]
        # Until the last one has ended, whatever befalls the first: nobody begins anew what is still under way.
        for failed in await asyncio.gather(*attempts, return_exceptions=True):
            if failed is not None:
                raise failed
        room = self._actors_at_once - len(await self._actors.at_work(replay))
        if room > 0:
            async with self._unit_of_work.begin() as tx:
                begun = await self._actors.begin(tx, replay, room)
            if begun:
                self._workers.due_in(0)
        await self._end_if_over(replay, hidden)

    async def _open(self, replay: Replay, hidden: Pipeline) -> None:
        """Has the shadow made, once; and forgets the tries that failed."""
        if replay.state == "PENDING":
            made: StoreShadowed = await self._ask(
                ShadowStore(
                    workspace_id=hidden.workspace_id, store_uid=replay.shadow_uid, of_store_uid=replay.into_store_uid
                ),
                StoreShadowed,
            )
            if made.gone:
                raise LaneFailure(f"NOT_FOUND: memory-stores/{replay.into_store_id} was deleted")
        elif not replay.attempts:
            return
        async with self._unit_of_work.begin() as tx:
            if not await self._replays.run(tx, replay):
                tx.emit(ReplayEnded(workspace_id=hidden.workspace_id, store_uid=replay.shadow_uid))

    async def _wait(self, replay: Replay, reason: str) -> None:
        """Another service is away or refuses: the live lanes go on, and after some tries the replay is over."""
        log.warning("replay_waits", replay_uid=str(replay.replay_uid), error=reason, attempts=replay.attempts + 1)
        if replay.attempts >= TRIES:
            await self._stop(replay, f"{reason}: replay again once that service answers")
            return
        async with self._unit_of_work.begin() as tx:
            await self._replays.put_off(tx, replay, _delay_s(replay.attempts))

    async def _stop(self, replay: Replay, reason: str) -> None:
        async with self._unit_of_work.begin() as tx:
            await self._replays.stop(tx, replay, "failed", reason)
        self._workers.due_in(0)
        self.wake.set()

    async def _end_if_over(self, replay: Replay, hidden: Pipeline) -> None:
        counts = await self._actors.counts(replay)
        if counts.left:
            return
        state: ReplayState = "CANCELED" if counts.canceled else "FAILED" if counts.failed else "SUCCEEDED"
        plural = "s" * (counts.failed != 1)
        error = f"{counts.failed} actor{plural} not replayed: {counts.reason}" if counts.failed else None
        async with self._unit_of_work.begin() as tx:
            if await self._replays.end(tx, replay, state, error):
                tx.emit(ReplayEnded(workspace_id=hidden.workspace_id, store_uid=replay.shadow_uid))
        self._workers.due_in(0)

    async def _attempt(self, replay: Replay, pipeline: Pipeline, actor: AtWork) -> None:
        try:
            match actor.state:
                case "swapping":
                    await self._swap(replay, pipeline, actor)
                case "withdrawing":
                    await self._withdraw(replay, pipeline, actor)
                case _:
                    await self._follow(replay, pipeline, actor)
        except Exception as failed:  # the other actors go on, and in the end the live lane does
            log.warning(
                "replay_actor_failed",
                replay_uid=str(replay.replay_uid),
                error=type(failed).__name__,
                attempts=actor.attempts + 1,
            )
            async with self._unit_of_work.begin() as tx:
                await self._try_again(tx, replay, actor, _reason(failed))

    async def _try_again(self, tx: Tx, replay: Replay, actor: AtWork, reason: str) -> None:
        """After a delay, some times. A swap that nobody has answered may have been made: memory is asked about it."""
        if actor.attempts < (TRIES if actor.state == "withdrawing" else len(DELAYS_S)):
            await self._actors.put_off(tx, replay, actor, _delay_s(actor.attempts))
        elif actor.state == "withdrawing":
            await self._actors.settle(tx, replay, actor, "failed", f"{actor.reason}; {UNKNOWN}")
        else:
            await self._actors.give_up(tx, replay, actor, reason)

    async def _follow(self, replay: Replay, pipeline: Pipeline, actor: AtWork) -> None:
        if not await self._actors.may_move(replay, actor):
            return
        async with self._unit_of_work.begin() as tx:
            # First, so that an erasure or another replica comes before or after all of this.
            if not await self._actors.keep(tx, replay, actor):
                return
            lane = await hidden_lane(tx, replay, actor.actor_id)
            if lane is None:
                await self._actors.settle(tx, replay, actor, "gone", ERASED)
            elif lane.parked:
                await self._actors.give_up(tx, replay, actor, lane.reason)
            elif actor.state == "held" and lane.reason is not None:
                # Nobody waits for a replay that itself waits: the live lane goes on meanwhile.
                await let_go(tx, replay.replay_uid, actor.actor_id)
                await self._actors.move(tx, replay, actor, "distilling")
            elif lane.rests:
                await self._meet(tx, replay, pipeline, actor)
        self._workers.due_in(0)

    async def _meet(self, tx: Tx, replay: Replay, pipeline: Pipeline, actor: AtWork) -> None:
        """The replay has reached its goal; where the live lane writes too, both must stand at the same watermark."""
        actor_id = actor.actor_id
        is_live = replay.into_store_uid == pipeline.memory_store_uid
        if is_live:
            if not await hold(tx, replay, actor_id):
                await self._actors.move(tx, replay, actor, "held")
                return
            await aim(tx, replay, actor_id)
        if not await nudge(tx, replay, actor_id):
            await self._actors.move(tx, replay, actor, "swapping")
        elif not await self._actors.gets_on(tx, replay, actor):
            await self._actors.give_up(tx, replay, actor, STUCK)
        elif is_live:
            await self._actors.move(tx, replay, actor, "held")

    async def _swap(self, replay: Replay, pipeline: Pipeline, actor: AtWork) -> None:
        wanted = _swap_of(replay, pipeline, actor)
        swapped: MemoriesSwapped = await self._ask(wanted, MemoriesSwapped, timeout_s=SWAP_TIMEOUT_S)
        async with self._unit_of_work.begin() as tx:
            if not await self._actors.keep(tx, replay, actor):
                return
            match swapped.outcome:
                case "swapped":
                    await self._actors.swapped(tx, replay, actor, wanted, swapped.made_ago_s)
                case "behind":
                    await self._catch_up(tx, replay, actor, swapped.ahead)
                case "erased":
                    await self._actors.settle(tx, replay, actor, "gone", ERASED)
                case "gone":
                    await self._actors.settle(tx, replay, actor, "failed", LOST)
        self._workers.due_in(0)

    async def _catch_up(self, tx: Tx, replay: Replay, actor: AtWork, ahead: Sequence[KnownSession]) -> None:
        """Memory knows more than the live lane has distilled, from an extraction: that is distilled, too."""
        await aim_at(tx, replay, actor.actor_id, ahead)
        if await nudge(tx, replay, actor.actor_id):
            await self._actors.move(tx, replay, actor, "held")
        else:
            await self._actors.give_up(tx, replay, actor, LOST)

    async def _withdraw(self, replay: Replay, pipeline: Pipeline, actor: AtWork) -> None:
        answer: SwapWithdrawn = await self._ask(
            WithdrawSwap(
                swap_id=actor.swap_id,
                store_uid=replay.into_store_uid,
                shadow_uid=replay.shadow_uid,
                actor_id=actor.actor_id,
            ),
            SwapWithdrawn,
            timeout_s=SWAP_TIMEOUT_S,
        )
        async with self._unit_of_work.begin() as tx:
            if answer.swapped:
                await self._actors.swapped(tx, replay, actor, _swap_of(replay, pipeline, actor), answer.made_ago_s)
            else:
                state: ActorState = "gone" if actor.reason == CANCELED else "failed"
                await self._actors.settle(tx, replay, actor, state, actor.reason)


def _swap_of(replay: Replay, pipeline: Pipeline, actor: AtWork) -> SwapMemories:
    return SwapMemories(
        swap_id=actor.swap_id,
        store_uid=replay.into_store_uid,
        shadow_uid=replay.shadow_uid,
        actor_id=actor.actor_id,
        pipeline_uid=pipeline.pipeline_uid,
        session_store_uid=pipeline.session_store_uid,
        source_epoch=actor.source_epoch,
        keeps_up=replay.into_store_uid == pipeline.memory_store_uid,
    )


def _delay_s(attempts: int) -> float:
    """The pause after so many tries before this one."""
    return DELAYS_S[min(attempts, len(DELAYS_S) - 1)]


def _reason(failed: Exception) -> str:
    """What a person may read: no text of a user stands in it."""
    if isinstance(failed, Reject):
        return f"REFUSED: {failed}: see that service's log, then replay again"
    return str(failed) if isinstance(failed, (LaneFailure, Retry)) else f"internal: {type(failed).__name__}"
