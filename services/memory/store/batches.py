"""A distiller's batch, applied in one transaction; a repeat applies nothing and gets the first answer."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

import asyncpg

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
    Source,
    all_of,
    change_problem,
    in_utc,
    is_name,
    last_line,
    next_moment,
    outcome,
    plan,
)
from services.memory.indexing import Indexing
from services.memory.store.access import open_store_for_batches
from services.memory.store.epochs import HOLD_EPOCHS
from services.memory.store.proofs import Proof
from services.memory.store.rewriting import rewrite
from services.memory.store.shadows import note_lines
from services.memory.store.slots import Slots, Writer

CHANGES_TOGETHER = 32


def alike(batch: MemoriesDistilled) -> tuple[UUID, UUID, bool]:
    """Batches for which this is the same may be applied together."""
    return batch.store_uid, batch.session_store_uid, batch.rewound


def first_together(batches: Sequence[MemoriesDistilled]) -> Sequence[MemoriesDistilled]:
    """Those at the beginning that may be applied together: an actor has one, and they are quick."""
    actors: set[str] = set()
    changes = 0
    for number, batch in enumerate(batches):
        changes += len(batch.changes) + len(batch.rewrites)
        if number and (batch.actor_id in actors or changes > CHANGES_TOGETHER):
            return batches[:number]
        actors.add(batch.actor_id)
    return batches


class Batches:
    def __init__(self, database: Database, indexing: Indexing, max_path_bytes: int) -> None:
        self._database = database
        self._indexing = indexing
        self._max_path_bytes = max_path_bytes

    async def apply(self, tx: Tx, batch: MemoriesDistilled, now: datetime) -> list[AppliedChange]:
        """What became of each change."""
        [outcomes] = await self.apply_all(tx, [batch], now)
        return outcomes

    async def apply_all(self, tx: Tx, batches: Sequence[MemoriesDistilled], now: datetime) -> list[list[AppliedChange]]:
        """What became of the changes of each; they are `alike` and `first_together`.

        Raises `Contended`, unless there is but one, where somebody else has the turn of an actor.
        """
        actor_ids = [each.actor_id for each in batches if _is_named(each)]
        store = await open_store_for_batches(tx, batches[0].store_uid, actor_ids) if actor_ids else None
        standings = {} if store is None else await _standings(tx, batches)
        answers = [_answer(each, standings.get(each.batch_id)) for each in batches]
        due = [batch for batch, answer in zip(batches, answers, strict=True) if answer is None]
        if store is None or not due:
            return [answer or [] for answer in answers]
        writers = {each.actor_id: _writer(each) for each in due}
        outcomes: list[list[AppliedChange]] = []
        for batch, slots in zip(due, await Slots.hold_all(tx, store, writers, self._indexing), strict=True):
            outcomes.append(await self._change(tx, slots, batch, now))
        await _conclude(tx, due, outcomes)
        applied = iter(outcomes)
        return [next(applied) if answer is None else answer for answer in answers]

    async def _change(self, tx: Tx, slots: Slots, batch: MemoriesDistilled, now: datetime) -> list[AppliedChange]:
        told: dict[UUID, set[Source | None]] = {}
        outcomes = [await self._apply(slots, batch, change, now, told) for change in batch.changes]
        outcomes += [await rewrite(tx, slots, each, now, self._max_path_bytes) for each in batch.rewrites]
        await note_lines(tx, batch)
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
        self,
        slots: Slots,
        batch: MemoriesDistilled,
        change: Change,
        now: datetime,
        told: dict[UUID, set[Source | None]],
    ) -> AppliedChange:
        """`told`: of which slots the batch has told so far, and by which lines something new."""
        problem = change_problem(change, self._max_path_bytes)
        if problem is not None:
            return AppliedChange(outcome="refused", entry_id=change.entry_id, reason=problem)
        # By its path, which is its own for ever: its id may be another entry's by now.
        slot = await slots.at(change.path, None)
        if slot is not None and slot.entry_uid in told:
            # Decided before this batch's own first change of the slot: it follows on that one.
            change = change.model_copy(update={"entry_id": slot.entry_id, "expected_version": slot.version})
        recorded_at = next_moment(now, slot)
        # Nothing is true before it is known: a clock that runs ahead must not outlive later words.
        at = min(in_utc(change.said_at), recorded_at)
        line = last_line(change)
        around = Around() if slot is None else await slots.around(slot, at, line)
        goes_on = slot is not None and line in told.get(slot.entry_uid, ())
        planned = plan(change, slot, around, at, goes_on=goes_on)
        if planned.outcome in ("conflict", "refused", "gone"):
            return outcome(planned, slot, None)
        proofs = _proofs(batch, change, at)
        if planned.supports is not None:
            assert slot is not None  # noqa: S101 - only what exists can be confirmed
            await slots.support(slot, planned.supports, proofs)
            told.setdefault(slot.entry_uid, set()).update(() if planned.is_repeat else (line,))
            return outcome(planned, slot, planned.supports)
        entry = await _write(slots, slot, batch.batch_id, change, planned, recorded_at, proofs)
        told.setdefault(entry.entry_uid, set()).add(line)
        return outcome(planned, entry, entry.last_version - len(planned.add) + 1)


async def _write(
    slots: Slots,
    slot: Entry | None,
    batch_id: UUID,
    change: Change,
    planned: Plan,
    recorded_at: datetime,
    proofs: Sequence[Proof],
) -> Entry:
    """Of what is added, the first is what was said; another one says again what was held before."""
    if slot is None:
        first = planned.add[0]
        # The same id when it is applied again to a restored database: later batches name the entry by it.
        entry_id = await slots.free_id(str(part_of(batch_id, change.path)))
        return await slots.create(
            entry_id,
            change.path,
            None,
            first.value,
            first.at,
            recorded_at=recorded_at,
            source_type=DREAMER,
            proofs=proofs,
        )
    for addition in planned.add:
        assert planned.holds_since is not None  # noqa: S101 - every addition says it
        slot = await slots.add(slot, addition, recorded_at=recorded_at, holds_since=planned.holds_since, proofs=proofs)
        proofs = ()
    if planned.splits is not None:
        again = planned.add[-1]
        after = last_line(change) if again.at == planned.add[0].at else None
        await slots.move_evidence(slot, source=planned.splits, target=slot.last_version, since=again.at, after=after)
    return slot


@dataclass(frozen=True, slots=True)
class _Standing:
    """What decides whether a batch is applied; `outcomes` when it was, before."""

    source_epoch: int
    memory_epoch: int
    outcomes: list[AppliedChange] | None


async def _standings(tx: Tx, batches: Sequence[MemoriesDistilled]) -> dict[UUID, _Standing]:
    """The source epochs are held, so that an erasure in the session store sees a batch whole or stops it."""
    named = [each for each in batches if _is_named(each)]
    rows = await tx.fetch(
        f"with source as ({HOLD_EPOCHS}) select batch.batch_id, source.epoch as source_epoch,"
        " coalesce(memory.epoch, 0) as memory_epoch, known.outcomes"
        " from unnest($2::text[], $4::uuid[]) batch (actor_id, batch_id) join source using (actor_id)"
        " left join actor_epochs memory on memory.store_uid = $3 and memory.actor_id = batch.actor_id"
        " left join batches known on known.store_uid = $3 and known.batch_id = batch.batch_id",
        batches[0].session_store_uid,
        [each.actor_id for each in named],
        batches[0].store_uid,
        [each.batch_id for each in named],
    )
    return {row["batch_id"]: _standing(row) for row in rows}


def _standing(row: asyncpg.Record) -> _Standing:
    told = row["outcomes"]
    outcomes = None if told is None else [AppliedChange(**each) for each in json.loads(told)]
    return _Standing(row["source_epoch"], row["memory_epoch"], outcomes)


def _is_named(batch: MemoriesDistilled) -> bool:
    return is_name(batch.actor_id) and is_name(batch.session_store_id)


def _answer(batch: MemoriesDistilled, standing: _Standing | None) -> list[AppliedChange] | None:
    """What became of a batch that is not to be applied; None for one that is."""
    if not _is_named(batch):
        return all_of(batch.changes, "refused", "actor_id and session_store_id must be names of ours")
    if standing is None:
        return all_of(batch.changes, "gone", "the memory store does not exist")
    if batch.source_epoch < standing.source_epoch:
        return all_of(batch.changes, "erased", "the actor was erased in the session store")
    if standing.outcomes is not None:
        return standing.outcomes
    if batch.memory_epoch < standing.memory_epoch:
        return all_of(batch.changes, "erased", "the actor was erased in the memory store")
    return None


def _writer(batch: MemoriesDistilled) -> Writer:
    run_id = batch.run_id if batch.run_id is not None and abs(batch.run_id) <= INT64 else None
    return Writer("DISTILLER", str(batch.pipeline_uid), batch.batch_id, run_id)


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
            source_epoch=batch.source_epoch,
        )
        for each in change.evidence
    ]


async def _conclude(tx: Tx, batches: Sequence[MemoriesDistilled], outcomes: Sequence[Sequence[AppliedChange]]) -> None:
    """Says how far each session of the batches is searchable, and keeps the answers for a repeat."""
    reached = [(batch, each) for batch in batches for each in _furthest(batch)]
    reached.sort(key=lambda pair: pair[1].session_uid)
    await tx.execute(
        "with answered as (insert into batches (store_uid, batch_id, actor_id, outcomes)"
        "  select $1, * from unnest($9::uuid[], $10::text[], $11::text[]))"
        " insert into progress"
        " (store_uid, session_store_uid, session_uid, session_store_id, session_id, actor_id, position,"
        "  source_epoch)"
        " select $1, $2, r.*"
        " from unnest($3::uuid[], $4::text[], $5::text[], $6::text[], $7::bigint[], $12::bigint[]) r"
        " on conflict (store_uid, session_store_uid, session_uid)"
        " do update set position = case when $8 then excluded.position"
        "  else greatest(progress.position, excluded.position) end,"
        "  source_epoch = greatest(progress.source_epoch, excluded.source_epoch)",
        batches[0].store_uid,
        batches[0].session_store_uid,
        [each.session_uid for _, each in reached],
        [batch.session_store_id for batch, _ in reached],
        [each.session_id for _, each in reached],
        [batch.actor_id for batch, _ in reached],
        [min(max(0, each.through), INT64) for _, each in reached],
        batches[0].rewound,
        [batch.batch_id for batch in batches],
        [batch.actor_id for batch in batches],
        [json.dumps([each.model_dump() for each in changes]) for changes in outcomes],
        [batch.source_epoch for batch, _ in reached],
    )


def _furthest(batch: MemoriesDistilled) -> Iterable[Range]:
    furthest: dict[UUID, Range] = {}
    for each in batch.ranges:
        known = furthest.get(each.session_uid)
        if is_name(each.session_id) and (known is None or each.through > known.through):
            furthest[each.session_uid] = each
    return furthest.values()
