"""A distiller's batch, applied in one transaction; a repeat applies nothing and gets the first answer."""

import json
from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from libs.chassis.database import Database
from libs.chassis.unit_of_work import Tx
from libs.contracts.events import AppliedChange, Change, MemoriesDistilled, Range
from libs.contracts.ids import part_of
from services.memory.domain import (
    DREAMER,
    INT64,
    Around,
    Entry,
    Plan,
    all_of,
    change_problem,
    in_utc,
    is_name,
    next_moment,
    outcome,
    plan,
)
from services.memory.indexing import Indexing
from services.memory.store.access import open_store_for_batch
from services.memory.store.epochs import hold_epoch, read_epoch
from services.memory.store.proofs import Proof
from services.memory.store.rewriting import rewrite
from services.memory.store.shadows import note_lines
from services.memory.store.slots import Slots, Writer


class Batches:
    def __init__(self, database: Database, indexing: Indexing, max_path_bytes: int) -> None:
        self._database = database
        self._indexing = indexing
        self._max_path_bytes = max_path_bytes

    async def apply(self, tx: Tx, batch: MemoriesDistilled, now: datetime) -> list[AppliedChange]:
        """What became of each change."""
        if not (is_name(batch.actor_id) and is_name(batch.session_store_id)):
            return all_of(batch.changes, "refused", "actor_id and session_store_id must be names of ours")
        store = await open_store_for_batch(tx, batch.store_uid, batch.actor_id)
        if store is None:
            return all_of(batch.changes, "gone", "the memory store does not exist")
        # Held, so that an erasure in the session store sees this batch whole or stops it.
        if batch.source_epoch < await hold_epoch(tx, batch.session_store_uid, batch.actor_id):
            return all_of(batch.changes, "erased", "the actor was erased in the session store")
        run_id = batch.run_id if batch.run_id is not None and abs(batch.run_id) <= INT64 else None
        writer = Writer("DISTILLER", str(batch.pipeline_uid), batch.batch_id, run_id)
        slots = await Slots.hold(tx, store, batch.actor_id, writer, self._indexing)
        known = await _stored(tx, batch)
        if known is not None:
            return known
        if batch.memory_epoch < await read_epoch(tx, batch.store_uid, batch.actor_id):
            return all_of(batch.changes, "erased", "the actor was erased in the memory store")
        written: set[UUID] = set()
        outcomes = [await self._apply(slots, batch, change, now, written) for change in batch.changes]
        outcomes += [await rewrite(tx, slots, each, now, self._max_path_bytes) for each in batch.rewrites]
        await _advance(tx, batch)
        await note_lines(tx, batch)
        await tx.execute(
            "insert into batches (store_uid, batch_id, actor_id, outcomes) values ($1, $2, $3, $4)",
            batch.store_uid,
            batch.batch_id,
            batch.actor_id,
            json.dumps([each.model_dump() for each in outcomes]),
        )
        return outcomes

    async def lacking(self, store_uid: UUID, batch_ids: Sequence[UUID]) -> list[UUID]:
        """Those that a store has never applied; none of a store that is gone."""
        rows = await self._database.fetch(
            "select wanted.batch_id from unnest($2::uuid[]) as wanted (batch_id)"
            " join memory_stores s on s.store_uid = $1"
            " left join batches b on b.store_uid = $1 and b.batch_id = wanted.batch_id where b.batch_id is null",
            store_uid,
            batch_ids,
        )
        return [row["batch_id"] for row in rows]

    async def _apply(
        self, slots: Slots, batch: MemoriesDistilled, change: Change, now: datetime, written: set[UUID]
    ) -> AppliedChange:
        problem = change_problem(change, self._max_path_bytes)
        if problem is not None:
            return AppliedChange(outcome="refused", entry_id=change.entry_id, reason=problem)
        slot = await _slot(slots, change)
        if slot is not None and change.op == "set" and slot.path != change.path:
            return outcome(Plan("refused", reason="path is not the path of the entry"), slot, None)
        if slot is not None and slot.entry_uid in written:
            # Decided before this batch's own first change of the slot: it follows on that one.
            change = change.model_copy(update={"expected_version": slot.version})
        recorded_at = next_moment(now, slot)
        # Nothing is true before it is known: a clock that runs ahead must not outlive later words.
        at = min(in_utc(change.said_at), recorded_at)
        around = Around(None, None, None) if slot is None else await slots.around(slot, at)
        planned = plan(change, slot, around, at)
        if planned.outcome in ("conflict", "refused", "gone"):
            return outcome(planned, slot, None)
        proofs = _proofs(batch, change, at)
        if planned.supports is not None:
            assert slot is not None  # noqa: S101 - only what exists can be confirmed
            await slots.support(slot, planned.supports, proofs)
            written.add(slot.entry_uid)
            return outcome(planned, slot, planned.supports)
        entry = await _write(slots, slot, batch.batch_id, change, planned, recorded_at)
        version = entry.last_version - len(planned.add) + 1
        await slots.support(entry, version, proofs)
        written.add(entry.entry_uid)
        return outcome(planned, entry, version)


async def _slot(slots: Slots, change: Change) -> Entry | None:
    if change.entry_id is not None:
        named = await slots.named(change.entry_id)
        if named is not None or change.op != "set":
            return named
    return await slots.at(change.path, None)


async def _write(
    slots: Slots, slot: Entry | None, batch_id: UUID, change: Change, planned: Plan, recorded_at: datetime
) -> Entry:
    if slot is None:
        first = planned.add[0]
        # The same id when it is applied again to a restored database: later batches name the entry by it.
        entry_id = str(part_of(batch_id, change.path))
        return await slots.create(
            entry_id, change.path, None, first.value, first.at, recorded_at=recorded_at, source_type=DREAMER
        )
    for addition in planned.add:
        assert planned.holds_since is not None  # noqa: S101 - every addition says it
        slot = await slots.add(slot, addition, recorded_at=recorded_at, holds_since=planned.holds_since)
    if planned.splits is not None:
        again = planned.add[-1]
        await slots.move_evidence(slot, source=planned.splits, target=slot.last_version, since=again.at)
    return slot


async def _stored(tx: Tx, batch: MemoriesDistilled) -> list[AppliedChange] | None:
    outcomes = await tx.fetchval(
        "select outcomes from batches where store_uid = $1 and batch_id = $2", batch.store_uid, batch.batch_id
    )
    return None if outcomes is None else [AppliedChange(**each) for each in json.loads(outcomes)]


def _proofs(batch: MemoriesDistilled, change: Change, at: datetime) -> list[Proof]:
    names = {each.session_uid: each.session_id for each in batch.ranges if is_name(each.session_id)}
    return [
        Proof(
            session_store_uid=batch.session_store_uid,
            session_store_id=batch.session_store_id,
            session_uid=each.session_uid,
            session_id=names.get(each.session_uid),
            positions=sorted(set(each.positions)),
            said_by=change.said_by,
            said_at=at,
        )
        for each in change.evidence
    ]


async def _advance(tx: Tx, batch: MemoriesDistilled) -> None:
    """Says how far each session of the batch is searchable."""
    furthest: dict[UUID, Range] = {}
    for each in batch.ranges:
        known = furthest.get(each.session_uid)
        if is_name(each.session_id) and (known is None or each.through > known.through):
            furthest[each.session_uid] = each
    ranges = sorted(furthest.values(), key=lambda each: each.session_uid)
    await tx.execute(
        "insert into progress"
        " (store_uid, session_store_uid, session_uid, session_store_id, session_id, actor_id, position)"
        " select $1, $2, r.session_uid, $3, r.session_id, $4, r.position"
        " from unnest($5::uuid[], $6::text[], $7::bigint[]) r (session_uid, session_id, position)"
        " on conflict (store_uid, session_store_uid, session_uid)"
        " do update set position = case when $8 then excluded.position"
        "  else greatest(progress.position, excluded.position) end",
        batch.store_uid,
        batch.session_store_uid,
        batch.session_store_id,
        batch.actor_id,
        [each.session_uid for each in ranges],
        [each.session_id for each in ranges],
        [min(max(0, each.through), INT64) for each in ranges],
        batch.rewound,
    )
