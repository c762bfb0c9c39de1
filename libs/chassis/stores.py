"""Stores of any kind: the tenant's named containers, their names, creators and grants.

The store is the security boundary. A name becomes a uid, which is never used again; grants are read inside the
statement that needs them, never remembered. A store in another workspace does not exist.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Literal
from uuid import UUID

import asyncpg

from libs.chassis import idempotency
from libs.chassis.auth import Caller
from libs.chassis.database import Database
from libs.chassis.errors import AlreadyExists, InvalidParameter, NotFound, PermissionDenied
from libs.chassis.idempotency import NO_STORE, IdempotencyKey
from libs.chassis.unit_of_work import UnitOfWork
from libs.contracts.events import Event
from libs.contracts.ids import uuid7
from libs.contracts.requests import AuthorizeStore, StoreAuthorization

READ: Final = 1
WRITE: Final = 2
Level = Literal[1, 2]
Creators = Literal["everybody", "admins"]
LEVEL_NAMES: Mapping[int, str] = {READ: "READ", WRITE: "WRITE"}

# The level that the caller has on `s`, as a column: a creator's is irrevocable.
LEVEL = "case when g.is_creator then 2 else coalesce(g.level, 0) end"


@dataclass(frozen=True)
class StoreKind:
    """What tells one kind of store from another. `pattern` and `rule` are the rule of its names, for a person."""

    table: str
    resource: str
    noun: str
    pattern: re.Pattern[str]
    rule: str
    deleted: Callable[[int, UUID], Event]

    def check_name(self, name: str | None) -> str:
        if name is None or not self.pattern.fullmatch(name):
            raise InvalidParameter(f"The name of a {self.noun} must be {self.rule}.")
        return name

    def missing(self, name: str) -> NotFound:
        return NotFound(f"{self.noun.capitalize()} '{name[:80]}' does not exist.")

    def denied(self, name: str, level: int) -> PermissionDenied:
        return PermissionDenied(
            f"You need {LEVEL_NAMES[level]} on {self.noun} '{name[:80]}'; its creator may grant it."
        )


@dataclass(frozen=True, slots=True)
class Store:
    """`options` are the kind's own settings. `level` and `is_creator` are the asking caller's."""

    store_uid: UUID
    workspace_id: int
    store_id: str
    description: str | None
    metadata: dict[str, str]
    options: dict[str, Any]
    creator: str
    create_time: datetime
    update_time: datetime
    level: int = WRITE
    is_creator: bool = True


COLUMNS = (
    "s.store_uid, s.workspace_id, s.store_id, s.description, s.metadata, s.options, s.creator,"
    " s.create_time, s.update_time"
)


def _store(row: asyncpg.Record) -> Store:
    fields = dict(row)
    return Store(**fields | {"metadata": json.loads(row["metadata"]), "options": json.loads(row["options"])})


class Stores:
    def __init__(
        self, kind: StoreKind, database: Database, unit_of_work: UnitOfWork, creators: Creators = "everybody"
    ) -> None:
        self.kind = kind
        self._creators = creators
        self._database = database
        self._unit_of_work = unit_of_work
        self._uids: dict[tuple[int, str], UUID] = {}

    async def create(
        self,
        caller: Caller,
        store_id: str,
        *,
        description: str | None,
        metadata: Mapping[str, str],
        options: Mapping[str, Any],
        key: IdempotencyKey | None,
    ) -> tuple[Store, bool]:
        """The new store, or the first answer's and True when `key` was used before. Raises `AlreadyExists`."""
        if self._creators == "admins" and not caller.admin:
            raise PermissionDenied(f"Only a workspace admin may create a {self.kind.noun} here.")
        self.kind.check_name(store_id)
        store_uid = uuid7()
        async with self._unit_of_work.begin() as tx:

            async def made(uid: str) -> Store | None:
                row = await tx.fetchrow(f"select {COLUMNS} from {self.kind.table} s where store_uid = $1", UUID(uid))
                return None if row is None else _store(row)

            if key and (earlier := await idempotency.claim(tx, NO_STORE, key, str(store_uid), made)):
                return earlier, True
            row = await tx.fetchrow(
                f"with s as (insert into {self.kind.table}"
                " (store_uid, workspace_id, store_id, description, metadata, options, creator_type, creator)"
                " values ($1, $2, $3, $4, $5, $6, $7, $8) on conflict (workspace_id, store_id) do nothing"
                " returning *),"
                " g as (insert into store_grants (store_uid, principal_type, principal, is_creator)"
                " select store_uid, creator_type, creator, true from s)"
                f" select {COLUMNS} from s",
                store_uid,
                caller.workspace_id,
                store_id,
                description,
                json.dumps(dict(metadata)),
                json.dumps(dict(options)),
                caller.principal_type,
                caller.principal,
            )
            if row is None:
                raise AlreadyExists(f"{self.kind.noun.capitalize()} '{store_id}' already exists in this workspace.")
        return _store(row), False

    async def page(self, caller: Caller, after: str | None, limit: int) -> list[Store]:
        """By name: the stores that the caller may see, which for an admin is every one."""
        rows = await self._database.fetch(
            f"select {COLUMNS}, {LEVEL} as level, coalesce(g.is_creator, false) as is_creator"
            f" from {self.kind.table} s left join store_grants g on g.store_uid = s.store_uid"
            " and g.principal_type = $2 and g.principal = $3"
            " where s.workspace_id = $1 and s.store_id > $4 and ($5 or g.store_uid is not null)"
            " order by s.store_id limit $6",
            caller.workspace_id,
            caller.principal_type,
            caller.principal,
            after or "",
            caller.admin,
            limit,
        )
        return [_store(row) for row in rows]

    async def find(self, caller: Caller, store_id: str) -> Store:
        """The store with the caller's level on it, which may be 0. Raises `NotFound`."""
        row = await self._database.fetchrow(
            f"select {COLUMNS}, {LEVEL} as level, coalesce(g.is_creator, false) as is_creator"
            f" from {self.kind.table} s left join store_grants g on g.store_uid = s.store_uid"
            " and g.principal_type = $3 and g.principal = $4 where s.workspace_id = $1 and s.store_id = $2",
            caller.workspace_id,
            store_id,
            caller.principal_type,
            caller.principal,
        )
        if row is None:
            raise self.kind.missing(store_id)
        return _store(row)

    async def get(self, caller: Caller, store_id: str) -> Store:
        """The record, for whoever has READ and for admins."""
        store = await self.find(caller, store_id)
        if store.level < READ and not caller.admin:
            raise self.kind.denied(store_id, READ)
        return store

    async def require(self, caller: Caller, store_id: str, level: Level) -> Store:
        """The store, for its content: an admin needs a grant like anybody."""
        store = await self.find(caller, store_id)
        if store.level < level:
            raise self.kind.denied(store_id, level)
        return store

    async def managed(self, caller: Caller, store_id: str) -> Store:
        """The store, for its creator or an admin: who may change, delete or share it."""
        store = await self.find(caller, store_id)
        if not store.is_creator and not caller.admin:
            raise PermissionDenied(f"Only the creator of {self.kind.noun} '{store_id}' or an admin may do this.")
        return store

    async def uid(self, workspace_id: int, store_id: str, *, fresh: bool = False) -> UUID:
        """The uid of a name, remembered; ask `fresh` once when the statement finds no such store. Raises `NotFound`."""
        known = None if fresh else self._uids.get((workspace_id, store_id))
        if known is not None:
            return known
        found = await self._database.fetchval(
            f"select store_uid from {self.kind.table} where workspace_id = $1 and store_id = $2",
            workspace_id,
            store_id,
        )
        if found is None:
            self._uids.pop((workspace_id, store_id), None)
            raise self.kind.missing(store_id)
        if len(self._uids) >= 100_000:
            self._uids.clear()
        self._uids[workspace_id, store_id] = found
        return UUID(str(found))

    async def update(
        self,
        caller: Caller,
        store_id: str,
        mask: set[str],
        *,
        description: str | None,
        metadata: Mapping[str, str],
        options: Mapping[str, Any],
    ) -> Store:
        """Sets what `mask` names; an option that is masked but absent is cleared."""
        store = await self.managed(caller, store_id)
        cleared = [name for name in mask - {"description", "metadata"} if options.get(name) is None]
        kept = {name: options[name] for name in mask - {"description", "metadata"} if options.get(name) is not None}
        rows = await self._database.write(
            f"update {self.kind.table} s set"
            " description = case when $2 then $3 else description end,"
            " metadata = case when $4 then $5::jsonb else metadata end,"
            " options = (options - $6::text[]) || $7::jsonb, update_time = now()"
            f" where store_uid = $1 returning {COLUMNS}",
            store.store_uid,
            "description" in mask,
            description,
            "metadata" in mask,
            json.dumps(dict(metadata)),
            cleared,
            json.dumps(kept),
        )
        if not rows:
            raise self.kind.missing(store_id)
        return _store(rows[0])

    async def delete(self, caller: Caller, store_id: str) -> None:
        """The store and its grants are gone at once, its name is free; what it held is purged in the background."""
        store = await self.managed(caller, store_id)
        async with self._unit_of_work.begin() as tx:
            gone = await tx.execute(f"delete from {self.kind.table} where store_uid = $1", store.store_uid)
            if not gone:
                raise self.kind.missing(store_id)
            await tx.execute("insert into purges (store_uid) values ($1)", store.store_uid)
            tx.emit(self.kind.deleted(store.workspace_id, store.store_uid))
        self._uids.pop((store.workspace_id, store_id), None)

    # Grants

    async def grant(self, caller: Caller, store_id: str, principal_type: str, principal: str, level: int) -> None:
        """Sets exactly this level; the creator keeps WRITE whatever is granted."""
        store = await self.managed(caller, store_id)
        granted = await self._database.write(
            "insert into store_grants (store_uid, principal_type, principal, level)"
            f" select s.store_uid, $2, $3, $4 from {self.kind.table} s where s.store_uid = $1 for key share"
            " on conflict (store_uid, principal_type, principal) do update set level = excluded.level returning 1",
            store.store_uid,
            principal_type,
            principal,
            level,
        )
        if not granted:
            raise self.kind.missing(store_id)

    async def revoke(self, caller: Caller, store_id: str, principal_type: str, principal: str) -> None:
        """Takes the explicit grant away; nothing to take is fine."""
        store = await self.managed(caller, store_id)
        async with self._database.transaction() as connection:
            await connection.execute(
                "update store_grants set level = null"
                " where store_uid = $1 and principal_type = $2 and principal = $3 and is_creator",
                store.store_uid,
                principal_type,
                principal,
            )
            await connection.execute(
                "delete from store_grants"
                " where store_uid = $1 and principal_type = $2 and principal = $3 and not is_creator",
                store.store_uid,
                principal_type,
                principal,
            )

    async def grants(
        self, caller: Caller, store_id: str, after: Sequence[str] | None, limit: int
    ) -> list[tuple[str, str, int]]:
        """Explicit grants as (type, name, level), by type and name."""
        store = await self.managed(caller, store_id)
        rows = await self._database.fetch(
            "select principal_type, principal, level from store_grants"
            " where store_uid = $1 and level is not null and (principal_type, principal) > ($2, $3)"
            " order by principal_type, principal limit $4",
            store.store_uid,
            *(after or ("", "")),
            limit,
        )
        return [(row["principal_type"], row["principal"], row["level"]) for row in rows]

    async def authorize(self, question: AuthorizeStore) -> StoreAuthorization:
        """The answer to another service's question; empty when there is no such store in the workspace."""
        row = await self._database.fetchrow(
            f"select s.store_uid, s.store_id, {LEVEL} as level from {self.kind.table} s"
            " left join store_grants g on g.store_uid = s.store_uid and g.principal_type = $2 and g.principal = $3"
            " where s.workspace_id = $1 and (s.store_id = $4 or s.store_uid = $5)",
            question.workspace_id,
            question.principal_type,
            question.principal,
            question.store_id,
            question.store_uid,
        )
        if row is None:
            return StoreAuthorization()
        needed = WRITE if question.permission == "WRITE" else READ
        return StoreAuthorization(allowed=row["level"] >= needed, store_uid=row["store_uid"], store_id=row["store_id"])
