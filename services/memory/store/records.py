"""How rows become values, and the columns that this takes."""

from dataclasses import dataclass

import asyncpg

from services.memory.domain import Entry, Value, Version
from services.memory.store.proofs import PROOFS, Proof, proofs_from
from services.memory.text import TEXT_ANALYSIS_VERSION

ENTRY_COLUMNS = (
    "e.entry_uid, e.entry_id, e.actor_id, e.session_id, e.path, e.version, e.retired, e.content, e.description,"
    " e.kind, e.said_by, e.valid_from, e.event_date, e.last_version, e.last_recorded_at, e.source_type,"
    " e.create_time, e.update_time"
)
VERSION_COLUMNS = (
    "v.version, v.retired, v.content, v.description, v.kind, v.said_by, v.event_date, v.valid_from, v.recorded_at"
)
EVIDENCE_SHOWN = 20
# The newest evidence of all versions since when the entry says what it says; another can be valid from that moment too.
EVIDENCE = (
    f"(select {PROOFS} from (select p.* from version_evidence p"
    " join entry_versions w on w.store_uid = p.store_uid and w.actor_id = p.actor_id"
    " and w.entry_uid = p.entry_uid and w.version = p.version"
    " where p.store_uid = e.store_uid and p.actor_id = e.actor_id and p.entry_uid = e.entry_uid"
    " and w.valid_from >= e.valid_from and w.content is not distinct from e.content"
    f" order by p.said_at desc limit {EVIDENCE_SHOWN}) x) as evidence,"
    " (select a.analysis_version from actor_stats a"
    " where a.store_uid = e.store_uid and a.actor_id = e.actor_id) as analysis_version"
)


@dataclass(frozen=True, slots=True)
class Found:
    """An entry as a read shows it."""

    entry: Entry
    evidence: list[Proof]
    score: float | None = None
    analysis_version: int = TEXT_ANALYSIS_VERSION


def value_from(row: asyncpg.Record) -> Value:
    return Value(row["content"], row["description"], row["kind"], row["said_by"], row["event_date"], row["retired"])


def entry_from(row: asyncpg.Record) -> Entry:
    return Entry(
        entry_uid=row["entry_uid"],
        entry_id=row["entry_id"],
        actor_id=row["actor_id"],
        session_id=row["session_id"],
        path=row["path"],
        version=row["version"],
        value=value_from(row),
        valid_from=row["valid_from"],
        last_version=row["last_version"],
        last_recorded_at=row["last_recorded_at"],
        source_type=row["source_type"],
        create_time=row["create_time"],
        update_time=row["update_time"],
    )


def found_from(row: asyncpg.Record, score: float | None = None) -> Found:
    return Found(entry_from(row), proofs_from(row["evidence"]), score, row["analysis_version"])


def version_from(row: asyncpg.Record) -> Version:
    return Version(row["version"], value_from(row), row["valid_from"], row["recorded_at"])
