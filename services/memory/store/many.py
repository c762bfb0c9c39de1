"""Many current versions of one actor's slots at once: what `Rows.save` writes of one, in one statement a chunk."""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from libs.chassis.unit_of_work import Tx
from services.memory.domain import Entry
from services.memory.indexing import Indexing
from services.memory.store.proofs import carry_all
from services.memory.store.rows import BECOMES_CURRENT, VERSION, Writer
from services.memory.store.slots import Slots

CHUNK = 500


@dataclass(frozen=True, slots=True)
class Saved:
    """A slot with its new version, told at `at`. `carries`: the version whose words it repeats, as in `Slots.add`."""

    entry: Entry
    at: datetime
    carries: int | None = None


async def save_all(tx: Tx, slots: Slots, writer: Writer, indexing: Indexing, saved: Sequence[Saved]) -> None:
    """Of slots that the caller holds, each once."""
    for start in range(0, len(saved), CHUNK):
        chunk = saved[start : start + CHUNK]
        # Of so many the analysis takes longer than the loop that serves everybody can wait.
        rows = await asyncio.to_thread(_rows, chunk, slots, indexing)
        await tx.execute(
            _SAVE,
            slots.store_uid,
            slots.actor_id,
            slots.actor_no,
            writer.kind,
            writer.name,
            writer.batch_id,
            writer.run_id,
            rows,
        )
        await carry_all(
            tx,
            slots.store_uid,
            slots.actor_id,
            [(each.entry, each.carries) for each in chunk if each.carries is not None],
        )


def _rows(saved: Sequence[Saved], slots: Slots, indexing: Indexing) -> str:
    return json.dumps([_row(each, slots, indexing) for each in saved], default=str)


def _row(saved: Saved, slots: Slots, indexing: Indexing) -> dict[str, Any]:
    entry, value = saved.entry, saved.entry.value
    terms, length = ({}, 0.0) if value.retired else indexing.terms_now(entry.path, value, slots.language)
    return {
        "entry_uid": entry.entry_uid,
        "version": entry.version,
        "retired": value.retired,
        "content": value.content,
        "description": value.description,
        "kind": value.kind,
        "said_by": value.said_by,
        "event_date": value.event_date,
        "at": saved.at,
        "recorded_at": entry.last_recorded_at,
        "valid_from": entry.valid_from,
        "entry_id": entry.entry_id,
        "session_id": entry.session_id,
        "path": entry.path,
        "source_type": entry.source_type,
        "create_time": entry.create_time,
        "update_time": entry.update_time,
        "carries": saved.carries,
        "terms": list(terms),
        "frequencies": list(terms.values()),
        "length": length,
    }


_SAVE = f"""
with r as materialized (
    select * from jsonb_to_recordset($8::jsonb) as r (entry_uid uuid, version int, retired boolean, content text,
        description text, kind text, said_by text, event_date date, at timestamptz, recorded_at timestamptz,
        valid_from timestamptz, entry_id text, session_id text, path text, source_type text, create_time timestamptz,
        update_time timestamptz, carries int, terms text[], frequencies float8[], length float8)
),
old as materialized (
    select e.entry_uid, e.terms, e.length from r join entries e on e.store_uid = $1 and e.entry_uid = r.entry_uid
    where not e.retired
),
version as (
    insert into entry_versions ({VERSION})
    select $1, $2, r.entry_uid, r.version, r.retired, r.content, r.description, r.kind, r.said_by, r.at,
        r.recorded_at, r.event_date, $4, $5, $6::uuid, $7::bigint,
        case when r.carries is null then $6::uuid is not null
            else (select v.is_derived from entry_versions v where v.store_uid = $1 and v.actor_id = $2
                and v.entry_uid = r.entry_uid and v.version = r.carries) end
    from r
),
entry as (
    insert into entries (store_uid, actor_id, entry_uid, version, retired, content, description, kind, said_by,
        last_recorded_at, event_date, valid_from, entry_id, session_id, path, source_type, create_time, update_time,
        terms, length, last_version)
    select $1, $2, r.entry_uid, r.version, r.retired, r.content, r.description, r.kind, r.said_by, r.recorded_at,
        r.event_date, r.valid_from, r.entry_id, r.session_id, r.path, r.source_type, r.create_time, r.update_time,
        r.terms, r.length, r.version
    from r {BECOMES_CURRENT}
),
dropped as (
    delete from entry_terms t using (select entry_uid, unnest(terms) as term from old) o join r using (entry_uid)
    where t.store_uid = $1 and t.actor_no = $3 and t.term = o.term and t.entry_uid = o.entry_uid
        and t.term <> all(r.terms)
),
posted as (
    insert into entry_terms (store_uid, actor_no, term, entry_uid, frequency, length)
    select $1, $3, p.term, r.entry_uid, p.frequency, r.length
    from r cross join unnest(r.terms, r.frequencies) p (term, frequency)
    on conflict (store_uid, actor_no, term, entry_uid) do update set
        frequency = excluded.frequency, length = excluded.length
),
unembedded as (
    delete from entry_vectors v using r where v.store_uid = $1 and v.actor_no = $3 and v.entry_uid = r.entry_uid
),
counted as (
    update actor_stats set vectors_due = true, text_changes = text_changes + (select count(*) from r),
        entry_count = entry_count + (select count(*) from r where not retired) - (select count(*) from old),
        total_length = total_length + (select coalesce(sum(length), 0) from r)
            - (select coalesce(sum(length), 0) from old)
    where store_uid = $1 and actor_id = $2
)
insert into changes (store_uid, actor_id, change, entry_id, path, session_id, kind, version)
select $1, $2, case when r.retired then 'retired' else 'set' end, r.entry_id, r.path, r.session_id, r.kind, r.version
from r order by r.path
"""
