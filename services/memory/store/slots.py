"""The slots of one actor, held until the transaction ends: the only way by which entries change.

Lock order, everywhere: the actor's turn and the store (`access`), source epoch, idempotency key, the actor's row.
Whoever holds that row holds all that the actor has: nothing else needs a lock. Swaps and erasures hold more than one
turn, and a source epoch is held for every store: who waits for these waits no longer than `access` says.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from uuid import UUID

from libs.chassis.errors import Contended
from libs.chassis.unit_of_work import Tx
from services.memory.domain import (
    Addition,
    Around,
    Entry,
    Held,
    Source,
    Value,
    Version,
    first_version,
    holds_since,
    made_current,
    with_version,
)
from services.memory.indexing import Indexing
from services.memory.store.access import OpenStore
from services.memory.store.names import free_ids
from services.memory.store.postings import reindex
from services.memory.store.proofs import Proof, carry, move, support
from services.memory.store.records import ENTRY_COLUMNS, VERSION_COLUMNS, entry_from, version_from
from services.memory.store.rows import Rows, Writer

__all__ = ["Slots", "Writer"]

# What a version `v` rests on of the moment $3, in which the line $6 of the session $5 was said, and after it.
_OF_MOMENT = (
    "version_evidence x where x.store_uid = $1 and x.actor_id = $4 and x.entry_uid = $2 and x.version = v.version"
    " and x.said_at = $3 and x.session_uid = $5"
)
_RESTS = (
    f"exists (select from {_OF_MOMENT} and $6 = any(x.positions)) as has_line,"
    f" exists (select from {_OF_MOMENT} and $6 < any(x.positions)) as has_later,"
    " (select min(x.said_at) from version_evidence x where x.store_uid = $1 and x.actor_id = $4"
    " and x.entry_uid = $2 and x.version = v.version and x.said_at > $3) as restated_at"
)


class Slots:
    def __init__(
        self, tx: Tx, store_uid: UUID, actor_id: str, actor_no: int, language: str, writer: Writer, indexing: Indexing
    ) -> None:
        self.store_uid = store_uid
        self.actor_id = actor_id
        self.actor_no = actor_no
        self.language = language
        self._tx = tx
        self._writer = writer
        self._rows = Rows(tx, store_uid, actor_id, actor_no, language, writer, indexing)

    @classmethod
    async def hold(cls, tx: Tx, store: OpenStore, actor_id: str, writer: Writer, indexing: Indexing) -> "Slots":
        """Holds the row of an actor whose turn it is; a new actor starts with the store's language."""
        [slots] = await cls.hold_all(tx, store, {actor_id: writer}, indexing)
        return slots

    @classmethod
    async def hold_all(
        cls, tx: Tx, store: OpenStore, writers: Mapping[str, Writer], indexing: Indexing
    ) -> list["Slots"]:
        """As `hold`, for several actors, with who writes to each; in their order.

        Raises `Contended` where several are held and one is to be analysed anew: nobody waits for that but its own.
        """
        rows = await tx.fetch(
            "with held as (select actor_id, actor_no, language, analysis_version from actor_stats"
            "  where store_uid = $1 and actor_id = any($2::text[]) order by actor_id for update),"
            " made as (insert into actor_stats (store_uid, actor_id, language, analysis_version)"
            "  select $1, wanted.actor_id, $3, $4 from unnest($2::text[]) wanted (actor_id)"
            "  where not exists (select from held where held.actor_id = wanted.actor_id)"
            "  returning actor_id, actor_no, language, analysis_version)"
            " select * from held union all select * from made",
            store.store_uid,
            list(writers),
            store.language or indexing.language,
            indexing.version,
        )
        held = {row["actor_id"]: row for row in rows}
        stale = [row for row in rows if row["analysis_version"] != indexing.version]
        if stale and len(rows) > 1:
            raise Contended
        for row in stale:
            await reindex(tx, store.store_uid, row["actor_id"], row["actor_no"], row["language"], indexing)
        return [
            cls(
                tx,
                store.store_uid,
                actor_id,
                held[actor_id]["actor_no"],
                held[actor_id]["language"],
                writer,
                indexing,
            )
            for actor_id, writer in writers.items()
        ]

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

    async def around(self, slot: Entry, at: datetime, line: Source | None) -> Around:
        """What the slot's history holds before and after a moment, in which `line` was said."""
        rows = await self._tx.fetch(
            f"(select {VERSION_COLUMNS}, true as is_held, {_RESTS} from entry_versions v"
            " where v.store_uid = $1 and v.entry_uid = $2 and v.valid_from < $3"
            " order by v.valid_from desc, v.recorded_at desc, v.version desc limit 1)"
            f" union all (select {VERSION_COLUMNS}, true, {_RESTS} from entry_versions v"
            " where v.store_uid = $1 and v.entry_uid = $2 and v.valid_from = $3"
            " order by v.recorded_at, v.version)"
            f" union all (select {VERSION_COLUMNS}, false, false, false, null"
            " from entry_versions v where v.store_uid = $1 and v.entry_uid = $2 and v.valid_from > $3"
            " order by v.valid_from, v.recorded_at, v.version limit 1)",
            self.store_uid,
            slot.entry_uid,
            at,
            self.actor_id,
            line and line.session_uid,
            line and line.position,
        )
        held = [
            Held(version_from(row), row["has_line"], row["has_later"], row["restated_at"])
            for row in rows
            if row["is_held"]
        ]
        held.sort(key=lambda each: each.version.in_order)
        return Around(held, next((version_from(row) for row in rows if not row["is_held"]), None))

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

    async def free_id(self, wanted: str) -> str:
        """For an entry that is about to be there: this id, or a new one where another entry has it."""
        [entry_id] = await free_ids(self._tx, self.store_uid, [wanted])
        return entry_id

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
        proofs: Sequence[Proof] = (),
    ) -> Entry:
        """A slot that was never there. Raises `asyncpg.UniqueViolationError` when another entry has this id."""
        entry = first_version(
            self.actor_id,
            path,
            session_id,
            value,
            at,
            recorded_at=recorded_at,
            source_type=source_type,
            entry_id=entry_id,
        )
        await self._rows.save(entry, at, recorded_at, proofs, is_derived=self._writer.batch_id is not None)
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
        proofs: Sequence[Proof] = (),
    ) -> Entry:
        """A further version of a slot, which rests on `proofs`.

        `entry_id` names it anew, for a retired slot that becomes a new entry; without it the slot comes back under its
        id, if that is free. `carries`: the version whose words it repeats, so that it rests on the same evidence and is
        erased with it.
        """
        if entry_id is None and slot.value.retired and addition.is_current and not addition.value.retired:
            entry_id = await self.free_id(slot.entry_id)
        entry = replace(
            with_version(slot, recorded_at, holds_since),
            entry_id=entry_id or slot.entry_id,
            source_type=source_type or slot.source_type,
        )
        if not addition.is_current:
            await self._rows.add_history(entry, addition, recorded_at, proofs)
            return entry
        entry = made_current(entry, addition.value)
        is_derived = await self._is_derived(entry, carries)
        await self._rows.save(entry, addition.at, recorded_at, proofs, is_derived=is_derived)
        if carries is not None:
            await carry(self._tx, entry, self.store_uid, source=carries)
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
            await self._rows.drop(slot)
            return None
        last = told[-1]
        entry_id = slot.entry_id
        if slot.value.retired and not last.value.retired:
            entry_id = await self.free_id(entry_id)
        entry = replace(slot, entry_id=entry_id, version=last.version, value=last.value, valid_from=holds_since(told))
        is_derived = rows[-1]["is_derived"]
        await self._rows.save(entry, last.valid_from, slot.last_recorded_at, is_derived=is_derived, is_there=True)
        return entry

    async def move_evidence(
        self, slot: Entry, *, source: int, target: int, since: datetime, after: Source | None
    ) -> None:
        await move(self._tx, slot, self.store_uid, source=source, target=target, since=since, after=after)

    async def support(self, slot: Entry, version: int, proofs: Sequence[Proof]) -> None:
        """Adds evidence; lines that a version rests on already add nothing."""
        await support(self._tx, slot, self.store_uid, version, proofs)
