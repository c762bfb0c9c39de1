"""Waiting until what was said is searchable.

Every replica hears that a batch was applied and wakes its waiters; because that may be missed, each looks again a few
times a second. On a miss the distiller is asked once to hurry, and says whether waiting makes sense.
"""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Protocol
from uuid import UUID

from libs.chassis.auth import Caller
from libs.chassis.errors import Retry
from libs.contracts.events import BatchesApplied
from libs.contracts.requests import HastenLane, LaneHastened
from services.memory.store.progress import Progress

LOOK_AGAIN_S = 0.25
HASTEN_TIMEOUT_S = 2.0


class Asker(Protocol):
    async def ask(self, request: HastenLane, answer: type[LaneHastened], *, timeout_s: float = ...) -> LaneHastened: ...


@dataclass(frozen=True, slots=True)
class Goal:
    """Until a session, up to a position, is searchable in a store."""

    actor_id: str
    session_store_id: str
    session_id: str
    position: int


@dataclass(frozen=True, slots=True)
class Settled:
    """`behind`: how many positions are not searchable yet; `reason`: why they are not."""

    settled: bool
    behind: int
    reason: str | None = None


class Wakers:
    """Who waits for news of a store, on this replica; `listeners` hear of every store."""

    def __init__(self) -> None:
        self.listeners: list[Callable[[UUID], None]] = []
        self._waiting: defaultdict[UUID, set[asyncio.Event]] = defaultdict(set)

    def wake(self, store_uid: UUID) -> None:
        for event in self._waiting.get(store_uid, ()):
            event.set()
        for listener in self.listeners:
            listener(store_uid)

    @asynccontextmanager
    async def listening(self, store_uid: UUID) -> AsyncIterator[asyncio.Event]:
        event = asyncio.Event()
        self._waiting[store_uid].add(event)
        try:
            yield event
        finally:
            self._waiting[store_uid].discard(event)
            if not self._waiting[store_uid]:
                del self._waiting[store_uid]


class Freshness:
    def __init__(self, progress: Progress, asker: Asker, wakers: Wakers) -> None:
        self._progress = progress
        self._asker = asker
        self._wakers = wakers

    async def on_batches_applied(self, event: BatchesApplied) -> None:
        self._wakers.wake(event.store_uid)

    async def wait(self, caller: Caller, store_uid: UUID, goal: Goal, max_wait_s: float) -> Settled:
        """Returns as soon as the goal is reached, waiting is useless, or the time is up."""
        deadline = asyncio.get_running_loop().time() + max_wait_s
        async with self._wakers.listening(store_uid) as news:

            async def behind() -> int:
                news.clear()
                applied = await self._progress.applied(caller, store_uid, goal.session_store_id, goal.session_id)
                return max(0, goal.position - applied)

            left = await behind()
            if left == 0:
                return Settled(True, 0)
            reason = await self._hasten(caller, store_uid, goal)
            if reason in ("due", "unreachable"):
                left = await self._until(behind, news, deadline)
            else:
                left = await behind()
        return Settled(True, 0) if left == 0 else Settled(False, left, reason)

    async def _until(self, behind: Callable[[], Awaitable[int]], news: asyncio.Event, deadline: float) -> int:
        while True:
            left = await behind()
            remaining = deadline - asyncio.get_running_loop().time()
            if left == 0 or remaining <= 0:
                return left
            try:
                async with asyncio.timeout(min(LOOK_AGAIN_S, remaining)):
                    await news.wait()
            except TimeoutError:
                continue

    async def _hasten(self, caller: Caller, store_uid: UUID, goal: Goal) -> str:
        question = HastenLane(
            memory_store_uid=store_uid,
            actor_id=goal.actor_id,
            session_store_id=goal.session_store_id,
            session_id=goal.session_id,
            workspace_id=caller.workspace_id,
        )
        try:
            return (await self._asker.ask(question, LaneHastened, timeout_s=HASTEN_TIMEOUT_S)).reason
        except Retry:
            # The lane may be at work all the same.
            return "unreachable"
