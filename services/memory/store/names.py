"""Ids of entries: one is free again once its entry is retired, so an entry that comes back may find its own taken."""

from collections.abc import Sequence
from uuid import UUID

from libs.chassis.unit_of_work import Tx
from libs.contracts.ids import uuid7


async def free_ids(tx: Tx, store_uid: UUID, wanted: Sequence[str]) -> list[str]:
    """For entries that are about to be there, each an id: the one wanted, or a new one where another entry has that."""
    rows = await tx.fetch(
        "select entry_id from entries where store_uid = $1 and entry_id = any($2::text[]) and not retired",
        store_uid,
        wanted,
    )
    taken = {row["entry_id"] for row in rows}
    ids = []
    for entry_id in wanted:
        ids.append(str(uuid7()) if entry_id in taken else entry_id)
        taken.add(entry_id)
    return ids
