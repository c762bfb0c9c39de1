"""What a version writes: its own row and evidence, the entry's current one, postings, statistics, the change feed."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from libs.chassis.unit_of_work import Tx
from services.memory.domain import Addition, Entry, Value
from services.memory.indexing import Indexing
from services.memory.store.proofs import INSERT_PROOFS, Proof, proofs_json


@dataclass(frozen=True, slots=True)
class Writer:
    """Who writes: a principal, or the distiller with its batch and run, all of which rests on evidence."""

    kind: str
    name: str
    batch_id: UUID | None = None
    run_id: int | None = None


class Rows:
    """Of one actor, whose row the transaction holds."""

    def __init__(
        self, tx: Tx, store_uid: UUID, actor_id: str, actor_no: int, language: str, writer: Writer, indexing: Indexing
    ) -> None:
        self._tx = tx
        self._store_uid = store_uid
        self._actor_id = actor_id
        self._actor_no = actor_no
        self._language = language
        self._writer = writer
        self._indexing = indexing

    async def save(
        self,
        entry: Entry,
        at: datetime,
        recorded_at: datetime,
        proofs: Sequence[Proof] = (),
        *,
        is_derived: bool,
        is_there: bool = False,
    ) -> None:
        """The version with its evidence, the current row, postings, statistics and the change feed, in one statement.

        `is_there`: the version exists already, and only the current row is made again from it.
        """
        terms, length = (
            ({}, 0.0) if entry.value.retired else await self._indexing.terms(entry.path, entry.value, self._language)
        )
        ordered = sorted(terms)
        await self._tx.execute(
            _REBUILD if is_there else _SAVE,
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
            self._actor_no,
            proofs_json(proofs),
        )

    async def add_history(
        self, entry: Entry, addition: Addition, recorded_at: datetime, proofs: Sequence[Proof]
    ) -> None:
        await self._tx.execute(
            f"with version as ({_INSERT_VERSION}), proven as ({INSERT_PROOFS.format(proofs='$19')})"
            " update entries set last_version = $4, last_recorded_at = $11, valid_from = $18"
            " where store_uid = $1 and entry_uid = $3",
            *self._version_arguments(entry.entry_uid, entry.last_version, addition.value, addition.at, recorded_at),
            True,
            entry.valid_from,
            proofs_json(proofs),
        )

    async def drop(self, slot: Entry) -> None:
        await self._tx.execute(
            "with old as (delete from entries where store_uid = $1 and entry_uid = $3"
            " returning terms, length, retired),"
            " dropped as (delete from entry_terms t using (select unnest(terms) as term from old) o"
            " where t.store_uid = $1 and t.actor_no = $4 and t.term = o.term and t.entry_uid = $3),"
            " unembedded as (delete from entry_vectors where store_uid = $1 and actor_no = $4 and entry_uid = $3)"
            " update actor_stats set entry_count = entry_count - (select count(*) from old where not retired),"
            " total_length = total_length - (select coalesce(sum(length), 0) from old where not retired)"
            " where store_uid = $1 and actor_id = $2",
            self._store_uid,
            self._actor_id,
            slot.entry_uid,
            self._actor_no,
        )

    def _version_arguments(
        self, entry_uid: UUID, version: int, value: Value, at: datetime, recorded_at: datetime
    ) -> tuple[Any, ...]:
        return (
            self._store_uid,
            self._actor_id,
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


VERSION = (
    "store_uid, actor_id, entry_uid, version, retired, content, description, kind,"
    " said_by, valid_from, recorded_at, event_date, writer_type, writer, batch_id, run_id, is_derived"
)
# What is inserted into `entries` takes the place of the slot's current row.
BECOMES_CURRENT = """
    on conflict (store_uid, entry_uid) do update set version = excluded.version, retired = excluded.retired,
        content = excluded.content, description = excluded.description, kind = excluded.kind,
        said_by = excluded.said_by, last_recorded_at = excluded.last_recorded_at, event_date = excluded.event_date,
        valid_from = excluded.valid_from, entry_id = excluded.entry_id, source_type = excluded.source_type,
        create_time = excluded.create_time, update_time = excluded.update_time, terms = excluded.terms,
        length = excluded.length, last_version = greatest(entries.last_version, excluded.last_version)
"""
_INSERT_VERSION = (
    f"insert into entry_versions ({VERSION})"
    " values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17)"
)
_SAVE = f"""
with old as (
    select terms, length from entries where store_uid = $1 and entry_uid = $3 and not retired
),
version as ({_INSERT_VERSION}),
proven as ({INSERT_PROOFS.format(proofs="$29")}),
entry as (
    insert into entries (store_uid, actor_id, entry_uid, version, retired, content, description, kind, said_by,
        last_recorded_at, event_date, valid_from, entry_id, session_id, path, source_type, create_time, update_time,
        terms, length, last_version)
    values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $11, $12, $18, $19, $20, $21, $22, $23, $24, $25, $27, $4)
    {BECOMES_CURRENT.strip()}
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
unembedded as (
    delete from entry_vectors where store_uid = $1 and actor_no = $28 and entry_uid = $3
),
counted as (
    update actor_stats set vectors_due = true, text_changes = text_changes + 1,
        entry_count = entry_count + case when $5 then 0 else 1 end - (select count(*) from old),
        total_length = total_length + $27 - (select coalesce(sum(length), 0) from old)
    where store_uid = $1 and actor_id = $2
)
insert into changes (store_uid, actor_id, change, entry_id, path, session_id, kind, version)
values ($1, $2, case when $5 then 'retired' else 'set' end, $19, $21, $20, $8, $4)
"""
# The version is there already.
_REBUILD = _SAVE.replace(_INSERT_VERSION, f"{_INSERT_VERSION} on conflict do nothing")
