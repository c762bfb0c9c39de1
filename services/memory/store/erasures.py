"""An actor forgotten: all of it in a memory store, or what rests on one session store alone in every memory store.

The epoch is raised in the same transaction, so what was decided before is refused afterwards.
"""

import json
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Literal
from uuid import UUID

import asyncpg

from libs.chassis.auth import Caller
from libs.chassis.database import Database
from libs.chassis.idempotency import IdempotencyKey, claim
from libs.chassis.stores import WRITE
from libs.chassis.unit_of_work import Tx, UnitOfWork
from libs.contracts.events import BatchesApplied, DistillerActorErased, MemoryActorErased, SessionActorErased
from libs.contracts.ids import uuid7
from services.memory.indexing import Indexing
from services.memory.store.access import STORE, Forbidden, StoreGone, open_store, open_store_for_batch
from services.memory.store.epochs import raise_epoch
from services.memory.store.proofs import OF_VERSION
from services.memory.store.purge import BY_ACTOR_ID, BY_ACTOR_NO
from services.memory.store.records import ENTRY_COLUMNS, entry_from
from services.memory.store.repeats import ERASED_COLUMNS, strip_repeats
from services.memory.store.shadows import shadows_of
from services.memory.store.slots import Slots, Writer

ANNOUNCED_AT_ONCE = 100
ERASER = Writer("ERASURE", "erasure")


@dataclass(frozen=True, slots=True)
class Receipt:
    """What an erasure removed; `distiller` is None until that service has confirmed."""

    erasure_id: UUID
    actor_id: str
    memory: int
    distiller: int | None
    create_time: datetime

    @property
    def state(self) -> Literal["PENDING", "DONE"]:
        return "PENDING" if self.distiller is None else "DONE"


class Erasures:
    def __init__(self, database: Database, unit_of_work: UnitOfWork, indexing: Indexing) -> None:
        self._database = database
        self._unit_of_work = unit_of_work
        self._indexing = indexing

    async def erase(
        self, caller: Caller, store_uid: UUID, actor_id: str, key: IdempotencyKey | None
    ) -> tuple[Receipt, bool]:
        """Removes everything of the actor in a memory store. True for a repeat, which removes nothing."""
        erasure_id = uuid7()
        async with self._unit_of_work.begin() as tx:
            store = await open_store(tx, store_uid, actor_id, caller, WRITE, or_admin=True)
            if key and (earlier := await claim(tx, store_uid, key, str(erasure_id), partial(_stored, tx, store_uid))):
                return earlier, True
            slots = await Slots.hold(tx, store, actor_id, ERASER, self._indexing)
            epoch = await raise_epoch(tx, store_uid, actor_id)
            removed = await _drop_actor(tx, slots)
            await _say_erased(tx, store_uid, actor_id)
            for shadow_uid in await shadows_of(tx, store_uid):
                await self._erase_in_shadow(tx, shadow_uid, actor_id)
            row = await tx.fetchrow(
                "insert into erasures (store_uid, erasure_id, actor_id, epoch, removed, workspace_id)"
                " values ($1, $2, $3, $4, $5, $6)"
                " returning store_uid, erasure_id, actor_id, epoch, removed, distiller_removed, workspace_id,"
                " created_at",
                store_uid,
                erasure_id,
                actor_id,
                epoch,
                removed,
                store.workspace_id,
            )
            assert row is not None  # noqa: S101 - an insert returns its row
            tx.emit(_announcement(row))
        return _receipt(row), False

    async def _erase_in_shadow(self, tx: Tx, shadow_uid: UUID, actor_id: str) -> None:
        """What a replay has gathered goes too, and its epoch keeps the rest of it from coming back."""
        shadow = await open_store_for_batch(tx, shadow_uid, actor_id)
        if shadow is not None:
            slots = await Slots.hold(tx, shadow, actor_id, ERASER, self._indexing)
            await raise_epoch(tx, shadow_uid, actor_id)
            await _drop_actor(tx, slots)

    async def get(self, caller: Caller, store_uid: UUID, erasure_id: UUID) -> Receipt | None:
        row = await self._database.fetchrow(
            f"with s as ({STORE}) select s.level, e.* from s left join erasures e"
            " on e.store_uid = $1 and e.erasure_id = $4",
            store_uid,
            caller.principal_type,
            caller.principal,
            erasure_id,
        )
        if row is None:
            raise StoreGone
        if row["level"] < WRITE and not caller.admin:
            raise Forbidden(WRITE)
        return None if row["erasure_id"] is None else _receipt(row)

    async def raise_source_epoch(self, tx: Tx, event: SessionActorErased) -> tuple[int, int]:
        """The epoch of this erasure in a session store: that which the store gave it, or the next one where another
        erasure had that, as when the store was restored to an older state; and the actor's since. A repeat raises
        nothing, nor does an erasure that comes after a later one.

        In a transaction of its own: a batch holds the actor's turn while it waits for the epoch, so nobody may hold
        both the other way round.
        """
        known: list[asyncpg.Record] = await tx.fetch(
            "select erasure_id, epoch from erasures where store_uid = $1 and actor_id = $2",
            event.store_uid,
            event.actor_id,
        )
        epochs = {row["erasure_id"]: row["epoch"] for row in known}
        epoch = epochs.get(event.erasure_id, event.epoch)
        if event.erasure_id not in epochs and event.epoch in epochs.values():
            epoch = max(epochs.values()) + 1
        return epoch, await raise_epoch(tx, event.store_uid, event.actor_id, epoch)

    async def forget_source(self, tx: Tx, event: SessionActorErased, epoch: int) -> int:
        """How many versions went, also when asked again; `epoch` is the erasure's, and what came after it stays."""
        known: int | None = await tx.fetchval(
            "select removed from erasures where store_uid = $1 and erasure_id = $2", event.store_uid, event.erasure_id
        )
        if known is not None:
            return known
        stores = await tx.fetch(
            "select store_uid from version_evidence"
            " where session_store_uid = $1 and actor_id = $2 and source_epoch < $3"
            " union select store_uid from progress"
            " where session_store_uid = $1 and actor_id = $2 and source_epoch < $3 order by store_uid",
            event.store_uid,
            event.actor_id,
            epoch,
        )
        removed = 0
        for row in stores:
            store = await open_store_for_batch(tx, row["store_uid"], event.actor_id)
            if store is not None:
                slots = await Slots.hold(tx, store, event.actor_id, ERASER, self._indexing)
                removed += await _forget(tx, slots, event.store_uid, epoch)
        await tx.execute(
            "insert into erasures (store_uid, erasure_id, actor_id, epoch, removed, distiller_removed, workspace_id)"
            " values ($1, $2, $3, $4, $5, 0, $6) on conflict do nothing",
            event.store_uid,
            event.erasure_id,
            event.actor_id,
            epoch,
            removed,
            event.workspace_id,
        )
        return removed

    async def confirm(self, tx: Tx, event: DistillerActorErased) -> None:
        """The distiller is done. The epochs of a store that was restored to an older state go on after those that it
        gave before; those of a session store are not ours to raise."""
        await tx.execute(
            "update actor_epochs set epoch = $3 where store_uid = $1 and actor_id = $2 and epoch < $3"
            " and exists (select from memory_stores where store_uid = $1)",
            event.store_uid,
            event.actor_id,
            event.known_epoch,
        )
        await tx.execute(
            "update erasures set distiller_removed = $3"
            " where store_uid = $1 and erasure_id = $2 and distiller_removed is null",
            event.store_uid,
            event.erasure_id,
            event.removed,
        )

    async def announce_again(self, after_s: float) -> None:
        """Repeats what nobody has confirmed."""
        async with self._unit_of_work.begin() as tx:
            rows = await tx.fetch(
                "update erasures set announced_at = now() where (store_uid, erasure_id) in ("
                "select store_uid, erasure_id from erasures where distiller_removed is null"
                " and announced_at < now() - $1::interval order by announced_at limit $2)"
                " and announced_at < now() - $1::interval"
                " returning store_uid, erasure_id, actor_id, epoch, removed, workspace_id",
                timedelta(seconds=after_s),
                ANNOUNCED_AT_ONCE,
            )
            for row in rows:
                tx.emit(_announcement(row))


async def _stored(tx: Tx, store_uid: UUID, erasure_id: str) -> Receipt | None:
    row = await tx.fetchrow(
        "select * from erasures where store_uid = $1 and erasure_id = $2", store_uid, UUID(erasure_id)
    )
    return None if row is None else _receipt(row)


async def _drop_actor(tx: Tx, slots: Slots) -> int:
    store_uid, actor_id = slots.store_uid, slots.actor_id
    await tx.execute(
        "delete from idempotency_keys where store_uid = $1 and resource in"
        " (select entry_id from entries where store_uid = $1 and actor_id = $2)",
        store_uid,
        actor_id,
    )
    await tx.execute(
        "delete from outbox where subject = $1 and strpos(payload, $2) > 0",
        BatchesApplied.subject,
        f'"store_uid":"{store_uid}","actor_id":{json.dumps(actor_id, ensure_ascii=False)}',
    )
    for table in BY_ACTOR_NO:
        await tx.execute(f"delete from {table} where store_uid = $1 and actor_no = $2", store_uid, slots.actor_no)
    removed = 0
    for table in BY_ACTOR_ID:
        gone = await tx.execute(
            f"delete from {table} where store_uid = $1 and actor_id = $2",
            store_uid,
            actor_id,
        )
        removed += gone if table == "entry_versions" else 0
    await tx.execute("delete from actor_stats where store_uid = $1 and actor_id = $2", store_uid, actor_id)
    return removed


async def _forget(tx: Tx, slots: Slots, session_store_uid: UUID, epoch: int) -> int:
    """What rests alone on what one session store told before an epoch, also its words in what an agent wrote; all else
    stays."""
    store_uid, actor_id = slots.store_uid, slots.actor_id
    await tx.execute(
        "delete from progress where store_uid = $1 and actor_id = $2 and session_store_uid = $3 and source_epoch < $4",
        store_uid,
        actor_id,
        session_store_uid,
        epoch,
    )
    # A shadow is fed by one session store.
    await tx.execute(
        "delete from shadow_lines where store_uid = $1 and actor_id = $2 and source_epoch < $3",
        store_uid,
        actor_id,
        epoch,
    )
    touched = await tx.fetch(
        "with gone as (delete from version_evidence"
        " where store_uid = $1 and actor_id = $2 and session_store_uid = $3 and source_epoch < $4"
        " returning entry_uid)"
        f" select {ENTRY_COLUMNS} from entries e where e.store_uid = $1"
        " and e.entry_uid in (select entry_uid from gone)",
        store_uid,
        actor_id,
        session_store_uid,
        epoch,
    )
    entries = [entry_from(row) for row in touched]
    gone = await tx.fetch(
        "delete from entry_versions v where v.store_uid = $1 and v.actor_id = $2 and v.entry_uid = any($3::uuid[])"
        f" and v.is_derived and not exists (select from {OF_VERSION}) returning {ERASED_COLUMNS}",
        store_uid,
        actor_id,
        [entry.entry_uid for entry in entries],
    )
    repeated = await strip_repeats(tx, store_uid, actor_id, gone) if gone else 0
    changed = {row["entry_uid"] for row in gone}
    for entry in entries:
        if entry.entry_uid in changed:
            await slots.rebuild(entry)
    if changed:
        await tx.execute("delete from changes where store_uid = $1 and actor_id = $2", store_uid, actor_id)
        await _say_erased(tx, store_uid, actor_id)
    return len(gone) + repeated


async def _say_erased(tx: Tx, store_uid: UUID, actor_id: str) -> None:
    await tx.execute("insert into changes (store_uid, actor_id, change) values ($1, $2, 'erased')", store_uid, actor_id)


def _announcement(row: asyncpg.Record) -> MemoryActorErased:
    return MemoryActorErased(
        workspace_id=row["workspace_id"],
        store_uid=row["store_uid"],
        actor_id=row["actor_id"],
        epoch=row["epoch"],
        erasure_id=row["erasure_id"],
        removed=row["removed"],
    )


def _receipt(row: asyncpg.Record) -> Receipt:
    return Receipt(row["erasure_id"], row["actor_id"], row["removed"], row["distiller_removed"], row["created_at"])
