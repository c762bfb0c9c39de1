"""BM25 from the posting table: only the rows of one actor's query terms are read, whatever else the store holds.

The formula is that of `ranking.score`, which a test holds it to; here it runs where the postings are.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from libs.chassis.auth import Caller
from libs.chassis.database import Database
from services.memory.domain import Entry
from services.memory.ranking import K1, VECTOR_SHARE, B
from services.memory.store.access import STORE, permitted
from services.memory.store.filters import Filter
from services.memory.store.records import ENTRY_COLUMNS, EVIDENCE, Found, entry_from, found_from

# Of the terms `$3`, none of them twice.
_TERMS = """
actor as (
    select actor_no, language, embedding_space, entry_count, total_length / greatest(entry_count, 1) as average
    from actor_stats where store_uid = $1 and actor_id = $2
),
posting as materialized (
    select t.term, t.entry_uid, t.frequency, t.length from actor a
    join entry_terms t on t.store_uid = $1 and t.actor_no = a.actor_no and t.term = any($3::text[])
),
known as (select term, count(*) as entries from posting group by term),
idf as (
    select q.term, ln(1 + (greatest(a.entry_count - coalesce(k.entries, 0), 0) + 0.5::float8)
        / (coalesce(k.entries, 0) + 0.5::float8)) as idf
    from actor a cross join unnest($3::text[]) q (term) left join known k on k.term = q.term
)
"""

_SCORE = f"""
round(1e9::float8 * sum(w.weight * p.frequency / (p.frequency + case
    when p.length > a.average and a.average > 0
    then {K1}::float8 * (1 - {B}::float8 + {B}::float8 * p.length / a.average)
    else {K1}::float8 end))) / 1e9::float8 as score
"""

_RANKED = f"""
{_TERMS},
weight as (select term, idf / sum(idf) over () as weight from idf),
ranked as (
    select p.entry_uid, {_SCORE} from posting p join weight w on w.term = p.term cross join actor a
    group by p.entry_uid
)
"""

# For each of many texts, the entries of no single session: `$4` are terms, `$5` the numbers of the texts they stand in.
_RANKED_FOR_EACH = f"""
{_TERMS},
weight as (
    select t.text_no, t.term, i.idf / sum(i.idf) over (partition by t.text_no) as weight
    from unnest($4::text[], $5::int[]) t (term, text_no) join idf i on i.term = t.term
),
ranked as (
    select w.text_no, p.entry_uid, {_SCORE} from posting p join weight w on w.term = p.term cross join actor a
    where p.entry_uid not in (
        select entry_uid from entries where store_uid = $1 and actor_id = $2 and session_id is not null)
    group by w.text_no, p.entry_uid
),
placed as (
    select entry_uid, text_no, row_number() over (partition by text_no order by score desc, entry_uid desc) as place
    from ranked where score > 0
)
"""


# The score of `ranking.combined`, over every vector of the actor: exact, and cheap up to some ten thousand.
_SCORED = f"""
query as (select l2_normalize($8::text::vector)::halfvec as vector),
near as materialized (
    select v.entry_uid, least(1, greatest(0, -(v.vector <#> q.vector))) as cosine
    from query q cross join actor a
    join entry_vectors v on v.store_uid = $1 and v.actor_no = a.actor_no and v.space = a.embedding_space
    where a.embedding_space = $9 and v.vector is not null
),
scored as (
    select entry_uid, case when n.cosine is null then r.score
        else round(1e9::float8 * ((1 - {VECTOR_SHARE}::float8) * coalesce(r.score, 0)
            + {VECTOR_SHARE}::float8 * n.cosine)) / 1e9::float8 end as score
    from ranked r full join near n using (entry_uid)
)
"""


@dataclass(frozen=True, slots=True)
class Asked:
    """What a search is for."""

    actor_id: str
    query: str
    wanted: Filter
    min_score: float
    limit: int


@dataclass(frozen=True, slots=True)
class Near:
    """The query as a vector in a space."""

    vector: str
    space: str


@dataclass(frozen=True, slots=True)
class Hits:
    """What the actor's terms were made with, and the space of its vectors; `language` None: it never had an entry."""

    language: str | None
    space: str
    found: list[Found]


class Index:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def search(
        self,
        caller: Caller,
        store_uid: UUID,
        asked: Asked,
        terms: Sequence[str],
        near: Near | None,
    ) -> Hits:
        """The best entries for query terms and vector: ties by update time, then name."""
        arguments: list[Any] = [store_uid, asked.actor_id, terms, asked.limit, asked.min_score]
        arguments += [caller.principal_type, caller.principal]
        store = STORE.replace("$2", "$6").replace("$3", "$7")
        ranking, best = _RANKED, "ranked"
        if near is not None:
            arguments += [near.vector, near.space]
            ranking, best = f"{_RANKED}, {_SCORED}", "scored"
        hits = _hits(f"{ENTRY_COLUMNS}, {EVIDENCE}", best, asked.wanted, arguments)
        rows = await self._database.fetch(
            f"with s as ({store}), {ranking} select s.level, a.language, a.embedding_space, h.*"
            f" from s left join actor a on true left join lateral ({hits}) h"
            " on s.level >= 1 order by h.score desc, h.update_time desc, h.entry_id",
            *arguments,
        )
        found = [found_from(row, row["score"]) for row in permitted(rows) if row["entry_uid"] is not None]
        return Hits(rows[0]["language"], rows[0]["embedding_space"] or "", found)

    async def related(
        self, store_uid: UUID, actor_id: str, texts: Sequence[Sequence[str]], limit: int
    ) -> tuple[str | None, list[Entry]]:
        """As `search`, for the distiller: the actor's language, and slots that it may write, from the terms of texts.

        The best of each text come first, then the second best, without doubles; of equals those made last.
        """
        pairs = [(term, number) for number, terms in enumerate(texts) for term in terms]
        rows = await self._database.fetch(
            f"with {_RANKED_FOR_EACH}, best as (select entry_uid, min(array[place, text_no]) as turn from placed"
            "  where place <= $6 group by entry_uid order by turn limit $6)"
            f" select a.language, {ENTRY_COLUMNS} from actor a left join best b on true"
            " left join entries e on e.store_uid = $1 and e.entry_uid = b.entry_uid order by b.turn",
            store_uid,
            actor_id,
            list({term for term, _ in pairs}),
            [term for term, _ in pairs],
            [number for _, number in pairs],
            limit,
        )
        found = [entry_from(row) for row in rows if row["entry_uid"] is not None]
        return rows[0]["language"] if rows else None, found


def _hits(columns: str, ranked: str, wanted: Filter, arguments: list[Any], extra: str = "") -> str:
    """The best `$4` entries; without a filter, entries are looked up only for those that can be among them."""
    conditions = wanted.sql(arguments) + extra
    best = ranked if conditions else f"(select * from {ranked} order by score desc fetch first $4 rows with ties)"
    return (
        f"select r.score, {columns} from {best} r"
        " join entries e on e.store_uid = $1 and e.entry_uid = r.entry_uid"
        f" where r.score > 0 and r.score >= $5{conditions}"
        " order by r.score desc, e.update_time desc, e.entry_id limit $4"
    )
