"""An actor's postings made anew, whole: nothing ever mixes two analyses within an actor."""

import asyncio
from uuid import UUID

from libs.chassis.housekeeping import Pass
from libs.chassis.unit_of_work import Tx
from services.memory.domain import Entry
from services.memory.indexing import Indexing
from services.memory.store.access import open_store_for_batch
from services.memory.store.records import ENTRY_COLUMNS, entry_from

CHUNK = 500


async def reindex(tx: Tx, store_uid: UUID, actor_id: str, actor_no: int, language: str, indexing: Indexing) -> None:
    """Analyses every current entry of an actor that the caller holds; searches see the old terms until the commit."""
    await tx.execute("delete from entry_terms where store_uid = $1 and actor_no = $2", store_uid, actor_no)
    total, after = 0.0, UUID(int=0)
    while True:
        rows = await tx.fetch(
            f"select {ENTRY_COLUMNS} from entries e where e.store_uid = $1 and e.actor_id = $2"
            " and not e.retired and e.entry_uid > $3 order by e.entry_uid limit $4",
            store_uid,
            actor_id,
            after,
            CHUNK,
        )
        if not rows:
            break
        entries = [entry_from(row) for row in rows]
        after = entries[-1].entry_uid
        analysed = await asyncio.to_thread(_analyse, entries, language, indexing)
        for entry, (terms, length) in zip(entries, analysed, strict=True):
            ordered = sorted(terms)
            await tx.execute(
                "with posted as (insert into entry_terms (store_uid, actor_no, term, entry_uid, frequency, length)"
                " select $1, $3, p.term, $2, p.frequency, $6 from unnest($4::text[], $5::float8[]) p (term, frequency))"
                " update entries set terms = $4, length = $6 where store_uid = $1 and entry_uid = $2",
                store_uid,
                entry.entry_uid,
                actor_no,
                ordered,
                [terms[term] for term in ordered],
                length,
            )
            total += length
    await tx.execute(
        "update actor_stats set language = $3, analysis_version = $4, total_length = $5"
        " where store_uid = $1 and actor_id = $2",
        store_uid,
        actor_id,
        language,
        indexing.version,
        total,
    )


def _analyse(entries: list[Entry], language: str, indexing: Indexing) -> list[tuple[dict[str, float], float]]:
    return [indexing.terms_now(entry.path, entry.value, language) for entry in entries]


def reanalysis(indexing: Indexing) -> Pass:
    """Finds actors whose terms are not those of their store's language and of this analysis, one at a time."""

    async def run(tx: Tx) -> int:
        other = (
            "select a.actor_id from actor_stats a where a.store_uid = s.store_uid and (a.language, a.analysis_version)"
        )
        wanted = "(coalesce(s.options->>'language', $1), $2) limit 1"
        row = await tx.fetchrow(
            "select s.store_uid, a.actor_id, coalesce(s.options->>'language', $1) as language"
            f" from memory_stores s cross join lateral (({other} < {wanted}) union all ({other} > {wanted})) a limit 1",
            indexing.language,
            indexing.version,
        )
        if row is None or await open_store_for_batch(tx, row["store_uid"], row["actor_id"]) is None:
            return 0
        actor_no = await tx.fetchval(
            "select actor_no from actor_stats where store_uid = $1 and actor_id = $2 for update",
            row["store_uid"],
            row["actor_id"],
        )
        if actor_no is not None:
            await reindex(tx, row["store_uid"], row["actor_id"], actor_no, row["language"], indexing)
        return 1

    return Pass("reanalyse_actors", run, batch=1)
