"""Entries as callers read and write them."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Any
from uuid import UUID

import asyncpg

from libs.chassis import idempotency
from libs.chassis.auth import Caller
from libs.chassis.database import Database
from libs.chassis.errors import Aborted, AlreadyExists, FailedPrecondition, NotFound
from libs.chassis.idempotency import IdempotencyKey
from libs.chassis.stores import WRITE
from libs.chassis.texts import check_bytes
from libs.chassis.unit_of_work import Tx, UnitOfWork
from libs.contracts.ids import uuid7
from libs.contracts.limits import Limits
from services.memory.domain import AGENT, Addition, Entry, Value, appended, next_moment
from services.memory.indexing import Indexing
from services.memory.store.access import STORE, open_store, permitted
from services.memory.store.filters import Filter
from services.memory.store.records import ENTRY_COLUMNS, EVIDENCE, Found, entry_from, found_from
from services.memory.store.slots import Slots, Writer
from services.memory.turns import Turns


def missing(entry_id: str) -> NotFound:
    return NotFound(f"Memory entry '{entry_id[:80]}' does not exist.")


class Entries:
    def __init__(
        self,
        database: Database,
        unit_of_work: UnitOfWork,
        indexing: Indexing,
        limits: Limits,
        turns: Turns,
        changed: Callable[[UUID], None],
    ) -> None:
        """`changed` hears of a store after each write to it."""
        self._database = database
        self._unit_of_work = unit_of_work
        self._indexing = indexing
        self._limits = limits
        self._turns = turns
        self._changed = changed

    async def get(self, caller: Caller, store_uid: UUID, entry_id: str) -> Found:
        rows = await self._database.fetch(
            f"with s as ({STORE}) select s.level, e.* from s left join lateral"
            f" (select {ENTRY_COLUMNS}, {EVIDENCE} from entries e"
            " where e.store_uid = $1 and e.entry_id = $4 and not e.retired) e on s.level >= 1",
            store_uid,
            caller.principal_type,
            caller.principal,
            entry_id,
        )
        row = permitted(rows)[0]
        if row["entry_uid"] is None:
            raise missing(entry_id)
        return found_from(row)

    async def page(
        self,
        caller: Caller,
        store_uid: UUID,
        actor_id: str,
        wanted: Filter,
        after: tuple[str, UUID] | None,
        limit: int,
    ) -> list[Found]:
        """An actor's entries by path."""
        arguments: list[Any] = [store_uid, caller.principal_type, caller.principal, actor_id, limit]
        conditions = wanted.sql(arguments)
        if after is not None:
            arguments.extend(after)
            conditions += f" and (e.path, e.entry_uid) > (${len(arguments) - 1}, ${len(arguments)})"
        rows = await self._database.fetch(
            f"with s as ({STORE}) select s.level, e.* from s left join lateral"
            f" (select {ENTRY_COLUMNS}, {EVIDENCE} from entries e"
            f" where e.store_uid = $1 and e.actor_id = $4 and not e.retired{conditions}"
            " order by e.path, e.entry_uid limit $5) e on s.level >= 1 order by e.path, e.entry_uid",
            *arguments,
        )
        return [found_from(row) for row in permitted(rows) if row["entry_uid"] is not None]

    async def create(
        self,
        caller: Caller,
        store_uid: UUID,
        *,
        actor_id: str,
        path: str,
        session_id: str | None,
        content: str | None,
        description: str | None,
        source_type: str,
        entry_id: str | None,
        key: IdempotencyKey | None,
        now: datetime,
    ) -> tuple[Entry, bool]:
        """The new entry, or the one that an earlier request made with this key, and True."""

        async def write(tx: Tx, slots: Slots) -> Entry:
            slot = await slots.at(path, session_id)
            if slot is not None and not slot.value.retired:
                raise AlreadyExists(f"Actor and session have an entry at '{path[:200]}' already.")
            value = Value(content, description, "state", "assistant")
            return await self._write(slots, slot, path, session_id, value, now, entry_id=name, source_type=source_type)

        name = entry_id or str(uuid7())
        try:
            return await self._once(caller, store_uid, actor_id, key, name, write)
        except asyncpg.UniqueViolationError:
            raise AlreadyExists(f"Memory entry '{name[:80]}' already exists in this store.") from None

    async def put(
        self,
        caller: Caller,
        store_uid: UUID,
        *,
        actor_id: str,
        path: str,
        session_id: str | None,
        content: str,
        description: str | None,
        append: bool,
        expected_version: int | None,
        key: IdempotencyKey | None,
        now: datetime,
    ) -> tuple[Entry, bool]:
        """Writes what is at a path, whether or not something is there; an omitted description stays."""

        async def write(tx: Tx, slots: Slots) -> Entry:
            slot = await slots.at(path, session_id)
            live = slot is not None and not slot.value.retired
            version = slot.version if slot is not None and live else 0
            if expected_version is not None and expected_version != version:
                raise Aborted(
                    f"The entry at '{path[:200]}' is at version {version}, not {expected_version}. Read it again.",
                    reason="VERSION_MISMATCH",
                    metadata={"version": str(version)},
                )
            if slot is None or not live:
                value = Value(content, description, "state", "assistant")
                return await self._write(slots, slot, path, session_id, value, now, entry_id=name, source_type=AGENT)
            value = replace(
                slot.value,
                content=appended(slot.value.content, content) if append else content,
                description=slot.value.description if description is None else description,
                said_by="assistant",
            )
            return await self._write(
                slots, slot, path, session_id, value, now, carries=slot.version if append else None
            )

        name = str(uuid7())
        return await self._once(caller, store_uid, actor_id, key, name, write)

    async def update(
        self,
        caller: Caller,
        store_uid: UUID,
        entry_id: str,
        mask: set[str],
        *,
        content: str | None,
        description: str | None,
        now: datetime,
    ) -> Entry:
        async def write(tx: Tx, slots: Slots) -> Entry:
            slot = await _live(slots, entry_id)
            value = replace(
                slot.value,
                content=content if "content" in mask else slot.value.content,
                description=description if "description" in mask else slot.value.description,
                said_by="assistant",
            )
            return await self._write(slots, slot, slot.path, slot.session_id, value, now)

        entry, _ = await self._change(caller, store_uid, entry_id, write)
        return entry

    async def delete(self, caller: Caller, store_uid: UUID, entry_id: str, *, now: datetime) -> None:
        """Retires the entry: no read or search sees it; its history stays until it is erased."""

        async def write(tx: Tx, slots: Slots) -> Entry:
            slot = await _live(slots, entry_id)
            value = replace(slot.value, content=None, description=None, said_by="assistant", retired=True)
            return await self._write(slots, slot, slot.path, slot.session_id, value, now)

        await self._change(caller, store_uid, entry_id, write)

    async def restore(
        self, caller: Caller, store_uid: UUID, entry_id: str, version: int, *, key: IdempotencyKey | None, now: datetime
    ) -> tuple[Entry, bool]:
        """A new version that says what an old one said; a deleted entry comes back by it. True for a repeat."""

        async def write(tx: Tx, slots: Slots) -> Entry:
            slot = await slots.named(entry_id)
            if slot is None:
                raise missing(entry_id)
            old = await slots.version(slot, version)
            if old is None:
                raise NotFound(f"Memory entry '{entry_id[:80]}' has no version {version}.")
            if old.value.retired:
                raise FailedPrecondition(f"Version {version} marks the end of the entry and cannot be restored.")
            return await self._write(slots, slot, slot.path, slot.session_id, old.value, now, carries=version)

        try:
            return await self._change(caller, store_uid, entry_id, write, key)
        except asyncpg.UniqueViolationError:
            raise AlreadyExists(f"Another entry is named '{entry_id[:80]}' by now.") from None

    async def _write(
        self,
        slots: Slots,
        slot: Entry | None,
        path: str,
        session_id: str | None,
        value: Value,
        now: datetime,
        *,
        entry_id: str | None = None,
        source_type: str | None = None,
        carries: int | None = None,
    ) -> Entry:
        check_bytes("content", value.content, self._limits.content_bytes)
        at = next_moment(now, slot)
        if slot is None:
            return await slots.create(
                entry_id, path, session_id, value, at, recorded_at=at, source_type=source_type or AGENT
            )
        if replace(slot.value, said_by=value.said_by) == value:
            return slot
        same = slot.value.says_the_same(value)
        return await slots.add(
            slot,
            Addition(value, at, is_current=True),
            recorded_at=at,
            holds_since=slot.valid_from if same else at,
            entry_id=entry_id,
            source_type=source_type,
            carries=slot.version if same else carries,
        )

    async def _once(
        self,
        caller: Caller,
        store_uid: UUID,
        actor_id: str | None,
        key: IdempotencyKey | None,
        resource: str,
        write: Callable[[Tx, Slots], Awaitable[Entry]],
    ) -> tuple[Entry, bool]:
        async with self._turns.of(store_uid, actor_id or ""), self._unit_of_work.begin() as tx:
            store = await open_store(tx, store_uid, actor_id or "", caller, WRITE)
            if actor_id is None:
                raise missing(resource)
            answered = partial(_answered, tx, store_uid)
            if key and (earlier := await idempotency.claim(tx, store_uid, key, resource, answered)):
                return earlier, True
            slots = await Slots.hold(tx, store, actor_id, _writer(caller), self._indexing)
            entry = await write(tx, slots)
            if key is not None and entry.entry_id != resource:
                await tx.execute(
                    "update idempotency_keys set resource = $3 where store_uid = $1 and key_sha256 = $2",
                    store_uid,
                    key.key_sha256,
                    entry.entry_id,
                )
        self._changed(store_uid)
        return entry, False

    async def _change(
        self,
        caller: Caller,
        store_uid: UUID,
        entry_id: str,
        write: Callable[[Tx, Slots], Awaitable[Entry]],
        key: IdempotencyKey | None = None,
    ) -> tuple[Entry, bool]:
        actor_id = await self._database.fetchval(
            "select actor_id from entries where store_uid = $1 and entry_id = $2"
            " order by retired, update_time desc limit 1",
            store_uid,
            entry_id,
        )
        return await self._once(caller, store_uid, actor_id, key, entry_id, write)


async def _live(slots: Slots, entry_id: str) -> Entry:
    slot = await slots.named(entry_id)
    if slot is None or slot.value.retired:
        raise missing(entry_id)
    return slot


async def _answered(tx: Tx, store_uid: UUID, entry_id: str) -> Entry | None:
    row = await tx.fetchrow(
        f"select {ENTRY_COLUMNS} from entries e where e.store_uid = $1 and e.entry_id = $2 and not e.retired",
        store_uid,
        entry_id,
    )
    return None if row is None else entry_from(row)


def _writer(caller: Caller) -> Writer:
    return Writer(caller.principal_type, caller.principal)
