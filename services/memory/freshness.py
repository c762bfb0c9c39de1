"""Waiting until what was said is searchable.

Every replica hears that a batch was applied and wakes its waiters; because that may be missed, each looks again a few
times a second. On a miss the distiller is asked once to hurry, and says whether waiting makes sense.

A session's name can be used again after a deletion, and what was distilled of the session before is not of this one:
only the session service knows who bears the name.
"""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Protocol
from uuid import UUID

from libs.chassis.auth import Caller
from libs.chassis.errors import Retry
from libs.contracts.events import BatchesApplied
from libs.contracts.requests import (
    AuthorizeSessionStore,
    FindSession,
    FoundSession,
    HastenLane,
    LaneHastened,
    StoreAuthorization,
)
from services.memory.store.progress import Progress, Reached

LOOK_AGAIN_S = 0.25
HASTEN_TIMEOUT_S = 2.0
FIND_TIMEOUT_S = 0.5
AT_ONCE_S = 0.1


class Asker(Protocol):
    async def ask(self, request: Any, answer: type[Any], *, timeout_s: float = ...) -> Any: ...


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
        bears_name: dict[UUID, bool] = {}
        async with self._wakers.listening(store_uid) as news:

            async def behind() -> int:
                news.clear()
                reached = await self._progress.reached(caller, store_uid, goal.session_store_id, goal.session_id)
                if reached is None:
                    return goal.position
                if reached.position < goal.position:
                    return goal.position - reached.position
                if reached.session_uid not in bears_name:
                    bears_name[reached.session_uid] = await self._bears_name(caller, reached, goal, deadline)
                return 0 if bears_name[reached.session_uid] else goal.position

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

    async def _bears_name(self, caller: Caller, reached: Reached, goal: Goal, deadline: float) -> bool:
        """Whether no other session has the name by now, as is assumed while the session service does not answer.

        That is waited for until the deadline; after it, as long as an answer takes that comes at once.
        """
        question = FindSession(store_uid=reached.session_store_uid, session_id=goal.session_id)
        try:
            async with asyncio.timeout_at(max(deadline, asyncio.get_running_loop().time() + AT_ONCE_S)):
                found: FoundSession = await self._asker.ask(question, FoundSession, timeout_s=FIND_TIMEOUT_S)
                if found.session_uid is None:
                    return await self._is_there(caller, reached.session_store_uid)
        except (Retry, TimeoutError):
            return True
        return found.session_uid == reached.session_uid

    async def _is_there(self, caller: Caller, session_store_uid: UUID) -> bool:
        """A session store that is gone may have left its name to another, with sessions of the same names."""
        question = AuthorizeSessionStore(
            workspace_id=caller.workspace_id,
            principal_type=caller.principal_type,
            principal=caller.principal,
            permission="READ",
            store_uid=session_store_uid,
        )
        found: StoreAuthorization = await self._asker.ask(question, StoreAuthorization, timeout_s=FIND_TIMEOUT_S)
        return found.store_uid is not None

    async def _hasten(self, caller: Caller, store_uid: UUID, goal: Goal) -> str:
        question = HastenLane(
            memory_store_uid=store_uid,
            actor_id=goal.actor_id,
            session_store_id=goal.session_store_id,
            session_id=goal.session_id,
            workspace_id=caller.workspace_id,
        )
        try:
            hastened: LaneHastened = await self._asker.ask(question, LaneHastened, timeout_s=HASTEN_TIMEOUT_S)
        except Retry:
            # The lane may be at work all the same.
            return "unreachable"
        return hastened.reason
