"""What the memory service does for a replay: a store that nobody sees, then the swap of each actor's entries."""

from collections.abc import Callable
from datetime import UTC, datetime
from uuid import UUID

from libs.chassis.unit_of_work import UnitOfWork
from libs.contracts.events import ReplayEnded
from libs.contracts.requests import (
    MemoriesSwapped,
    ShadowStore,
    StoreShadowed,
    SwapMemories,
    SwapWithdrawn,
    WithdrawSwap,
)
from services.memory.indexing import Indexing
from services.memory.store.access import PATIENCE_MS
from services.memory.store.shadows import drop_shadow, make_shadow
from services.memory.store.swapping import swap, withdraw


class Replays:
    def __init__(self, unit_of_work: UnitOfWork, indexing: Indexing, changed: Callable[[UUID], None]) -> None:
        """`changed` hears of a store after each swap into it."""
        self._unit_of_work = unit_of_work
        self._indexing = indexing
        self._changed = changed

    async def shadow(self, request: ShadowStore) -> StoreShadowed:
        async with self._unit_of_work.begin() as tx:
            made = await make_shadow(tx, request.store_uid, request.of_store_uid, request.workspace_id)
        return StoreShadowed(gone=not made)

    async def swap(self, request: SwapMemories) -> MemoriesSwapped:
        async with self._unit_of_work.begin() as tx:
            swapped = await swap(tx, self._indexing, request, datetime.now(UTC))
        self._changed(request.store_uid)
        return swapped

    async def withdraw(self, request: WithdrawSwap) -> SwapWithdrawn:
        async with self._unit_of_work.begin() as tx:
            return await withdraw(tx, request)

    async def on_replay_ended(self, event: ReplayEnded) -> None:
        async with self._unit_of_work.begin(patience_ms=PATIENCE_MS) as tx:
            await drop_shadow(tx, event.store_uid)
