"""Writers of one actor wait here, without a connection: a busy actor must not use up the pool of everybody else."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from uuid import UUID

from libs.chassis.errors import Unavailable

WAIT_S = 10.0


class Turns:
    """One writer at a time per actor within this process; between processes the database decides."""

    def __init__(self) -> None:
        self._locks: dict[tuple[UUID, str], tuple[asyncio.Lock, int]] = {}

    @asynccontextmanager
    async def of(self, store_uid: UUID, actor_id: str) -> AsyncIterator[None]:
        """Raises `Unavailable` when the turn does not come in time."""
        key = (store_uid, actor_id)
        lock, waiting = self._locks.get(key, (asyncio.Lock(), 0))
        self._locks[key] = (lock, waiting + 1)
        try:
            try:
                async with asyncio.timeout(WAIT_S):
                    await lock.acquire()
            except TimeoutError:
                raise Unavailable("This actor has too many writers at once; nothing was written.") from None
            try:
                yield
            finally:
                lock.release()
        finally:
            lock, waiting = self._locks.pop(key)
            if waiting > 1:
                self._locks[key] = (lock, waiting - 1)
