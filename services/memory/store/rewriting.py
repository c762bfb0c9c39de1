"""Entries rewritten into others that say the same, in one transaction, so that at every moment something says it.

What is written rests on all that the rewritten entries rested on, and so does each retirement: when that evidence is
erased both go, and an entry that an agent had written says again what it said.
"""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from uuid import UUID

from libs.chassis.database import Database
from libs.chassis.unit_of_work import Tx
from libs.contracts.events import AppliedChange, Change, EntryVersion, Rewrite
from libs.contracts.limits import REWRITABLE_BYTES
from libs.contracts.requests import ReadEntries, StoredEntry
from services.memory.domain import DREAMER, Addition, Entry, Value, change_problem, next_moment
from services.memory.store.proofs import GIVEN, INSERT_EVIDENCE
from services.memory.store.records import ENTRY_COLUMNS, entry_from
from services.memory.store.repeats import REPEATS
from services.memory.store.slots import Slots

PAGE = 500
NEXT_MOMENT = timedelta(microseconds=1)

LAST_SAID = (
    "greatest((select max(v.valid_from) from entry_versions v where v.store_uid = e.store_uid"
    " and v.entry_uid = e.entry_uid), (select max(x.said_at) from version_evidence x where x.store_uid = e.store_uid"
    " and x.actor_id = e.actor_id and x.entry_uid = e.entry_uid))"
)
_BROUGHT_BACK = (
    "exists (select from entry_versions v where v.store_uid = e.store_uid and v.entry_uid = e.entry_uid"
    " and v.successors is not null)"
    " and exists (select from entry_versions v where v.store_uid = e.store_uid and v.entry_uid = e.entry_uid"
    " and v.version = e.version and v.writer_type <> 'DISTILLER')"
)


class Rewritable:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def epochs(self, store_uid: UUID, session_store_uid: UUID, actor_id: str) -> tuple[int, int] | None:
        """The actor's epochs in a memory store and, as far as is known here, in a session store; None without store."""
        row = await self._database.fetchrow(
            "select coalesce(m.epoch, 0) as memory, coalesce(x.epoch, 0) as source from memory_stores s"
            " left join actor_epochs m on m.store_uid = s.store_uid and m.actor_id = $3"
            " left join actor_epochs x on x.store_uid = $2 and x.actor_id = $3 where s.store_uid = $1",
            store_uid,
            session_store_uid,
            actor_id,
        )
        return None if row is None else (row["memory"], row["source"])

    async def page(self, asked: ReadEntries) -> list[tuple[UUID, StoredEntry]]:
        """The actor's next entries, each with the uid that the reading continues after."""
        rows = await self._database.fetch(
            f"select {ENTRY_COLUMNS}, e.terms, {LAST_SAID} as last_said_at from entries e"
            " where e.store_uid = $1 and e.actor_id = $2 and ($3::uuid is null or e.entry_uid > $3) and not e.retired"
            f" and e.session_id is null and e.content <> '' and octet_length(e.content) <= $4 and not ({_BROUGHT_BACK})"
            " order by e.entry_uid limit $5",
            asked.store_uid,
            asked.actor_id,
            asked.after,
            REWRITABLE_BYTES,
            PAGE,
        )
        return [(row["entry_uid"], _stored(entry_from(row), row["terms"], row["last_said_at"])) for row in rows]


def _stored(entry: Entry, terms: list[str], last_said_at: datetime) -> StoredEntry:
    return StoredEntry(
        entry_id=entry.entry_id,
        path=entry.path,
        version=entry.version,
        statement=entry.value.content or "",
        description=entry.value.description or "",
        kind=entry.value.kind,
        said_by=entry.value.said_by,
        last_said_at=last_said_at,
        event_date=entry.value.event_date,
        terms=terms,
    )


async def rewrite(tx: Tx, slots: Slots, wanted: Rewrite, now: datetime, max_path_bytes: int) -> AppliedChange:
    """All of it, or nothing when an entry is not as it was when this was decided."""
    if not wanted.replaced or not wanted.into:
        return AppliedChange(outcome="refused", reason="a rewrite replaces something by something")
    for change in wanted.into:
        problem = change_problem(change, max_path_bytes)
        if problem is not None:
            return AppliedChange(outcome="refused", reason=problem)
    replaced = [slot for each in wanted.replaced if (slot := await _as_it_was(slots, each))]
    targets = [await slots.at(change.path, None) for change in wanted.into]
    if (
        len(replaced) < len(wanted.replaced)
        or not all(_as_decided(change, target) for change, target in zip(wanted.into, targets, strict=True))
        or len({change.path for change in wanted.into}) < len(wanted.into)
    ):
        return AppliedChange(outcome="conflict", reason="an entry is not as it was")
    moments = [next_moment(now, slot) for slot in (*replaced, *filter(None, targets))]
    recorded_at = max(moments, default=now)
    # Until then the rewritten ones hold, as they were told.
    at = min(await _last_said(tx, slots, replaced) + NEXT_MOMENT, recorded_at)
    written = [
        await _write(slots, change, target, at, recorded_at)
        for change, target in zip(wanted.into, targets, strict=True)
    ]
    kept = {entry.entry_uid for entry in written}
    retired = [await _retire(slots, slot, at, recorded_at) for slot in replaced if slot.entry_uid not in kept]
    await _inherit(tx, slots, replaced, [*written, *retired], at)
    await _name_successors(tx, slots, retired, [entry.entry_id for entry in written])
    return AppliedChange(outcome="applied", entry_id=written[0].entry_id, version=written[0].version)


async def _as_it_was(slots: Slots, decided: EntryVersion) -> Entry | None:
    slot = await slots.named(decided.entry_id)
    if slot is None or slot.value.retired or slot.version != decided.version:
        return None
    return slot if decided.path in (None, slot.path) else None


def _as_decided(change: Change, target: Entry | None) -> bool:
    if target is None:
        return change.expected_version is None
    return change.expected_version == target.version and change.entry_id in (None, target.entry_id)


async def _write(slots: Slots, change: Change, target: Entry | None, at: datetime, recorded_at: datetime) -> Entry:
    value = Value(change.statement, change.description, change.kind, change.said_by, change.event_date)
    if target is None:
        return await slots.create(None, change.path, None, value, at, recorded_at=recorded_at, source_type=DREAMER)
    # An event is never superseded: it only takes in others that tell of it.
    if target.value == value or (target.value.kind == "event" and not target.value.retired):
        return target
    return await slots.add(target, Addition(value, at, is_current=True), recorded_at=recorded_at, holds_since=at)


async def _retire(slots: Slots, slot: Entry, at: datetime, recorded_at: datetime) -> Entry:
    value = replace(slot.value, content=None, description=None, retired=True)
    return await slots.add(slot, Addition(value, at, is_current=True), recorded_at=recorded_at, holds_since=at)


async def _last_said(tx: Tx, slots: Slots, entries: Sequence[Entry]) -> datetime:
    last: datetime = await tx.fetchval(
        f"select max({LAST_SAID}) from entries e where e.store_uid = $1 and e.actor_id = $2"
        " and e.entry_uid = any($3::uuid[])",
        slots.store_uid,
        slots.actor_id,
        [entry.entry_uid for entry in entries],
    )
    return last


async def _inherit(tx: Tx, slots: Slots, sources: Sequence[Entry], heirs: Sequence[Entry], at: datetime) -> None:
    """Gives the heirs' versions what the sources rested on since they said what they say, or repeat words from."""
    await tx.execute(
        "with source as (select p.* from unnest($3::uuid[], $4::timestamptz[], $7::int[]) s (entry_uid, since, version)"
        "  join entry_versions c on c.store_uid = $1 and c.actor_id = $2 and c.entry_uid = s.entry_uid"
        "   and c.version = s.version"
        "  join entry_versions w on w.store_uid = $1 and w.actor_id = $2 and w.entry_uid = s.entry_uid"
        f"   and (w.valid_from >= s.since and w.content is not distinct from c.content or {REPEATS})"
        "  join version_evidence p on p.store_uid = $1 and p.actor_id = $2 and p.entry_uid = w.entry_uid"
        "   and p.version = w.version),"
        " derived as (update entry_versions v set is_derived = exists (select from unnest($3::uuid[], $7::int[])"
        "   s (entry_uid, version) join entry_versions c on c.store_uid = $1 and c.actor_id = $2"
        "   and c.entry_uid = s.entry_uid and c.version = s.version"
        "   join entry_versions w on w.store_uid = $1 and w.actor_id = $2 and w.entry_uid = c.entry_uid"
        f"   and (w.version = c.version and w.is_derived or {REPEATS}))"
        "  from unnest($5::uuid[], $6::int[]) h (entry_uid, version)"
        "  where v.store_uid = $1 and v.actor_id = $2 and v.entry_uid = h.entry_uid and v.version = h.version"
        "   and v.valid_from = $8)"
        f" {INSERT_EVIDENCE} select distinct on (h.entry_uid, x.session_uid, x.positions) {GIVEN}"
        " from source x cross join unnest($5::uuid[], $6::int[]) h (entry_uid, version)"
        " where not exists (select from version_evidence y where y.store_uid = $1 and y.actor_id = $2"
        "  and y.entry_uid = h.entry_uid and y.version = h.version and y.session_uid = x.session_uid"
        "  and y.positions @> x.positions)",
        slots.store_uid,
        slots.actor_id,
        [entry.entry_uid for entry in sources],
        [entry.valid_from for entry in sources],
        [entry.entry_uid for entry in heirs],
        [entry.version for entry in heirs],
        [entry.version for entry in sources],
        at,
    )


async def _name_successors(tx: Tx, slots: Slots, retired: Sequence[Entry], successors: Sequence[str]) -> None:
    await tx.execute(
        "update entry_versions v set successors = $5 from unnest($3::uuid[], $4::int[]) r (entry_uid, version)"
        " where v.store_uid = $1 and v.actor_id = $2 and v.entry_uid = r.entry_uid and v.version = r.version",
        slots.store_uid,
        slots.actor_id,
        [entry.entry_uid for entry in retired],
        [entry.version for entry in retired],
        list(successors),
    )
