"""The slots of one actor, held until the transaction ends: the only way by which entries change.

Lock order, everywhere: the actor's turn and the store (`access`), source epoch, idempotency key, the actor's row.
Whoever holds that row holds all that the actor has: nothing else needs a lock and no two writers wait for each other.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any
from uuid import UUID

from libs.chassis.unit_of_work import Tx
from libs.contracts.ids import uuid7
from services.memory.domain import Addition, Around, Entry, Value, Version, holds_since
from services.memory.indexing import Indexing
from services.memory.store.access import OpenStore
from services.memory.store.postings import reindex
from services.memory.store.records import (
    ENTRY_COLUMNS,
    VERSION_COLUMNS,
    Proof,
    entry_from,
    version_from,
)


@dataclass(frozen=True, slots=True)
class Writer:
    """Who writes: a principal, or the distiller with its batch and run, all of which rests on evidence."""

    kind: str
    name: str
    batch_id: UUID | None = None
    run_id: int | None = None


class Slots:
    def __init__(
        self, tx: Tx, store_uid: UUID, actor_id: str, actor_no: int, language: str, writer: Writer, indexing: Indexing
    ) -> None:
        self.store_uid = store_uid
        self.actor_id = actor_id
        self._tx = tx
        self.actor_no = actor_no
        self._language = language
        self._writer = writer
        self._indexing = indexing

    @classmethod
    async def hold(cls, tx: Tx, store: OpenStore, actor_id: str, writer: Writer, indexing: Indexing) -> "Slots":
        """Waits for the actor's other writers; a new actor starts with the store's language."""
        locked = (
            "select actor_no, language, analysis_version from actor_stats"
            " where store_uid = $1 and actor_id = $2 for update",
            store.store_uid,
            actor_id,
        )
        row = await tx.fetchrow(*locked)
        while row is None:
            await tx.execute(
                "insert into actor_stats (store_uid, actor_id, language, analysis_version)"
                " values ($1, $2, $3, $4) on conflict do nothing",
                store.store_uid,
                actor_id,
                store.language or indexing.language,
                indexing.version,
            )
            row = await tx.fetchrow(*locked)
        if row["analysis_version"] != indexing.version:
            await reindex(tx, store.store_uid, actor_id, row["actor_no"], row["language"], indexing)
        return cls(tx, store.store_uid, actor_id, row["actor_no"], row["language"], writer, indexing)

    async def at(self, path: str, session_id: str | None) -> Entry | None:
        """The slot at a path, retired or not."""
        row = await self._tx.fetchrow(
            f"select {ENTRY_COLUMNS} from entries e"
            " where e.store_uid = $1 and e.actor_id = $2 and e.path = $3"
            " and (e.session_id = $4 or (e.session_id is null and $4::text is null))",
            self.store_uid,
            self.actor_id,
            path,
            session_id,
        )
        return None if row is None else entry_from(row)

    async def named(self, entry_id: str) -> Entry | None:
        """The slot that has this id, else the one that had it last."""
        row = await self._tx.fetchrow(
            f"select {ENTRY_COLUMNS} from entries e"
            " where e.store_uid = $1 and e.actor_id = $2 and e.entry_id = $3"
            " order by e.retired, e.update_time desc limit 1",
            self.store_uid,
            self.actor_id,
            entry_id,
        )
        return None if row is None else entry_from(row)

    async def around(self, slot: Entry, at: datetime) -> Around:
        """What the slot's history holds before and after a moment."""
        rows = await self._tx.fetch(
            f"(select {VERSION_COLUMNS}, true as is_before,"
            " (select min(x.said_at) from version_evidence x where x.store_uid = $1 and x.actor_id = $4"
            " and x.entry_uid = $2 and x.version = v.version and x.said_at > $3) as restated_at"
            " from entry_versions v where v.store_uid = $1 and v.entry_uid = $2 and v.valid_from <= $3"
            " order by v.valid_from desc, v.recorded_at desc, v.version desc limit 1)"
            f" union all (select {VERSION_COLUMNS}, false, null"
            " from entry_versions v where v.store_uid = $1 and v.entry_uid = $2 and v.valid_from > $3"
            " order by v.valid_from, v.recorded_at, v.version limit 1)",
            self.store_uid,
            slot.entry_uid,
            at,
            self.actor_id,
        )
        before = next((row for row in rows if row["is_before"]), None)
        after = next((row for row in rows if not row["is_before"]), None)
        return Around(
            None if before is None else version_from(before),
            None if after is None else version_from(after),
            None if before is None else before["restated_at"],
        )

    async def version(self, slot: Entry, version: int) -> Version | None:
        row = await self._tx.fetchrow(
            f"select {VERSION_COLUMNS} from entry_versions v"
            " where v.store_uid = $1 and v.actor_id = $2 and v.entry_uid = $3 and v.version = $4",
            self.store_uid,
            self.actor_id,
            slot.entry_uid,
            version,
        )
        return None if row is None else version_from(row)

    async def create(
        self,
        entry_id: str | None,
        path: str,
        session_id: str | None,
        value: Value,
        at: datetime,
        *,
        recorded_at: datetime,
        source_type: str,
    ) -> Entry:
        """A slot that was never there. Raises `asyncpg.UniqueViolationError` when another entry has this id."""
        entry_uid = uuid7()
        entry = Entry(
            entry_uid=entry_uid,
            entry_id=entry_id or str(entry_uid),
            actor_id=self.actor_id,
            session_id=session_id,
            path=path,
            version=1,
            value=value,
            valid_from=at,
            last_version=1,
            last_recorded_at=recorded_at,
            source_type=source_type,
            create_time=recorded_at,
            update_time=recorded_at,
        )
        await self._save(entry, at, recorded_at, is_derived=self._writer.batch_id is not None)
        return entry

    async def add(
        self,
        slot: Entry,
        addition: Addition,
        *,
        recorded_at: datetime,
        holds_since: datetime,
        entry_id: str | None = None,
        source_type: str | None = None,
        carries: int | None = None,
    ) -> Entry:
        """A further version of a slot.

        `entry_id` names it anew, for a retired slot that becomes a new entry. `carries`: the version whose words it
        repeats, so that it rests on the same evidence and is erased with it.
        """
        entry = replace(
            slot,
            entry_id=entry_id or slot.entry_id,
            source_type=source_type or slot.source_type,
            valid_from=holds_since,
            last_version=slot.last_version + 1,
            last_recorded_at=recorded_at,
        )
        if not addition.is_current:
            await self._save_history(entry, addition, recorded_at)
            return entry
        revived = slot.value.retired and not addition.value.retired
        entry = replace(
            entry,
            version=entry.last_version,
            value=addition.value,
            create_time=recorded_at if revived else slot.create_time,
            update_time=recorded_at,
        )
        is_derived = await self._is_derived(entry, carries)
        await self._save(entry, addition.at, recorded_at, is_derived=is_derived)
        if carries is not None:
            await self._carry(entry, carries)
        return entry

    async def _is_derived(self, entry: Entry, carries: int | None) -> bool:
        if carries is None:
            return self._writer.batch_id is not None
        return bool(
            await self._tx.fetchval(
                "select is_derived from entry_versions"
                " where store_uid = $1 and actor_id = $2 and entry_uid = $3 and version = $4",
                self.store_uid,
                self.actor_id,
                entry.entry_uid,
                carries,
            )
        )

    async def _carry(self, entry: Entry, source: int) -> None:
        await self._tx.execute(
            "insert into version_evidence (store_uid, evidence_uid, actor_id, entry_uid, version, session_store_uid,"
            " session_store_id, session_uid, session_id, positions, said_by, said_at)"
            " select store_uid, gen_random_uuid(), actor_id, entry_uid, $5, session_store_uid, session_store_id,"
            " session_uid, session_id, positions, said_by, said_at from version_evidence"
            " where store_uid = $1 and actor_id = $2 and entry_uid = $3 and version = $4",
            self.store_uid,
            self.actor_id,
            entry.entry_uid,
            source,
            entry.version,
        )

    async def rebuild(self, slot: Entry) -> Entry | None:
        """Makes the current row again from the versions that are left; a slot that says nothing any more is dropped."""
        rows = await self._tx.fetch(
            f"select {VERSION_COLUMNS}, v.is_derived from entry_versions v"
            " where v.store_uid = $1 and v.actor_id = $2 and v.entry_uid = $3"
            " order by v.valid_from, v.recorded_at, v.version",
            self.store_uid,
            self.actor_id,
            slot.entry_uid,
        )
        told = [version_from(row) for row in rows]
        if all(each.value.retired for each in told):
            await self._drop(slot)
            return None
        last = told[-1]
        entry = replace(slot, version=last.version, value=last.value, valid_from=holds_since(told))
        await self._save(entry, last.valid_from, slot.last_recorded_at, is_derived=rows[-1]["is_derived"], sql=_REBUILD)
        return entry

    async def _drop(self, slot: Entry) -> None:
        await self._tx.execute(
            "with old as (delete from entries where store_uid = $1 and entry_uid = $3"
            " returning terms, length, retired),"
            " dropped as (delete from entry_terms t using (select unnest(terms) as term from old) o"
            " where t.store_uid = $1 and t.actor_no = $4 and t.term = o.term and t.entry_uid = $3)"
            " update actor_stats set entry_count = entry_count - (select count(*) from old where not retired),"
            " total_length = total_length - (select coalesce(sum(length), 0) from old where not retired)"
            " where store_uid = $1 and actor_id = $2",
            self.store_uid,
            self.actor_id,
            slot.entry_uid,
            self.actor_no,
        )

    async def move_evidence(self, slot: Entry, *, source: int, target: int, since: datetime) -> None:
        await self._tx.execute(
            "update version_evidence set version = $5"
            " where store_uid = $1 and actor_id = $2 and entry_uid = $3 and version = $4 and said_at >= $6",
            self.store_uid,
            self.actor_id,
            slot.entry_uid,
            source,
            target,
            since,
        )

    async def support(self, slot: Entry, version: int, proofs: Sequence[Proof]) -> None:
        """Adds evidence; lines that a version rests on already add nothing."""
        await self._tx.execute(
            "insert into version_evidence (store_uid, evidence_uid, actor_id, entry_uid, version, session_store_uid,"
            " session_store_id, session_uid, session_id, positions, said_by, said_at)"
            " select $1, p.evidence_uid, $2, $3, $4, p.session_store_uid, p.session_store_id, p.session_uid,"
            " p.session_id, p.positions, p.said_by, p.said_at"
            " from jsonb_to_recordset($5::jsonb) p (evidence_uid uuid, session_store_uid uuid, session_store_id text,"
            " session_uid uuid, session_id text, positions bigint[], said_by text, said_at timestamptz)"
            " where not exists (select from version_evidence x where x.store_uid = $1 and x.actor_id = $2"
            " and x.entry_uid = $3 and x.version = $4 and x.session_uid = p.session_uid"
            " and x.positions @> p.positions)",
            self.store_uid,
            self.actor_id,
            slot.entry_uid,
            version,
            json.dumps([_proof_json(proof) for proof in proofs]),
        )

    async def _save_history(self, entry: Entry, addition: Addition, recorded_at: datetime) -> None:
        await self._tx.execute(
            f"with version as ({_INSERT_VERSION})"
            " update entries set last_version = $4, last_recorded_at = $11, valid_from = $18"
            " where store_uid = $1 and entry_uid = $3",
            *self._version_arguments(entry.entry_uid, entry.last_version, addition.value, addition.at, recorded_at),
            True,
            entry.valid_from,
        )

    async def _save(
        self, entry: Entry, at: datetime, recorded_at: datetime, *, is_derived: bool, sql: str | None = None
    ) -> None:
        """The version, the current row, its postings, the actor's statistics and the change feed, in one statement."""
        terms, length = (
            ({}, 0.0) if entry.value.retired else await self._indexing.terms(entry.path, entry.value, self._language)
        )
        ordered = sorted(terms)
        await self._tx.execute(
            sql or _SAVE,
            *self._version_arguments(entry.entry_uid, entry.version, entry.value, at, recorded_at),
            is_derived,
            entry.valid_from,
            entry.entry_id,
            entry.session_id,
            entry.path,
            entry.source_type,
            entry.create_time,
            entry.update_time,
            ordered,
            [terms[term] for term in ordered],
            length,
            self.actor_no,
        )

    def _version_arguments(
        self, entry_uid: UUID, version: int, value: Value, at: datetime, recorded_at: datetime
    ) -> tuple[Any, ...]:
        return (
            self.store_uid,
            self.actor_id,
            entry_uid,
            version,
            value.retired,
            value.content,
            value.description,
            value.kind,
            value.said_by,
            at,
            recorded_at,
            value.event_date,
            self._writer.kind,
            self._writer.name,
            self._writer.batch_id,
            self._writer.run_id,
        )


def _proof_json(proof: Proof) -> dict[str, Any]:
    return {
        "evidence_uid": str(uuid7()),
        "session_store_uid": str(proof.session_store_uid),
        "session_store_id": proof.session_store_id,
        "session_uid": str(proof.session_uid),
        "session_id": proof.session_id,
        "positions": proof.positions,
        "said_by": proof.said_by,
        "said_at": proof.said_at.isoformat(),
    }


_INSERT_VERSION = (
    "insert into entry_versions (store_uid, actor_id, entry_uid, version, retired, content, description, kind,"
    " said_by, valid_from, recorded_at, event_date, writer_type, writer, batch_id, run_id, is_derived)"
    " values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17)"
)
_SAVE = f"""
with old as (
    select terms, length from entries where store_uid = $1 and entry_uid = $3 and not retired
),
version as ({_INSERT_VERSION}),
entry as (
    insert into entries (store_uid, actor_id, entry_uid, version, retired, content, description, kind, said_by,
        last_recorded_at, event_date, valid_from, entry_id, session_id, path, source_type, create_time, update_time,
        terms, length, last_version)
    values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $11, $12, $18, $19, $20, $21, $22, $23, $24, $25, $27, $4)
    on conflict (store_uid, entry_uid) do update set version = excluded.version, retired = excluded.retired,
        content = excluded.content, description = excluded.description, kind = excluded.kind,
        said_by = excluded.said_by, last_recorded_at = excluded.last_recorded_at, event_date = excluded.event_date,
        valid_from = excluded.valid_from, entry_id = excluded.entry_id, source_type = excluded.source_type,
        create_time = excluded.create_time, update_time = excluded.update_time, terms = excluded.terms,
        length = excluded.length, last_version = greatest(entries.last_version, excluded.last_version)
),
dropped as (
    delete from entry_terms t using (select unnest(terms) as term from old) o
    where t.store_uid = $1 and t.actor_no = $28 and t.term = o.term and t.entry_uid = $3
        and not (t.term = any($25::text[]))
),
posted as (
    insert into entry_terms (store_uid, actor_no, term, entry_uid, frequency, length)
    select $1, $28, p.term, $3, p.frequency, $27
    from unnest($25::text[], $26::float8[]) p (term, frequency)
    on conflict (store_uid, actor_no, term, entry_uid) do update set
        frequency = excluded.frequency, length = excluded.length
),
counted as (
    update actor_stats set
        entry_count = entry_count + case when $5 then 0 else 1 end - (select count(*) from old),
        total_length = total_length + $27 - (select coalesce(sum(length), 0) from old)
    where store_uid = $1 and actor_id = $2
)
insert into changes (store_uid, actor_id, change, entry_id, path, session_id, kind, version)
values ($1, $2, case when $5 then 'retired' else 'set' end, $19, $21, $20, $8, $4)
"""
# The version is there already.
_REBUILD = _SAVE.replace(_INSERT_VERSION, f"{_INSERT_VERSION} on conflict do nothing")
