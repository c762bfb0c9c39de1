"""Messages that a consumer gave up on, kept for 30 days with the reason. One call sends one round again.

A redrive keeps the `event_id`, so that the consumer's own key still holds, and takes a new message id, so that the
broker does not drop it as a repeat. What a service parked of its own sending, it may do anew instead. Payloads are
never shown; erasure reaches them.
"""

import json
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Any
from uuid import UUID

from pydantic import BaseModel

from libs.chassis.database import Database
from libs.chassis.errors import NotFound
from libs.chassis.outbox import OutboxRow, insert
from libs.chassis.texts import storable
from libs.chassis.unit_of_work import Tx
from libs.contracts.ids import uuid7

PARK = (
    "insert into parked_messages (parked_id, subject, payload, reason, attempts, workspace_id, store_uid, actor_id)"
    " values ($1, $2, $3, $4, $5, $6, $7, $8)"
)


# Does anew what a payload asks for, in the transaction that unparks it.
Redrive = Callable[[Tx, str], Awaitable[None]]


class ParkedMessage(BaseModel):
    parked_id: UUID
    subject: str
    reason: str
    attempts: int
    workspace_id: int | None = None
    store_uid: UUID | None = None
    actor_id: str | None = None
    create_time: datetime


class ParkedMessages:
    def __init__(self, database: Database) -> None:
        self._database = database
        self._redrives: dict[str, Redrive] = {}

    def redrive_with(self, subject: str, redrive: Redrive) -> None:
        """How messages of a subject are redriven; what it raises leaves the message parked."""
        self._redrives[subject] = redrive

    async def park(self, subject: str, payload: bytes, reason: str, attempts: int) -> None:
        await self._database.write(PARK, *_row(subject, payload, reason, attempts))

    async def park_in(self, tx: Tx, subject: str, payload: bytes, reason: str, attempts: int) -> None:
        """Parks in the caller's transaction."""
        await tx.execute(PARK, *_row(subject, payload, reason, attempts))

    async def forget_actor(self, tx: Tx, store_uid: UUID, actor_id: str) -> int:
        """Erasure reaches what is parked, also what only names the store as its source; returns how many."""
        return await tx.execute(
            "delete from parked_messages"
            " where actor_id = $2 and (store_uid = $1 or position($3::bytea in payload) > 0)",
            store_uid,
            actor_id,
            str(store_uid).encode(),
        )

    async def page(self, workspace_id: int, after: UUID | None, limit: int) -> list[ParkedMessage]:
        """Oldest first; those of the caller's workspace and those whose workspace cannot be read."""
        rows = await self._database.fetch(
            "select parked_id, subject, reason, attempts, workspace_id, store_uid, actor_id, created_at as create_time"
            " from parked_messages where (workspace_id = $1 or workspace_id is null)"
            " and ($2::uuid is null or parked_id > $2) order by parked_id limit $3",
            workspace_id,
            after,
            limit,
        )
        return [ParkedMessage(**row) for row in rows]

    async def redrive(self, workspace_id: int, parked_id: UUID) -> None:
        """Moves the message to the outbox, or does what is done for its subject, in one transaction."""
        async with self._database.transaction() as connection:
            row = await connection.fetchrow(
                "delete from parked_messages where parked_id = $1 and (workspace_id = $2 or workspace_id is null)"
                " returning subject, payload",
                parked_id,
                workspace_id,
            )
            if row is None:
                raise _absent(parked_id)
            payload = bytes(row["payload"]).decode()
            redrive = self._redrives.get(row["subject"])
            tx = Tx(connection)
            if redrive is None:
                tx.emitted.append(OutboxRow(uuid7(), row["subject"], payload))
            else:
                await redrive(tx, payload)
            await insert(connection, tx.emitted)

    async def drop(self, workspace_id: int, parked_id: UUID) -> None:
        """Deletes the message for good. One that names no workspace may be anybody's, and leaves by its age only."""
        dropped = await self._database.write(
            "delete from parked_messages where parked_id = $1 and workspace_id = $2 returning parked_id",
            parked_id,
            workspace_id,
        )
        if not dropped:
            raise _absent(parked_id)

    async def count(self) -> int:
        return int(await self._database.fetchval("select count(*) from parked_messages"))


def _absent(parked_id: UUID) -> NotFound:
    return NotFound(f"Parked message '{parked_id}' does not exist.")


def _row(subject: str, payload: bytes, reason: str, attempts: int) -> tuple[Any, ...]:
    return (uuid7(), subject, payload, reason[:500], attempts, *_facts(payload))


def _facts(payload: bytes) -> tuple[int | None, UUID | None, str | None]:
    """Workspace, store and actor as far as the payload can be read at all."""
    try:
        body: Any = json.loads(payload)
        workspace, store, actor = body.get("workspace_id"), body.get("store_uid"), body.get("actor_id")
        return (
            workspace if isinstance(workspace, int) and abs(workspace) < 2**63 else None,
            UUID(store) if isinstance(store, str) else None,
            storable(actor) if isinstance(actor, str) else None,
        )
    except (ValueError, AttributeError):
        return None, None, None
