"""Erasing an actor: the epoch rises and every session's row goes in one transaction; the rest follows and is confirmed.

An erasure is pending while items of it are left here, or a service has not confirmed.
"""

import asyncio
from uuid import UUID

import asyncpg

from libs.chassis import idempotency
from libs.chassis.auth import Caller
from libs.chassis.database import Database
from libs.chassis.errors import NotFound, PermissionDenied
from libs.chassis.housekeeping import Pass, run_pass
from libs.chassis.idempotency import IdempotencyKey
from libs.chassis.parked import ParkedMessages
from libs.chassis.stores import WRITE, Stores
from libs.chassis.unit_of_work import Tx, UnitOfWork
from libs.contracts.events import ItemsAppended, SessionActorErased
from libs.contracts.ids import uuid7
from services.session.domain.records import Erasure
from services.session.store import purges
from services.session.store.sessions import PURGE_ITEMS

REPEAT_BATCH = 100

ERASURE = """
select e.erasure_id, e.sessions, e.items, e.distiller_removed, e.memory_removed, exists (
    select from item_purges p where p.store_uid = e.store_uid and p.erasure_id = e.erasure_id) as is_purging
from erasures e where e.store_uid = $1 and e.erasure_id = $2
"""

# What a repeat could still be answered with, and what is still to be told, name the sessions.
FORGET_KEYS = """
delete from idempotency_keys where store_uid = $1
    and (resource = any($2::text[]) or left(resource, 32) = any($3::text[]))
"""
FORGET_OUTBOX = """
delete from outbox where subject = $1 and strpos(payload, $2::uuid::text) > 0
    and payload::json ->> 'store_uid' = $2::uuid::text and payload::json ->> 'actor_id' = $3
"""


def _erasure(row: asyncpg.Record) -> Erasure:
    return Erasure(**dict(row))


class Erasures:
    def __init__(
        self, stores: Stores, database: Database, unit_of_work: UnitOfWork, parked: ParkedMessages, *, repeat_s: float
    ) -> None:
        self._stores = stores
        self._database = database
        self._unit_of_work = unit_of_work
        self._parked = parked
        self._repeat = Pass("repeat_erasures", lambda tx: _repeat(tx, repeat_s), REPEAT_BATCH)
        self.wake = asyncio.Event()

    async def erase(
        self, caller: Caller, store_id: str, actor_id: str, key: IdempotencyKey | None
    ) -> tuple[Erasure, bool]:
        """Begins an erasure, also of an actor of whom nothing is left; True when `key` was used before."""
        store_uid = await self._allowed(caller, store_id)
        erasure_id = uuid7()
        async with self._unit_of_work.begin() as tx:

            async def begun(earlier: str) -> Erasure:
                return await self._read(tx, store_uid, UUID(earlier))

            if key and (earlier := await idempotency.claim(tx, store_uid, key, str(erasure_id), begun)):
                return earlier, True
            epoch = await tx.fetchval(
                "insert into actor_epochs as e (store_uid, actor_id, epoch) values ($1, $2, 1)"
                " on conflict (store_uid, actor_id) do update set epoch = e.epoch + 1 returning epoch",
                store_uid,
                actor_id,
            )
            sessions, items = await self._remove(tx, store_uid, actor_id, erasure_id)
            await tx.execute(FORGET_OUTBOX, ItemsAppended.subject, store_uid, actor_id)
            await self._parked.forget_actor(tx, store_uid, actor_id)
            await tx.execute(
                "insert into erasures (store_uid, erasure_id, actor_id, epoch, workspace_id, sessions, items)"
                " values ($1, $2, $3, $4, $5, $6, $7)",
                store_uid,
                erasure_id,
                actor_id,
                epoch,
                caller.workspace_id,
                sessions,
                items,
            )
            tx.emit(_announcement(caller.workspace_id, store_uid, actor_id, epoch, erasure_id))
            erasure = await self._read(tx, store_uid, erasure_id)
        self.wake.set()
        return erasure, False

    async def _allowed(self, caller: Caller, store_id: str) -> UUID:
        """WRITE on the store, or an admin of its workspace."""
        store = await self._stores.find(caller, store_id)
        if store.level < WRITE and not caller.admin:
            raise PermissionDenied(f"You need WRITE on session store '{store_id}', or to be an admin.")
        return store.store_uid

    async def _remove(self, tx: Tx, store_uid: UUID, actor_id: str, erasure_id: UUID) -> tuple[int, int]:
        """Sessions and items that go. A fork under way holds its source, so a second look finds what it made."""
        sessions = items = 0
        while True:
            locked = await tx.fetch(
                "select session_uid from sessions where store_uid = $1 and actor_id = $2"
                " order by session_uid for update",
                store_uid,
                actor_id,
            )
            if not locked:
                return sessions, items
            uids = [row["session_uid"] for row in locked]
            items += await tx.fetchval(
                "select count(*) from session_items i join sessions t using (store_uid, session_uid)"
                " where i.store_uid = $1 and i.session_uid = any($2) and i.position > t.cleared_through"
                " and i.popped_at is null",
                store_uid,
                uids,
            )
            sessions += await tx.execute(
                "delete from sessions where store_uid = $1 and session_uid = any($2)", store_uid, uids
            )
            await tx.execute(PURGE_ITEMS, store_uid, uids, erasure_id)
            await tx.execute(FORGET_KEYS, store_uid, [str(uid) for uid in uids], [uid.hex for uid in uids])

    async def settle(self) -> None:
        """Purges what was erased and announces what is not confirmed."""
        await run_pass(self._unit_of_work, purges.ITEMS)
        await run_pass(self._unit_of_work, self._repeat)

    async def get(self, caller: Caller, store_id: str, erasure_id: UUID) -> Erasure:
        return await self._read(self._database, await self._allowed(caller, store_id), erasure_id)

    async def _read(self, reader: Database | Tx, store_uid: UUID, erasure_id: UUID) -> Erasure:
        row = await reader.fetchrow(ERASURE, store_uid, erasure_id)
        if row is None:
            raise NotFound(f"Erasure '{erasure_id}' does not exist in this store.")
        return _erasure(row)

    async def confirm_distiller(self, tx: Tx, store_uid: UUID, erasure_id: UUID, removed: int) -> None:
        """The first confirmation counts; one of another service's erasure finds no row."""
        await tx.execute(
            "update erasures set distiller_removed = coalesce(distiller_removed, $3)"
            " where store_uid = $1 and erasure_id = $2",
            store_uid,
            erasure_id,
            removed,
        )

    async def confirm_memory(self, tx: Tx, store_uid: UUID, erasure_id: UUID, removed: int) -> None:
        await tx.execute(
            "update erasures set memory_removed = coalesce(memory_removed, $3)"
            " where store_uid = $1 and erasure_id = $2",
            store_uid,
            erasure_id,
            removed,
        )

    async def raise_epoch(self, tx: Tx, store_uid: UUID, actor_id: str, to: int) -> None:
        """Of a database restored to an older state, which gives epochs again that others know: what is said from now on
        must not pass for what was erased."""
        await tx.execute(
            "update actor_epochs set epoch = $3 where store_uid = $1 and actor_id = $2 and epoch < $3",
            store_uid,
            actor_id,
            to,
        )


async def _repeat(tx: Tx, repeat_s: float) -> int:
    """Announces again what was not confirmed for that long."""
    rows = await tx.fetch(
        "update erasures set announced_at = now() where (store_uid, erasure_id) in ("
        "select store_uid, erasure_id from erasures where (distiller_removed is null or memory_removed is null)"
        " and announced_at < now() - make_interval(secs => $1) order by announced_at limit $2)"
        " returning workspace_id, store_uid, actor_id, epoch, erasure_id",
        repeat_s,
        REPEAT_BATCH,
    )
    for row in rows:
        tx.emit(_announcement(**dict(row)))
    return len(rows)


def _announcement(
    workspace_id: int, store_uid: UUID, actor_id: str, epoch: int, erasure_id: UUID
) -> SessionActorErased:
    return SessionActorErased(
        workspace_id=workspace_id, store_uid=store_uid, actor_id=actor_id, epoch=epoch, erasure_id=erasure_id
    )
