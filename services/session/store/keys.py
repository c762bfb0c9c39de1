"""What an Idempotency-Key was used for."""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from libs.chassis.database import Database
from libs.chassis.idempotency import IdempotencyKey, check_same
from libs.chassis.unit_of_work import Tx


@dataclass(frozen=True, slots=True)
class Used:
    """`resource` is a session's uid, an item's id or an erasure's id; an append adds where its items begin."""

    resource: str
    first_position: int | None
    created_at: datetime


async def recall(reader: Database | Tx, store_uid: UUID, key: IdempotencyKey) -> Used | None:
    """The first use within 24 hours; raises `Aborted` when that had another body."""
    row = await reader.fetchrow(
        "select body_sha256, resource, first_position, created_at from idempotency_keys"
        " where store_uid = $1 and key_sha256 = $2",
        store_uid,
        key.key_sha256,
    )
    if row is None:
        return None
    check_same(row["body_sha256"], key)
    return Used(row["resource"], row["first_position"], row["created_at"])
