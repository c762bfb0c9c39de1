"""The history of entries: what was said when, and what held at a time."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import asyncpg

from libs.chassis.auth import Caller
from libs.chassis.database import Database
from libs.chassis.errors import InvalidParameter
from services.memory.domain import Entry, Version
from services.memory.store.access import STORE, permitted
from services.memory.store.entries import missing
from services.memory.store.filters import Filter
from services.memory.store.proofs import OF_VERSION, PROOFS, Proof, proofs_from
from services.memory.store.records import VERSION_COLUMNS, Found, entry_from, version_from

SEARCHED_VERSIONS = 20_000
SEARCHED_BYTES = 64 * 1024 * 1024
FOREVER = datetime.max.replace(tzinfo=UTC)

_PROOFS = f"(select {PROOFS} from {OF_VERSION}) as evidence"
# The version of each entry that held at $5, as known at $6.
_HELD = (
    f"select {VERSION_COLUMNS}, v.store_uid, v.actor_id, v.entry_uid from entry_versions v"
    " where v.store_uid = e.store_uid and v.entry_uid = e.entry_uid and v.valid_from <= $5 and v.recorded_at <= $6"
    " order by v.valid_from desc, v.recorded_at desc, v.version desc limit 1"
)
_SLOT = "e.entry_uid, e.entry_id, e.actor_id, e.session_id, e.path, e.last_version, e.last_recorded_at"
_SLOT += ", e.source_type, e.create_time, v.recorded_at as update_time"


@dataclass(frozen=True, slots=True)
class Moment:
    """What was true at `as_of`, as far as it was known at `known_at`."""

    as_of: datetime = FOREVER
    known_at: datetime = FOREVER


@dataclass(frozen=True, slots=True)
class Told:
    """A version with who wrote it and what it rests on; `successors` are the entries that say it since it ended."""

    version: Version
    writer_type: str
    writer: str
    batch_id: UUID | None
    run_id: int | None
    evidence: list[Proof]
    successors: list[str] | None


class Versions:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def page(
        self,
        caller: Caller,
        store_uid: UUID,
        entry_id: str,
        after: tuple[datetime, datetime, int] | None,
        limit: int,
    ) -> list[Told]:
        """What an entry said, newest first; also one that is deleted, as long as no other has its id."""
        arguments: list[Any] = [store_uid, caller.principal_type, caller.principal, entry_id, limit]
        condition = ""
        if after is not None:
            arguments.extend(after)
            condition = " and (v.valid_from, v.recorded_at, v.version) < ($6, $7, $8)"
        rows = await self._database.fetch(
            f"with s as ({STORE}), e as (select entry_uid, actor_id from entries"
            " where store_uid = $1 and entry_id = $4 order by retired, update_time desc limit 1)"
            " select s.level, e.entry_uid as found, h.* from s left join e on true left join lateral"
            f" (select {VERSION_COLUMNS}, v.writer_type, v.writer, v.batch_id, v.run_id, v.successors, {_PROOFS}"
            " from entry_versions v where v.store_uid = $1 and v.actor_id = e.actor_id"
            f" and v.entry_uid = e.entry_uid{condition}"
            " order by v.valid_from desc, v.recorded_at desc, v.version desc limit $5) h on s.level >= 1"
            " order by h.valid_from desc, h.recorded_at desc, h.version desc",
            *arguments,
        )
        if permitted(rows)[0]["found"] is None:
            raise missing(entry_id)
        return [
            Told(
                version_from(row),
                row["writer_type"],
                row["writer"],
                row["batch_id"],
                row["run_id"],
                proofs_from(row["evidence"]),
                row["successors"],
            )
            for row in rows
            if row["version"] is not None
        ]

    async def get(self, caller: Caller, store_uid: UUID, entry_id: str, moment: Moment) -> Found:
        """The entry as it was then."""
        rows = await self._database.fetch(
            f"with s as ({STORE}) select s.level, h.* from s left join lateral"
            f" (select {_SLOT}, {VERSION_COLUMNS}, {_PROOFS} from entries e cross join lateral ({_HELD}) v"
            " where e.store_uid = $1 and e.entry_id = $4 and not v.retired"
            " order by e.retired, e.update_time desc limit 1) h on s.level >= 1",
            store_uid,
            caller.principal_type,
            caller.principal,
            entry_id,
            moment.as_of,
            moment.known_at,
        )
        row = permitted(rows)[0]
        if row["entry_uid"] is None:
            raise missing(entry_id)
        return _found(row)

    async def at(
        self,
        caller: Caller,
        store_uid: UUID,
        actor_id: str,
        moment: Moment,
        wanted: Filter,
        after: tuple[str, UUID] | None,
        limit: int | None,
    ) -> list[Found]:
        """What held of an actor then, by path; without a limit, all of it."""
        arguments: list[Any] = [store_uid, caller.principal_type, caller.principal, actor_id]
        arguments += [moment.as_of, moment.known_at, limit]
        conditions = wanted.sql(arguments)
        if after is not None:
            arguments.extend(after)
            conditions += f" and (e.path, e.entry_uid) > (${len(arguments) - 1}, ${len(arguments)})"
        rows = await self._database.fetch(
            f"with s as ({STORE}) select s.level, h.* from s left join lateral"
            f" (select {_SLOT}, {VERSION_COLUMNS}, {_PROOFS} from entries e cross join lateral ({_HELD}) v"
            f" where e.store_uid = $1 and e.actor_id = $4 and not v.retired{conditions}"
            " order by e.path, e.entry_uid limit $7::bigint) h on s.level >= 1 order by h.path, h.entry_uid",
            *arguments,
        )
        return [_found(row) for row in permitted(rows) if row["entry_uid"] is not None]

    async def check_searchable(self, caller: Caller, store_uid: UUID, actor_id: str) -> str | None:
        """The language of the actor's store; refuses an actor with more history than a search may read."""
        rows = await self._database.fetch(
            f"with s as ({STORE}) select s.level, s.options->>'language' as language, h.*"
            " from s left join lateral (select count(*) as versions, sum(octet_length(content)) as bytes"
            " from (select content from entry_versions where store_uid = $1 and actor_id = $4 limit $5) v) h"
            " on s.level >= 1",
            store_uid,
            caller.principal_type,
            caller.principal,
            actor_id,
            SEARCHED_VERSIONS + 1,
        )
        row = permitted(rows)[0]
        if row["versions"] > SEARCHED_VERSIONS or (row["bytes"] or 0) > SEARCHED_BYTES:
            raise InvalidParameter(
                f"as_of and known_at search at most {SEARCHED_VERSIONS} versions"
                f" and {SEARCHED_BYTES} bytes of one actor; this one has more."
            )
        language: str | None = row["language"]
        return language


def newest(found: Sequence[Found]) -> list[Found]:
    """In the order that breaks ties: by update time, then name."""
    by_name = sorted(found, key=lambda each: each.entry.entry_id)
    return sorted(by_name, key=lambda each: each.entry.update_time, reverse=True)


def scored(found: Found, score: float) -> Found:
    return replace(found, score=score)


def _found(row: asyncpg.Record) -> Found:
    entry: Entry = entry_from(row)
    return Found(entry, proofs_from(row["evidence"]))
