"""Sessions: made under a store that stays, deleted with all their descendants, listed by seek."""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import asyncpg

from libs.chassis import idempotency
from libs.chassis.auth import Caller
from libs.chassis.database import Database
from libs.chassis.errors import AlreadyExists, FailedPrecondition, InvalidParameter, NotFound
from libs.chassis.idempotency import IdempotencyKey
from libs.chassis.stores import READ, WRITE
from libs.chassis.unit_of_work import Tx, UnitOfWork
from libs.contracts.events import SessionDeleted
from libs.contracts.ids import uuid7
from services.session.domain.ids import decode_item_id
from services.session.domain.queries import Order, OrderField, Term
from services.session.domain.records import Session
from services.session.store.access import GRANTED, Access, no_session
from services.session.store.activity import active_in

COLUMNS = (
    "t.session_uid, t.session_id, t.actor_id, t.parent_session_id, t.root_session_id, t.forked_from_session_id,"
    " t.metadata, t.create_time, t.update_time, t.last_activity_time, t.last_position"
)

INSERT = f"""
insert into sessions as t (store_uid, session_uid, session_id, actor_id, parent_session_uid, parent_session_id,
    root_session_id, metadata, create_time, update_time, last_activity_time)
values ($1, $2, $3, $4, $5, $6, $7, $8, now(), now(), now())
on conflict (store_uid, session_id) do nothing returning {COLUMNS}
"""

ONE = f"""
with {GRANTED}
select (select level from granted) as level, t.* from (select) as one left join (
    select {COLUMNS} from sessions t
    where t.store_uid = $1 and t.session_id = $4 and (select level from granted) >= 1
) t on true
"""

UPDATE = f"""
with {GRANTED}, changed as (
    update sessions t set metadata = $5, update_time = greatest(t.update_time, now())
    where t.store_uid = $1 and t.session_id = $4 and (select level from granted) >= 2 returning {COLUMNS}
)
select (select level from granted) as level, t.* from (select) as one left join changed t on true
"""

PAGE = f"""
with {GRANTED}
select (select level from granted) as level, t.* from (select) as one left join (
    select {COLUMNS} from sessions t
    where t.store_uid = $1 and (select level from granted) >= 1 {{where}}
    order by {{order}} limit $4
) t on true
"""

# By which columns a field orders, and what they are for a time.
ORDERS: Mapping[OrderField, Mapping[str, str]] = {
    "create_time": {"create_time": "{time}"},
    "last_activity_time": {"active_in": active_in("{time}"), "last_activity_time": "{time}"},
}

FORK = f"""
with copied as (
    insert into session_items (store_uid, session_uid, position, data, role, occurred_at, create_time)
    select $1, $2, row_number() over (order by position), data, role, occurred_at, create_time from session_items
    where store_uid = $1 and session_uid = $3 and position > $4 and position <= $5 and popped_at is null
    returning create_time
), counted as (
    select count(*) as items, max(create_time) as newest from copied
)
insert into sessions as t (store_uid, session_uid, session_id, actor_id, root_session_id, forked_from_session_id,
    metadata, create_time, update_time, last_activity_time, last_position, copied_through)
select $1, $2, $6, $7, $6, $8, $9, now(), now(), greatest(now(), newest), items, items from counted
on conflict (store_uid, session_id) do nothing returning {COLUMNS}
"""

# Everything of a session that is gone, in the background.
PURGE_ITEMS = """
insert into item_purges (store_uid, session_uid, through, erasure_id)
select $1, unnest($2::uuid[]), 9223372036854775807, $3
on conflict (store_uid, session_uid) do update set through = excluded.through, erasure_id = excluded.erasure_id
"""


def _session(row: asyncpg.Record) -> Session:
    fields = {name: value for name, value in row.items() if name != "level"}
    return Session(**fields | {"metadata": json.loads(row["metadata"])})


class Sessions:
    def __init__(self, access: Access, database: Database, unit_of_work: UnitOfWork) -> None:
        self._access = access
        self._database = database
        self._unit_of_work = unit_of_work

    async def create(
        self,
        caller: Caller,
        store_id: str,
        session_id: str,
        *,
        actor_id: str,
        parent_session_id: str | None,
        metadata: Mapping[str, str],
        key: IdempotencyKey | None,
    ) -> tuple[Session, bool]:
        """The new session, or the first answer's and True when `key` was used before."""
        session_uid = uuid7()
        async with self._unit_of_work.begin() as tx:
            store_uid = await self._access.store(tx, caller, store_id, WRITE, hold=True)
            if key and (earlier := await _made_before(tx, store_uid, key, session_uid)):
                return earlier, True
            parent = await self._parent(tx, store_uid, parent_session_id, actor_id)
            row = await tx.fetchrow(
                INSERT,
                store_uid,
                session_uid,
                session_id,
                actor_id,
                parent["session_uid"] if parent else None,
                parent_session_id,
                parent["root_session_id"] if parent else session_id,
                json.dumps(dict(metadata)),
            )
            if row is None:
                raise AlreadyExists(f"Session '{session_id}' already exists in this store.")
        return _session(row), False

    async def fork(
        self,
        caller: Caller,
        store_id: str,
        session_id: str,
        *,
        source_session_id: str,
        up_to_item_id: str | None,
        actor_id: str,
        metadata: Mapping[str, str],
        key: IdempotencyKey | None,
    ) -> tuple[Session, bool]:
        """A new session with a copy of the source's items; the first answer's and True when `key` was used before."""
        session_uid = uuid7()
        async with self._unit_of_work.begin() as tx:
            store_uid = await self._access.store(tx, caller, store_id, WRITE, hold=True)
            if key and (earlier := await _made_before(tx, store_uid, key, session_uid)):
                return earlier, True
            # Nothing is appended, popped, cleared or erased while it is copied.
            source = await tx.fetchrow(
                "select session_uid, cleared_through, last_position from sessions"
                " where store_uid = $1 and session_id = $2 for share",
                store_uid,
                source_session_id,
            )
            if source is None:
                raise NotFound(f"Source session '{source_session_id[:80]}' does not exist in this store.")
            through = source["last_position"]
            if up_to_item_id is not None:
                through = await self._position(tx, store_uid, source, up_to_item_id)
            row = await tx.fetchrow(
                FORK,
                store_uid,
                session_uid,
                source["session_uid"],
                source["cleared_through"],
                through,
                session_id,
                actor_id,
                source_session_id,
                json.dumps(dict(metadata)),
            )
            if row is None:
                raise AlreadyExists(f"Session '{session_id}' already exists in this store.")
        return _session(row), False

    async def _position(self, tx: Tx, store_uid: UUID, source: asyncpg.Record, item: str) -> int:
        """Where an item of the source is, as long as it can be seen."""
        session_uid, position = decode_item_id(item) or (None, 0)
        is_there = session_uid == source["session_uid"] and await tx.fetchval(
            "select true from session_items where store_uid = $1 and session_uid = $2 and position = $3"
            " and position > $4 and popped_at is null",
            store_uid,
            session_uid,
            position,
            source["cleared_through"],
        )
        if not is_there:
            raise NotFound(f"Item '{item[:80]}' does not exist in the source session.")
        return position

    async def _parent(self, tx: Tx, store_uid: UUID, session_id: str | None, actor_id: str) -> asyncpg.Record | None:
        """The parent, held so that it is not deleted before its child is there to be found."""
        if session_id is None:
            return None
        parent = await tx.fetchrow(
            "select session_uid, root_session_id, actor_id from sessions"
            " where store_uid = $1 and session_id = $2 for key share",
            store_uid,
            session_id,
        )
        if parent is None:
            raise NotFound(f"Parent session '{session_id[:80]}' does not exist in this store.")
        if parent["actor_id"] != actor_id:
            raise InvalidParameter("actor_id must be that of the parent session.")
        return parent

    async def get(self, caller: Caller, store_id: str, session_id: str) -> Session:
        async def statement(store_uid: UUID) -> list[asyncpg.Record]:
            return await self._database.fetch(ONE, store_uid, caller.principal_type, caller.principal, session_id)

        return await self._one(caller, store_id, session_id, READ, statement)

    async def update(self, caller: Caller, store_id: str, session_id: str, metadata: Mapping[str, str]) -> Session:
        """Replaces the whole metadata."""
        text = json.dumps(dict(metadata))

        async def statement(store_uid: UUID) -> list[asyncpg.Record]:
            return await self._database.write(
                UPDATE, store_uid, caller.principal_type, caller.principal, session_id, text
            )

        return await self._one(caller, store_id, session_id, WRITE, statement)

    async def _one(self, caller: Caller, store_id: str, session_id: str, level: Any, statement: Any) -> Session:
        _, (row,) = await self._access.rows(caller, store_id, level, statement)
        if row["session_uid"] is None:
            raise no_session(session_id)
        return _session(row)

    async def page(
        self,
        caller: Caller,
        store_id: str,
        *,
        terms: Sequence[Term],
        order: Order,
        after: tuple[datetime, UUID] | None,
        limit: int,
    ) -> list[Session]:
        """The sessions that match every term, beyond `after` in the asked order."""
        arguments: list[Any] = []

        def place(value: Any) -> str:
            arguments.append(value)
            return f"${len(arguments) + 4}"

        wheres = [
            f"t.{term.column} = {place(term.value)}"
            if term.column
            else f"t.metadata ->> {place(term.key)}::text = {place(term.value)}"
            for term in terms
        ]
        columns = [f"t.{column}" for column in (*ORDERS[order.field], "session_uid")]
        sign, direction = (">", "asc") if order.is_ascending else ("<", "desc")
        if after:
            time, uid = place(after[0]), place(after[1])
            values = [value.format(time=time) for value in ORDERS[order.field].values()]
            wheres.append(f"({', '.join(columns)}) {sign} ({', '.join([*values, uid])})")
        sql = PAGE.format(
            where="".join(f" and {where}" for where in wheres),
            order=", ".join(f"{column} {direction}" for column in columns),
        )

        async def statement(store_uid: UUID) -> list[asyncpg.Record]:
            return await self._database.fetch(
                sql, store_uid, caller.principal_type, caller.principal, limit, *arguments
            )

        _, rows = await self._access.rows(caller, store_id, READ, statement)
        return [_session(row) for row in rows if row["session_uid"] is not None]

    async def delete(self, caller: Caller, store_id: str, session_id: str, *, cascade: bool) -> None:
        """The session and its descendants are gone at once; their items are purged in the background."""
        async with self._unit_of_work.begin() as tx:
            store_uid = await self._access.store(tx, caller, store_id, WRITE)
            level = await tx.fetch(
                "select session_uid from sessions where store_uid = $1 and session_id = $2 for update",
                store_uid,
                session_id,
            )
            if not level:
                raise no_session(session_id)
            doomed: list[UUID] = []
            # A child is made under its parent's lock, so once a generation is locked the next one is complete.
            while level:
                doomed.extend(row["session_uid"] for row in level)
                level = await tx.fetch(
                    "select session_uid from sessions where store_uid = $1 and parent_session_uid = any($2) for update",
                    store_uid,
                    [row["session_uid"] for row in level],
                )
                if level and not cascade:
                    raise FailedPrecondition(
                        f"Session '{session_id[:80]}' has descendants; send force=true to delete them too."
                    )
            await remove(tx, caller.workspace_id, store_uid, doomed)


async def _made_before(tx: Tx, store_uid: UUID, key: IdempotencyKey, session_uid: UUID) -> Session | None:
    """The session that an earlier request with this key made; None when this one makes `session_uid`."""

    async def made(uid: str) -> Session | None:
        row = await tx.fetchrow(
            f"select {COLUMNS} from sessions t where t.store_uid = $1 and t.session_uid = $2", store_uid, UUID(uid)
        )
        return None if row is None else _session(row)

    return await idempotency.claim(tx, store_uid, key, str(session_uid), made)


async def remove(tx: Tx, workspace_id: int, store_uid: UUID, session_uids: Sequence[UUID]) -> None:
    """Deletes the sessions' rows, hands their items to the purge and says so to the world."""
    rows = await tx.fetch(
        "delete from sessions where store_uid = $1 and session_uid = any($2) returning session_uid, actor_id",
        store_uid,
        session_uids,
    )
    await tx.execute(PURGE_ITEMS, store_uid, [row["session_uid"] for row in rows], None)
    for row in rows:
        tx.emit(
            SessionDeleted(
                workspace_id=workspace_id,
                store_uid=store_uid,
                session_uid=row["session_uid"],
                actor_id=row["actor_id"],
            )
        )
