"""An actor's entries of a shadow store take the place of those that a pipeline wrote, in one transaction.

At every moment a reader finds the one or the other. What anybody else wrote last stays as it is, also where they
retired a slot. What rests on lines that the replay was not given is never retired, since it cannot be told again, and
stays as it is where those were said after what is told.
"""

from dataclasses import replace
from datetime import datetime
from typing import Any
from uuid import UUID

from libs.chassis.unit_of_work import Tx
from libs.contracts.ids import part_of
from libs.contracts.requests import KnownSession, MemoriesSwapped, SwapMemories, SwapWithdrawn, WithdrawSwap
from services.memory.domain import DREAMER, Entry, first_version, made_current, next_moment, with_version
from services.memory.indexing import Indexing
from services.memory.store.access import OpenStore, open_store_for_batch
from services.memory.store.epochs import hold_epoch, raise_epoch, read_epoch
from services.memory.store.many import Saved, save_all
from services.memory.store.names import free_ids
from services.memory.store.proofs import GIVEN, INSERT_EVIDENCE
from services.memory.store.records import ENTRY_COLUMNS, entry_from
from services.memory.store.rewriting import LAST_SAID, NEXT_MOMENT
from services.memory.store.rows import Writer
from services.memory.store.slots import Slots

AHEAD = 1000

Told = tuple[Entry, datetime]

# Those of one pipeline: it wrote the version that holds, and not by merging what others wrote.
_OURS = (
    "e.entry_id <> all($4::text[]) and exists (select from entry_versions v where v.store_uid = e.store_uid"
    " and v.entry_uid = e.entry_uid and v.version = e.version and v.writer_type = 'DISTILLER' and v.writer = $3"
    " offset 0)"
)
_OF_OTHERS = (
    "exists (select from entry_versions o where o.store_uid = $1 and o.actor_id = $2"
    " and o.entry_uid = {entry}.entry_uid and (o.writer_type <> 'DISTILLER' or o.writer <> $3))"
)
# The evidence of an entry `e` since it says what it says; for a lateral join or an EXISTS.
# `offset 0` keeps it a look-up for each entry: of an actor whom the statistics do not know yet the planner expects one
# row, and would go through all of that actor's evidence for each entry.
_RESTS_ON = (
    "version_evidence x join entry_versions w on w.store_uid = x.store_uid and w.actor_id = x.actor_id"
    " and w.entry_uid = x.entry_uid and w.version = x.version where x.store_uid = e.store_uid"
    " and x.actor_id = e.actor_id and x.entry_uid = e.entry_uid and w.valid_from >= e.valid_from"
    " and w.content is not distinct from e.content offset 0"
)


async def swap(tx: Tx, indexing: Indexing, wanted: SwapMemories, now: datetime) -> MemoriesSwapped:
    """A repeat answers as the first one did, and writes nothing."""
    stores = await _open(tx, wanted)
    store = stores.get(wanted.store_uid)
    if store is None:
        return MemoriesSwapped(outcome="gone")
    # Held, so that an erasure in the session store sees this swap whole or stops it.
    source_epoch = await hold_epoch(tx, wanted.session_store_uid, wanted.actor_id)
    writer = Writer("DISTILLER", str(wanted.pipeline_uid), wanted.swap_id)
    slots = await Slots.hold(tx, store, wanted.actor_id, writer, indexing)
    if (made_ago_s := await _made_ago_s(tx, wanted)) is not None:
        return MemoriesSwapped(outcome="swapped", made_ago_s=made_ago_s)
    if wanted.shadow_uid not in stores:
        return MemoriesSwapped(outcome="gone")
    # A shadow begins at 0, and is raised with its store and when a swap is withdrawn.
    if wanted.source_epoch < source_epoch or await read_epoch(tx, wanted.shadow_uid, wanted.actor_id):
        return MemoriesSwapped(outcome="erased")
    if wanted.keeps_up and (ahead := await _ahead(tx, wanted)):
        return MemoriesSwapped(outcome="behind", ahead=ahead)
    actor = wanted.actor_id
    told = await _entries(tx, "not e.retired", wanted.shadow_uid, actor)
    mine = (wanted.store_uid, actor, str(wanted.pipeline_uid), await _merged_with_others(tx, wanted))
    ours = await _entries(tx, _OURS, *mine)
    taken = await _taken(tx, *mine)
    elsewhere = await _last_said_elsewhere(tx, *mine, wanted.shadow_uid)
    slots_of_ours = {slot.path: (slot, last_said) for slot, last_said in ours}
    written = [
        (_written(wanted, entry, known, now), entry)
        for entry, last_said in told
        for known in [slots_of_ours.get(entry.path)]
        if entry.path not in taken and not _is_older(entry, last_said, known, elsewhere)
    ]
    made = {entry.path for entry, _ in told}
    retold = {entry_uid for entry_uid, said in elsewhere.items() if said is None}
    retired = [
        _retired(slot, last_said, now)
        for slot, last_said in ours
        if slot.entry_uid in retold and slot.path not in made and not slot.value.retired
    ]
    there = {slot.path for slot, _ in ours if not slot.value.retired}
    saved = await _under_free_ids(tx, wanted, [saved for saved, _ in written if isinstance(saved, Saved)], there)
    await save_all(tx, slots, writer, indexing, saved + retired)
    await _inherit(tx, wanted, [(saved.entry if isinstance(saved, Saved) else saved, told) for saved, told in written])
    await _note(tx, wanted)
    return MemoriesSwapped(outcome="swapped")


async def withdraw(tx: Tx, wanted: WithdrawSwap) -> SwapWithdrawn:
    """A swap that was not made never will be: the shadow is as if its actor had been erased."""
    stores = await _open(tx, wanted)
    made_ago_s = await _made_ago_s(tx, wanted)
    if made_ago_s is not None:
        return SwapWithdrawn(swapped=True, made_ago_s=made_ago_s)
    if wanted.shadow_uid in stores:
        await raise_epoch(tx, wanted.shadow_uid, wanted.actor_id)
    return SwapWithdrawn(swapped=False)


async def _made_ago_s(tx: Tx, wanted: SwapMemories | WithdrawSwap) -> float | None:
    """How long ago the swap was made; None when it was not. A time would be of a clock that the asker has not."""
    made_ago_s: float | None = await tx.fetchval(
        "select greatest(0, extract(epoch from now() - created_at))::float8 from batches"
        " where store_uid = $1 and batch_id = $2",
        wanted.store_uid,
        wanted.swap_id,
    )
    return made_ago_s


async def _open(tx: Tx, wanted: SwapMemories | WithdrawSwap) -> dict[UUID, OpenStore]:
    """Both stores, in the order in which everybody takes them."""
    opened = {}
    for uid in sorted((wanted.store_uid, wanted.shadow_uid)):
        store = await open_store_for_batch(tx, uid, wanted.actor_id)
        if store is not None:
            opened[uid] = store
    return opened


async def _ahead(tx: Tx, wanted: SwapMemories) -> list[KnownSession]:
    """Sessions that the store knows better than the shadow does, some at least.

    One that the shadow has never met is ahead where the pipeline has written something that rests on it.
    """
    rows = await tx.fetch(
        "select p.session_uid, p.session_id, p.position from progress p left join progress s on s.store_uid = $2"
        " and s.session_store_uid = p.session_store_uid and s.session_uid = p.session_uid"
        " where p.store_uid = $1 and p.actor_id = $3 and p.session_store_uid = $4 and (p.position > s.position"
        "  or s.position is null and p.session_uid in (select x.session_uid from version_evidence x"
        "   join entry_versions w on w.store_uid = x.store_uid and w.actor_id = x.actor_id"
        "   and w.entry_uid = x.entry_uid and w.version = x.version"
        "   where x.store_uid = $1 and x.actor_id = $3 and x.session_store_uid = $4"
        "   and w.writer_type = 'DISTILLER' and w.writer = $5)) limit $6",
        wanted.store_uid,
        wanted.shadow_uid,
        wanted.actor_id,
        wanted.session_store_uid,
        str(wanted.pipeline_uid),
        AHEAD,
    )
    return [KnownSession(**row) for row in rows]


async def _merged_with_others(tx: Tx, wanted: SwapMemories) -> list[str]:
    """The entries by which a consolidation says what somebody else wrote, over any number of consolidations."""
    rows = await tx.fetch(
        "with recursive merged as (select x.entry_uid, unnest(v.successors) as successor from entries x"
        "  join entry_versions v on v.store_uid = $1 and v.entry_uid = x.entry_uid and v.version = x.version"
        "  where x.store_uid = $1 and x.actor_id = $2 and x.retired and v.successors is not null),"
        " held as (select m.successor as entry_id from merged m join entries s on s.store_uid = $1"
        "   and s.entry_id = m.successor"
        f"  where {_OF_OTHERS.format(entry='m')} or {_OF_OTHERS.format(entry='s')}"
        "  union select m.successor from held h join entries s on s.store_uid = $1 and s.entry_id = h.entry_id"
        "   join merged m on m.entry_uid = s.entry_uid)"
        " select entry_id from held",
        wanted.store_uid,
        wanted.actor_id,
        str(wanted.pipeline_uid),
    )
    return [row["entry_id"] for row in rows]


async def _entries(tx: Tx, condition: str, *arguments: Any) -> list[Told]:
    """Entries of no session, of the store and actor that come first, each with when it was last said."""
    rows = await tx.fetch(
        f"select {ENTRY_COLUMNS}, {LAST_SAID} as last_said from entries e where e.store_uid = $1 and e.actor_id = $2"
        f" and e.session_id is null and {condition} order by e.path",
        *arguments,
    )
    return [(entry_from(row), row["last_said"]) for row in rows]


async def _taken(tx: Tx, *mine: Any) -> set[str]:
    """The paths of slots that somebody else wrote last, or had a part in."""
    rows = await tx.fetch(
        "select e.path from entries e where e.store_uid = $1 and e.actor_id = $2 and e.session_id is null"
        f" and not ({_OURS})",
        *mine,
    )
    return {row["path"] for row in rows}


async def _last_said_elsewhere(tx: Tx, *mine_and_shadow: Any) -> dict[UUID, datetime | None]:
    """Of the pipeline's entries that rest on lines, when the last was said that the replay was not given; None where it
    was given all."""
    rows = await tx.fetch(
        f"select e.entry_uid, (select max(x.said_at) from (select x.* from {_RESTS_ON}) x"
        "  cross join unnest(x.positions) rests (line)"
        "  where not exists (select from shadow_lines l where l.store_uid = $5 and l.actor_id = $2"
        "   and l.session_uid = x.session_uid and l.position = rests.line offset 0)) as said_at"
        " from entries e where e.store_uid = $1 and e.actor_id = $2 and e.session_id is null"
        f" and {_OURS} and exists (select from {_RESTS_ON})",
        *mine_and_shadow,
    )
    return {row["entry_uid"]: row["said_at"] for row in rows}


def _is_older(told: Entry, last_said: datetime, known: Told | None, elsewhere: dict[UUID, datetime | None]) -> bool:
    """Whether the slot says something else, and rests on a line that the replay was not given and that came later."""
    if known is None or known[0].value == told.value:
        return False
    said = elsewhere.get(known[0].entry_uid)
    return said is not None and said > last_said


def _written(wanted: SwapMemories, told: Entry, known: Told | None, now: datetime) -> Saved | Entry:
    """The slot with what the replay tells, or as it is when it says just that."""
    if known is None:
        # The same id when it is swapped again in a restored database: later batches name the entry by it.
        entry_id = str(part_of(wanted.swap_id, told.path))
        entry = first_version(
            wanted.actor_id,
            told.path,
            None,
            told.value,
            told.valid_from,
            recorded_at=max(now, told.valid_from),
            source_type=DREAMER,
            entry_id=entry_id,
        )
        return Saved(entry, told.valid_from)
    slot, last_said = known
    if slot.value == told.value:
        return slot
    recorded_at = next_moment(now, slot)
    at = min(max(told.valid_from, last_said + NEXT_MOMENT), recorded_at)
    return Saved(made_current(with_version(slot, recorded_at, at), told.value), at)


async def _under_free_ids(tx: Tx, wanted: SwapMemories, saved: list[Saved], there: set[str]) -> list[Saved]:
    """Those at paths where nothing is now come under ids that no other entry has."""
    coming = [each.entry for each in saved if each.entry.path not in there]
    ids = await free_ids(tx, wanted.store_uid, [entry.entry_id for entry in coming])
    named = {entry.path: replace(entry, entry_id=entry_id) for entry, entry_id in zip(coming, ids, strict=True)}
    return [replace(each, entry=named.get(each.entry.path, each.entry)) for each in saved]


def _retired(slot: Entry, last_said: datetime, now: datetime) -> Saved:
    recorded_at = next_moment(now, slot)
    at = min(last_said + NEXT_MOMENT, recorded_at)
    value = replace(slot.value, content=None, description=None, retired=True)
    return Saved(made_current(with_version(slot, recorded_at, at), value), at, carries=slot.version)


async def _inherit(tx: Tx, wanted: SwapMemories, written: list[tuple[Entry, Entry]]) -> None:
    """What was written rests on the lines that the shadow's entries rest on."""
    await tx.execute(
        f"{INSERT_EVIDENCE} select {GIVEN}"
        " from unnest($4::uuid[], $5::int[], $6::uuid[]) h (entry_uid, version, source)"
        " cross join lateral (select * from entries where store_uid = $3 and entry_uid = h.source offset 0) e"
        f" cross join lateral (select x.* from {_RESTS_ON}) x"
        " where not exists (select from version_evidence y where y.store_uid = $1 and y.actor_id = $2"
        " and y.entry_uid = h.entry_uid and y.version = h.version and y.session_uid = x.session_uid"
        " and y.positions @> x.positions offset 0)",
        wanted.store_uid,
        wanted.actor_id,
        wanted.shadow_uid,
        [entry.entry_uid for entry, _ in written],
        [entry.version for entry, _ in written],
        [source.entry_uid for _, source in written],
    )


async def _note(tx: Tx, wanted: SwapMemories) -> None:
    """What the replay has read is searchable here; and this swap is done."""
    await tx.execute(
        "insert into progress (store_uid, session_store_uid, session_uid, session_store_id, session_id, actor_id,"
        " position, source_epoch)"
        " select $1, session_store_uid, session_uid, session_store_id, session_id, actor_id, position, source_epoch"
        " from progress where store_uid = $2 and actor_id = $3 on conflict (store_uid, session_store_uid, session_uid)"
        " do update set position = greatest(progress.position, excluded.position),"
        " source_epoch = greatest(progress.source_epoch, excluded.source_epoch)",
        wanted.store_uid,
        wanted.shadow_uid,
        wanted.actor_id,
    )
    await tx.execute(
        "insert into batches (store_uid, batch_id, actor_id, outcomes) values ($1, $2, $3, '[]')",
        wanted.store_uid,
        wanted.swap_id,
        wanted.actor_id,
    )
