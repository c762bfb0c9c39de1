"""Items: an append is one statement, a pop sees what the pop before it left."""

from collections.abc import Sequence
from uuid import UUID

import asyncpg

from libs.chassis import idempotency
from libs.chassis.auth import Caller
from libs.chassis.database import Database
from libs.chassis.errors import Aborted
from libs.chassis.idempotency import IdempotencyKey, check_same
from libs.chassis.outbox import OutboxRow, Relay
from libs.chassis.stores import WRITE
from libs.chassis.unit_of_work import Tx, UnitOfWork
from libs.contracts.events import ItemsAppended
from libs.contracts.ids import uuid7
from services.session.domain.ids import decode_item_id, item_id
from services.session.domain.records import Appended, Popped
from services.session.domain.splitting import NewItem
from services.session.store.access import GRANTED, Access, no_session
from services.session.store.item_texts import hex_of, item_text, item_texts

# The session's row comes first: its lock puts appends in order and gives the positions. The key, the items and the
# event are fed by that update, so that without it nothing is written, and a key that was used undoes everything.
APPEND = f"""
with {GRANTED}, session as (
    update sessions t set
        last_position = t.last_position + cardinality($8::text[]),
        last_activity_time = greatest(t.last_activity_time, now())
    where t.store_uid = $1 and t.session_id = $4 and (select level from granted) >= 2
        and ($5::bigint is null or t.last_position = $5)
    returning t.session_uid, {hex_of("t.session_uid")} as hex, t.actor_id, t.last_position,
        t.last_activity_time as create_time,
        t.last_position - cardinality($8::text[]) as before
), keyed as (
    insert into idempotency_keys
        (store_uid, key_sha256, body_sha256, resource, first_position, item_count, created_at)
    select $1, $6, $7, session_uid::text, before + 1, cardinality($8::text[]), create_time
    from session where $6::bytea is not null
), written as (
    insert into session_items (store_uid, session_uid, position, data, role, occurred_at, create_time)
    select $1, s.session_uid, s.before + i.n, i.data, i.role, i.occurred_at, s.create_time
    from session s, unnest($8::text[], $9::text[], $10::text[]) with ordinality as i (data, role, occurred_at, n)
    returning position, data, occurred_at, create_time
), sent as (
    insert into outbox (message_id, subject, payload)
    select $11, $12, json_build_object(
        'event_id', $11::uuid, 'occurred_at', create_time, 'workspace_id', $13::bigint, 'store_uid', $1::uuid,
        'session_uid', session_uid, 'session_id', $4::text, 'actor_id', actor_id, 'last_position', last_position)::text
    from session returning payload
)
select (select level from granted) as level, (select {item_texts("(select hex from session)")} from written) as items,
    (select payload from sent)
"""

# A pop with a key leaves its item behind a mark, because a repeat must be able to answer with it.
POP = """
with newest as (
    select position from session_items
    where store_uid = $1 and session_uid = $2 and position > $3 and popped_at is null order by position desc limit 1
), popped as (
    {take} where store_uid = $1 and session_uid = $2 and position = (select position from newest)
    returning position, data, occurred_at, create_time
), touched as (
    update sessions set last_activity_time = greatest(last_activity_time, now())
    where store_uid = $1 and session_uid = $2 and exists (select from popped)
)
select position, {item} as item from popped
"""
ITEM = item_text(hex_of("$2::uuid"))
POP_AWAY = POP.format(take="delete from session_items", item=ITEM)
POP_MARKED = POP.format(take="update session_items set popped_at = now()", item=ITEM)
POPPED = f"select {ITEM} from session_items where store_uid = $1 and session_uid = $2 and position = $3"

CLEAR = f"""
with {GRANTED}, session as (
    update sessions set
        cleared_through = greatest(cleared_through, least($5::bigint, last_position)),
        last_activity_time = greatest(last_activity_time, now())
    where store_uid = $1 and session_id = $4 and (select level from granted) >= 2
    returning session_uid, cleared_through
), purge as (
    insert into item_purges (store_uid, session_uid, through) select $1, session_uid, cleared_through from session
    on conflict (store_uid, session_uid) do update set through = excluded.through
)
select (select level from granted) as level, s.session_uid from (select) as one left join session s on true
"""

# Of an append that wrote nothing: its session, what its key was used for, and the first answer to it.
EARLIER = f"""
select t.session_uid, t.last_position, k.body_sha256, k.resource, (
    select {item_texts(hex_of("t.session_uid"))} from (
        select k.first_position + n - 1 as position, data, occurred_at, k.created_at as create_time
        from unnest($4::text[], $5::text[]) with ordinality as i (data, occurred_at, n)
    ) items
) as items
from sessions t left join idempotency_keys k on k.store_uid = t.store_uid and k.key_sha256 = $3
where t.store_uid = $1 and t.session_id = $2
"""

FORGET = "delete from idempotency_keys where store_uid = $1 and key_sha256 = $2 and resource = $3"


class _KeyUsed(Exception):
    """The statement was undone because its Idempotency-Key is taken."""

    def __init__(self, store_uid: UUID) -> None:
        super().__init__()
        self.store_uid = store_uid


class Items:
    def __init__(self, access: Access, database: Database, unit_of_work: UnitOfWork, relay: Relay) -> None:
        self._access = access
        self._database = database
        self._unit_of_work = unit_of_work
        self._relay = relay

    async def append(
        self,
        caller: Caller,
        store_id: str,
        session_id: str,
        items: Sequence[NewItem],
        *,
        expected_position: int | None,
        key: IdempotencyKey | None,
    ) -> Appended:
        """All items behind the last one, in one order with every other append, or none of them."""
        message_id = uuid7()

        async def statement(store_uid: UUID) -> list[asyncpg.Record]:
            try:
                return await self._database.write(
                    APPEND,
                    store_uid,
                    caller.principal_type,
                    caller.principal,
                    session_id,
                    expected_position,
                    key and key.key_sha256,
                    key and key.body_sha256,
                    [item.data for item in items],
                    [item.role for item in items],
                    [item.occurred_at for item in items],
                    message_id,
                    ItemsAppended.subject,
                    caller.workspace_id,
                )
            except asyncpg.UniqueViolationError:
                raise _KeyUsed(store_uid) from None

        for _ in range(2):
            written = None
            try:
                store_uid, (written,) = await self._access.rows(caller, store_id, WRITE, statement)
            except _KeyUsed as used:
                store_uid = used.store_uid
            if written and written["items"]:
                self._relay.offer([OutboxRow(message_id, ItemsAppended.subject, written["payload"])])
                return Appended(written["items"])
            last_position, first = await self._earlier(store_uid, session_id, items, key)
            if first is not None:
                return first
            if written:
                raise Aborted(
                    f"expected_position is not the session's last position, which is {last_position}.",
                    reason="POSITION_MISMATCH",
                    metadata={"last_position": str(last_position)},
                )
        raise Aborted("Another request with this Idempotency-Key was undone meanwhile. Repeat it.")

    async def _earlier(
        self, store_uid: UUID, session_id: str, items: Sequence[NewItem], key: IdempotencyKey | None
    ) -> tuple[int, Appended | None]:
        """The session's last position, and the first answer when this is a repeat. Raises `NotFound`.

        A key that was used for a session before this one of the same id has ended with it, and is forgotten.
        """
        row = await self._database.fetchrow(
            EARLIER,
            store_uid,
            session_id,
            key and key.key_sha256,
            [item.data for item in items],
            [item.occurred_at for item in items],
        )
        if row is None:
            raise no_session(session_id)
        last_position: int = row["last_position"]
        if key is None or row["resource"] is None:
            return last_position, None
        if row["resource"] != str(row["session_uid"]):
            await self._database.write(FORGET, store_uid, key.key_sha256, row["resource"])
            return last_position, None
        check_same(row["body_sha256"], key)
        return last_position, Appended(row["items"], is_replayed=True)

    async def pop(self, caller: Caller, store_id: str, session_id: str, key: IdempotencyKey | None) -> Popped:
        """Takes the newest item away for good."""
        async with self._unit_of_work.begin() as tx:
            store_uid = await self._access.store(tx, caller, store_id, WRITE)
            session = await tx.fetchrow(
                "select session_uid, cleared_through from sessions where store_uid = $1 and session_id = $2 for update",
                store_uid,
                session_id,
            )
            if session is None:
                raise no_session(session_id)
            session_uid: UUID = session["session_uid"]

            async def popped(resource: str) -> Popped | None:
                return await self._popped(tx, store_uid, session_uid, resource)

            if key and (earlier := await idempotency.recall(tx, store_uid, key, popped)):
                return earlier
            row = await tx.fetchrow(POP_MARKED if key else POP_AWAY, store_uid, session_uid, session["cleared_through"])
            if key:
                resource = item_id(session_uid, row["position"]) if row else str(session_uid)
                await idempotency.claim(tx, store_uid, key, resource, popped)
        return Popped(row["item"] if row else None)

    async def _popped(self, tx: Tx, store_uid: UUID, session_uid: UUID, resource: str) -> Popped | None:
        """What the first request took, which the session has behind a mark; None if it took from a session before."""
        of_session, position = decode_item_id(resource) or (UUID(resource), None)
        if of_session != session_uid:
            return None
        if position is None:
            return Popped(None, is_replayed=True)
        item = await tx.fetchval(POPPED, store_uid, session_uid, position)
        if item is None:
            raise Aborted("What the first request with this Idempotency-Key removed is gone for good.")
        return Popped(item, is_replayed=True)

    async def clear(self, caller: Caller, store_id: str, session_id: str, *, through: int | None) -> None:
        """Hides every item up to that position, or all there are, at once; they are purged in the background."""

        async def statement(store_uid: UUID) -> list[asyncpg.Record]:
            return await self._database.write(
                CLEAR, store_uid, caller.principal_type, caller.principal, session_id, through
            )

        _, (row,) = await self._access.rows(caller, store_id, WRITE, statement)
        if row["session_uid"] is None:
            raise no_session(session_id)
