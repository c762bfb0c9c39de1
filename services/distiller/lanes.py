"""The lane workers of a process: they take due lanes by turns, keep their leases, and decide what a failure means.

A process works on at most `lanes_per_process` lanes and `lanes_per_workspace` of one workspace at once; the last
quarter is for workspaces that have none at work. Nothing polls a lane that is not due: a mark says when the next one
is, and a slow look at the table finds what other replicas marked.

What comes alone is taken at once. A workspace of which several lanes were taken at once, all that were due, then rests
a moment, and what comes meanwhile is taken together, for a fraction of the work: each step of lanes that were taken
together is done in one go.
"""

import asyncio
from collections import Counter, defaultdict
from contextlib import suppress
from uuid import UUID

from libs.chassis.errors import ApiError, Reject, Retry
from libs.chassis.logs import logger
from services.distiller.distil import Distiller
from services.distiller.domain import (
    LANE_DELAYS_S,
    OURS_DELAY_S,
    Fenced,
    LaneFailure,
    Lease,
    OverBudget,
    ProviderFailure,
    Truncated,
    lane_delay_s,
)
from services.distiller.metrics import Metrics
from services.distiller.settings import DistillerSettings
from services.distiller.store import Leases

GIVE_BACK_S = 2.0
BETWEEN_LOOKS_S = 0.02
REST_S = 0.08

log = logger(__name__)


class LaneWorkers:
    """`run` until cancelled; a worker that is cancelled gives its lane back."""

    def __init__(self, settings: DistillerSettings, leases: Leases, distiller: Distiller, metrics: Metrics) -> None:
        self._settings = settings
        self._leases = leases
        self._distiller = distiller
        self._metrics = metrics
        self._busy: Counter[int] = Counter()
        self._tasks: set[asyncio.Task[None]] = set()
        self._wake = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._is_held_back = False
        self._is_draining = False
        self._drained = asyncio.Event()
        self._resting: dict[int, float] = {}

    def due_in(self, seconds: float) -> None:
        """Something is due in so many seconds: look then, if not sooner."""
        loop = asyncio.get_running_loop()
        if seconds <= 0:
            self._wake.set()
        elif self._timer is None or self._timer.when() > loop.time() + seconds:
            if self._timer is not None:
                self._timer.cancel()
            self._timer = loop.call_later(seconds, self._ring)

    def _ring(self) -> None:
        self._timer = None
        self._wake.set()

    async def drain(self) -> None:
        """Takes no more lanes; returns when those that were taken have ended."""
        self._is_draining = True
        self._wake.set()
        await self._drained.wait()

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            while not self._is_draining:
                looked = loop.time()
                try:
                    if await self._take_turns():
                        continue
                    if self._timer is None:
                        await self._set_timer()
                except Exception as failed:  # the workers outlive whatever the database says
                    log.warning("lanes_unreadable", error=type(failed).__name__)
                    self.due_in(self._settings.poll_interval_s)
                await self._wake.wait()
                await asyncio.sleep(looked + BETWEEN_LOOKS_S - loop.time())
                self._wake.clear()
            while self._tasks:
                await asyncio.wait(self._tasks)
            self._drained.set()
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _set_timer(self) -> None:
        """For the next lane that may be taken, and at the latest for a look at what other replicas marked.

        Where there is no room, for a lane or for one of its workspace, the end of a lane is waited for.
        """
        longest = self._settings.poll_interval_s
        next_due_s = None
        if len(self._tasks) < self._settings.lanes_per_process:
            next_due_s = await self._leases.next_due_s([*self._full(), *self._resting])
        self.due_in(longest if next_due_s is None else min(next_due_s, longest))

    def _full(self) -> list[int]:
        """The workspaces that have all the lanes at work that they may have."""
        return [workspace_id for workspace_id in self._busy if not self._may_take(workspace_id, Counter())]

    async def _take_turns(self) -> bool:
        """Starts work on due lanes; True when there may be more right now."""
        settings = self._settings
        now = asyncio.get_running_loop().time()
        self._resting = {workspace_id: until for workspace_id, until in self._resting.items() if until > now}
        room = settings.lanes_per_process - len(self._tasks)
        turns: Counter[int] = Counter()
        full = self._full()
        self._is_held_back = room <= 0 or bool(full)
        if room <= 0:
            return False
        candidates = await self._leases.due(settings.lanes_per_turn, room, [*full, *self._resting])
        started: Counter[int] = Counter()
        left: set[int] = set()
        chosen: defaultdict[UUID, dict[str, int]] = defaultdict(dict)
        for pipeline_uid, actor_id, workspace_id, token in candidates:
            if not self._may_take(workspace_id, turns):
                left.add(workspace_id)
                continue
            turns[workspace_id] += 1
            chosen[pipeline_uid][actor_id] = token
        for pipeline_uid, tokens in chosen.items():
            for lease in await self._leases.take(pipeline_uid, tokens, settings.lease_s):
                self._start(lease)
                started[lease.pipeline.workspace_id] += 1
        # Who was cut off comes when a lane ends, or at once where some that were shown left their room.
        is_cut_off = len(candidates) >= room
        self._is_held_back |= is_cut_off or bool(left)
        if not is_cut_off:
            had_all = (each for each, turn in turns.items() if 1 < turn < settings.lanes_per_turn and each not in left)
            self._resting |= dict.fromkeys(had_all, now + REST_S)
        if self._resting:
            self.due_in(min(self._resting.values()) - now)
        if is_cut_off and 0 < started.total() < room:
            return True
        return any(taken >= settings.lanes_per_turn for taken in started.values())

    def _may_take(self, workspace_id: int, turns: Counter[int]) -> bool:
        """Whether a workspace may have one more lane at work, `turns` being those that are about to be."""
        settings = self._settings
        busy = self._busy[workspace_id] + turns[workspace_id]
        shared = settings.lanes_per_process - settings.lanes_per_process // 4
        return busy == 0 or (busy < settings.lanes_per_workspace and len(self._tasks) + turns.total() < shared)

    def _start(self, lease: Lease) -> None:
        workspace_id = lease.pipeline.workspace_id
        self._busy[workspace_id] += 1
        task = asyncio.create_task(self._work(lease))
        self._tasks.add(task)

        def ended(task: asyncio.Task[None]) -> None:
            self._tasks.discard(task)
            self._busy[workspace_id] -= 1
            if not self._busy[workspace_id]:
                del self._busy[workspace_id]
            if self._is_held_back:
                self._wake.set()

        task.add_done_callback(ended)

    async def _work(self, lease: Lease) -> None:
        keeper = asyncio.create_task(self._keep(lease, asyncio.current_task()))
        try:
            outcome = await self._outcome(lease)
        except (ApiError, Retry) as away:
            # The lease runs out by itself, should even this not be written.
            outcome = "ours"
            log.warning("lane_interrupted", error=type(away).__name__)
        except asyncio.CancelledError:
            # The service stops, or the lease is lost already, which the token tells: let another worker go on at once.
            with suppress(ApiError, TimeoutError):
                async with asyncio.timeout(GIVE_BACK_S):
                    await self._leases.put_off(lease, 0)
            raise
        finally:
            keeper.cancel()
        self._metrics.distillations.labels(outcome).inc()

    async def _outcome(self, lease: Lease) -> str:
        try:
            if not await self._distiller.distil(lease):
                await self._leases.release(lease)
                return "nothing"
        except Fenced:
            return "fenced"
        except Truncated as truncated:
            return await self._smaller(lease, truncated)
        except (LaneFailure, Reject) as failure:
            return await self._failed(lease, str(failure))
        except ProviderFailure as failure:
            await self._leases.put_off(lease, failure.retry_after_s, reason=str(failure), provider=failure.provider)
            return "provider"
        except OverBudget as over:
            await self._leases.put_off_to_the_next_day(lease, str(over))
            return "over_budget"
        except (ApiError, Retry) as away:
            await self._leases.put_off(lease, OURS_DELAY_S, reason=str(away))
            return "ours"
        except Exception as failed:
            log.error("distillation_failed", exc_info=failed)
            return await self._failed(lease, f"internal: {type(failed).__name__}")
        return "emitted"

    async def _smaller(self, lease: Lease, truncated: Truncated) -> str:
        """Half the lines at once, which is no failed attempt; a single line that is cut is one."""
        lines = truncated.lines or self._settings.batch_lines
        if lines <= 1:
            return await self._failed(lease, str(truncated))
        await self._leases.put_off(lease, 0, reason=str(truncated), max_lines=lines // 2)
        return "truncated"

    async def _failed(self, lease: Lease, reason: str) -> str:
        attempts = lease.attempts + 1
        parked = attempts > len(LANE_DELAYS_S)
        await self._leases.put_off(lease, lane_delay_s(attempts), reason=reason, attempts=attempts, parked=parked)
        log.warning("lane_failed", reason=reason, attempts=attempts, parked=parked)
        return "parked" if parked else "failed"

    async def _keep(self, lease: Lease, worker: "asyncio.Task[None] | None") -> None:
        """Renews the lease; a worker whose lease is lost is stopped, for whatever it did would be refused."""
        while True:
            await asyncio.sleep(self._settings.lease_s / 3)
            try:
                if not await self._leases.renew(lease, self._settings.lease_s):
                    if worker is not None:
                        worker.cancel()
                    return
            except ApiError as away:
                log.warning("lease_not_renewed", error=away.code)
