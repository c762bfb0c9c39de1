"""Vectors of entries: which are missing, and how they come to be used.

What is missing is asked of the tables; whoever is told of a write only looks sooner. An actor is claimed for a while by
one replica, so that nobody pays twice; that a vector is of the entry's present words is decided under the actor's row.
An actor's searches use one space. It changes once every entry that was there has been embedded, and with it go the
vectors of any other; an entry written since then counts its words alone, like any that is new.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from uuid import UUID

from libs.chassis.database import Database
from libs.chassis.housekeeping import Pass
from libs.chassis.unit_of_work import Tx, UnitOfWork
from services.memory.indexing import embedded_text
from services.memory.store.access import open_store_for_batch

DUE_AT_ONCE = 64

# Entries of actor `a` without a vector in space $1.
_MISSING = (
    "not exists (select from entry_vectors v where v.store_uid = a.store_uid and v.actor_no = a.actor_no"
    " and v.entry_uid = e.entry_uid and v.space = $1)"
)


@dataclass(frozen=True, slots=True)
class Due:
    store_uid: UUID
    actor_id: str


@dataclass(frozen=True, slots=True)
class Claim:
    """An actor to embed. `text_changes`: what its texts were at that time, as a number."""

    store_uid: UUID
    actor_id: str
    actor_no: int
    text_changes: int


@dataclass(frozen=True, slots=True)
class Text:
    """The words of an entry's version."""

    entry_uid: UUID
    version: int
    text: str


@dataclass(frozen=True, slots=True)
class Progress:
    """How many of a store's entries are analysed as it asks, and embedded as it asks."""

    total: int
    analysed: int
    embedded: int


class Vectors:
    def __init__(self, database: Database, unit_of_work: UnitOfWork) -> None:
        self._database = database
        self._unit_of_work = unit_of_work

    async def due(self, space: str, names: Sequence[str], stores: Sequence[UUID] | None) -> list[Due]:
        """Some actors with entries to embed, of any store or of these; chance is fair to the stores."""
        actor = "select a.actor_id from actor_stats a where a.store_uid = s.store_uid"
        rows = await self._database.fetch(
            "select s.store_uid, a.actor_id from memory_stores s cross join lateral ("
            f"({actor} and a.embedding_space < $1 limit $4) union all ({actor} and a.embedding_space > $1 limit $4)"
            f" union all ({actor} and a.embedding_space = $1 and a.vectors_due limit $4)) a"
            " where s.options->>'embedding_model' = any($2::text[])"
            " and ($3::uuid[] is null or s.store_uid = any($3)) order by random() limit $4",
            space,
            names,
            stores,
            DUE_AT_ONCE,
        )
        return [Due(row["store_uid"], row["actor_id"]) for row in rows]

    async def claim(self, due: Due, lease_s: float) -> Claim | None:
        """None while somebody else is at it, or when the actor is gone."""
        rows = await self._database.write(
            "update actor_stats set embedding_until = now() + $3::interval, has_vectors = true"
            " where store_uid = $1 and actor_id = $2 and (embedding_until is null or embedding_until < now())"
            " returning actor_no, text_changes",
            due.store_uid,
            due.actor_id,
            timedelta(seconds=lease_s),
        )
        return Claim(due.store_uid, due.actor_id, rows[0]["actor_no"], rows[0]["text_changes"]) if rows else None

    async def release(self, claim: Claim) -> None:
        await self._database.write(
            "update actor_stats set embedding_until = null where store_uid = $1 and actor_id = $2",
            claim.store_uid,
            claim.actor_id,
        )

    async def missing(self, claim: Claim, space: str, limit: int) -> list[Text]:
        """Entries to embed; fewer than `limit` are all."""
        rows = await self._database.fetch(
            "select e.entry_uid, e.version, e.path, e.content, e.description"
            " from actor_stats a join entries e on e.store_uid = a.store_uid and e.actor_id = a.actor_id"
            f" where a.store_uid = $2 and a.actor_id = $3 and a.actor_no = $4 and not e.retired and {_MISSING}"
            " limit $5",
            space,
            claim.store_uid,
            claim.actor_id,
            claim.actor_no,
            limit,
        )
        return [
            Text(row["entry_uid"], row["version"], embedded_text(row["path"], row["content"], row["description"]))
            for row in rows
        ]

    async def save(
        self, claim: Claim, space: str, vectors: Sequence[tuple[Text, str | None]], *, are_the_last: bool
    ) -> None:
        """Keeps what still says the same; after the last ones the actor's searches use this space."""
        async with self._unit_of_work.begin() as tx:
            if not await _hold(tx, claim):
                return
            await tx.execute(
                "insert into entry_vectors (store_uid, actor_no, entry_uid, space, vector)"
                " select $1, $2, e.entry_uid, $3, l2_normalize(n.vector::vector)::halfvec"
                " from unnest($4::uuid[], $5::int[], $6::text[]) n (entry_uid, version, vector)"
                " join entries e on e.store_uid = $1 and e.entry_uid = n.entry_uid and e.version = n.version"
                " where not e.retired on conflict do nothing",
                claim.store_uid,
                claim.actor_no,
                space,
                [text.entry_uid for text, _ in vectors],
                [text.version for text, _ in vectors],
                [vector for _, vector in vectors],
            )
            if are_the_last:
                await tx.execute(
                    "with others as (delete from entry_vectors"
                    " where store_uid = $1 and actor_no = $3 and space <> $4)"
                    " update actor_stats set embedding_space = $4, vectors_due = text_changes <> $5"
                    " where store_uid = $1 and actor_id = $2",
                    claim.store_uid,
                    claim.actor_id,
                    claim.actor_no,
                    space,
                    claim.text_changes,
                )
            await tx.execute(
                "update actor_stats set embedding_until = null where store_uid = $1 and actor_id = $2",
                claim.store_uid,
                claim.actor_id,
            )

    async def pending(self, space: str, names: Sequence[str]) -> int:
        """Entries without a vector of their store's model."""
        count: int = await self._database.fetchval(
            "select count(*) from memory_stores s"
            " join actor_stats a on a.store_uid = s.store_uid and (a.vectors_due or a.embedding_space <> $1)"
            " join entries e on e.store_uid = a.store_uid and e.actor_id = a.actor_id and not e.retired"
            f" where s.options->>'embedding_model' = any($2::text[]) and {_MISSING}",
            space,
            names,
        )
        return count

    async def progress(self, store_uid: UUID, language: str, analysis_version: int, space: str) -> Progress:
        row = await self._database.fetchrow(
            "select coalesce(sum(a.entry_count), 0)::bigint as total,"
            " coalesce(sum(a.entry_count) filter (where a.language = $2 and a.analysis_version = $3), 0)::bigint"
            " as analysed,"
            " coalesce(sum(case when a.embedding_space = $4 and not a.vectors_due then a.entry_count else"
            " (select count(*) from entry_vectors v where v.store_uid = $1 and v.actor_no = a.actor_no"
            " and v.space = $4) end), 0)::bigint as embedded from actor_stats a where a.store_uid = $1",
            store_uid,
            language,
            analysis_version,
            space,
        )
        assert row is not None  # noqa: S101 - an aggregate has a row
        return Progress(row["total"], row["analysed"], row["embedded"])


async def _hold(tx: Tx, claim: Claim) -> bool:
    """Takes the actor's turn and row, in the order of every writer; False when it was erased meanwhile."""
    if await open_store_for_batch(tx, claim.store_uid, claim.actor_id) is None:
        return False
    actor_no = await tx.fetchval(
        "select actor_no from actor_stats where store_uid = $1 and actor_id = $2 for update",
        claim.store_uid,
        claim.actor_id,
    )
    return bool(actor_no == claim.actor_no)


async def _drop_unwanted(tx: Tx) -> int:
    """An actor at a time: vectors in a store that has no embedding model any more."""
    row = await tx.fetchrow(
        "select s.store_uid, a.actor_id from memory_stores s join actor_stats a on a.store_uid = s.store_uid"
        " where a.has_vectors and not s.options ? 'embedding_model' limit 1"
    )
    if row is None or await open_store_for_batch(tx, row["store_uid"], row["actor_id"]) is None:
        return 0
    await tx.execute(
        "with a as (update actor_stats set embedding_space = '', vectors_due = true, has_vectors = false"
        " where store_uid = $1 and actor_id = $2 returning actor_no)"
        " delete from entry_vectors v using a where v.store_uid = $1 and v.actor_no = a.actor_no",
        row["store_uid"],
        row["actor_id"],
    )
    return 1


DROP_UNWANTED = Pass("drop_unwanted_vectors", _drop_unwanted, batch=1)
