"""A search in an actor's 1,000 entries: alone, inside a store of 1,000,000, and among 5,000 stores.

The first thousand come as a distiller's batches. The others are copies of all their rows, made by SQL, with ids, actors
and stores of their own; only the change feed, which no search reads, is left out.
"""

import itertools

import asyncpg

from tests.bench.client import connections
from tests.bench.peers.corpus import statements
from tests.bench.report import Row, at_most
from tests.bench.searches import Filling, searching, store_uid
from tests.bench.stand import MEMORY_STORE, Stand
from tests.bench.windows import Window, side_by_side

SIZE = 1_000
IN_STORE = 1_000_000
STORES = 5_000
OF_STORE = 20
ACTOR = "original"
COPY_DEADLINE_S = 1200.0

# `place` names the copies: (store_uid, actor_id, actor_no), each of the first $1 entries of the original.
_COPY = """
with original as (
    select e.* from entries e where e.actor_id = 'original' order by e.entry_uid limit $1
), copied as (
    insert into entries select p.store_uid, md5(e.entry_uid::text || p.actor_no)::uuid,
        md5(e.entry_uid::text || p.actor_no), p.actor_id, e.session_id, e.path, e.version, e.last_version, e.retired,
        e.content, e.description, e.kind, e.said_by, e.valid_from, e.last_recorded_at, e.event_date, e.source_type,
        e.create_time, e.update_time, e.terms, e.length
    from original e cross join place p
), versions as (
    insert into entry_versions select p.store_uid, p.actor_id, md5(v.entry_uid::text || p.actor_no)::uuid, v.version,
        v.retired, v.content, v.description, v.kind, v.said_by, v.valid_from, v.recorded_at, v.event_date,
        v.writer_type, v.writer, v.batch_id, v.run_id, v.is_derived
    from entry_versions v join original e using (store_uid, entry_uid) cross join place p
), evidence as (
    insert into version_evidence select p.store_uid, md5(x.evidence_uid::text || p.actor_no)::uuid, p.actor_id,
        md5(x.entry_uid::text || p.actor_no)::uuid, x.version, x.session_store_uid, x.session_store_id, x.session_uid,
        x.session_id, x.positions, x.said_by, x.said_at
    from version_evidence x join original e using (store_uid, entry_uid) cross join place p
), terms as (
    insert into entry_terms select p.store_uid, p.actor_no, t.term, md5(t.entry_uid::text || p.actor_no)::uuid,
        t.frequency, t.length
    from entry_terms t join original e using (store_uid, entry_uid) cross join place p
)
update actor_stats a set entry_count = $1, total_length = (select sum(length) from original)
from place p where a.actor_no = p.actor_no
"""
_ACTORS = """
with actor as (
    insert into actor_stats (store_uid, actor_id, language, analysis_version)
    select store_uid, 'copy ' || n, language, analysis_version
    from actor_stats cross join generate_series(1, $1::int) n where actor_id = 'original'
    returning store_uid, actor_id, actor_no
) insert into place select * from actor
"""
_STORES = """
with store as (
    insert into memory_stores (store_uid, workspace_id, store_id, metadata, options, creator_type, creator)
    select md5('store ' || n)::uuid, workspace_id, 'other-' || n, metadata, options, creator_type, creator
    from memory_stores cross join generate_series(1, $1::int) n returning *
), grants as (
    insert into store_grants (store_uid, principal_type, principal, is_creator)
    select store_uid, creator_type, creator, true from store
), actor as (
    insert into actor_stats (store_uid, actor_id, language, analysis_version)
    select s.store_uid, 'somebody', a.language, a.analysis_version
    from store s cross join actor_stats a where a.actor_id = 'original'
    returning store_uid, actor_id, actor_no
) insert into place select * from actor
"""


async def large_rows(stand: Stand, window_s: float) -> list[Row]:
    await stand.post("memory", "/memory-stores", {"display_name": MEMORY_STORE})
    await Filling(stand, await store_uid(stand)).fill(ACTOR, statements(SIZE))
    connection = await asyncpg.connect(stand.dsns["memory"], timeout=30)
    try:
        await connection.execute("create temporary table place (store_uid uuid, actor_id text, actor_no bigint)")
        await connection.execute("vacuum analyze")
        alone = await _measured(stand, window_s)
        await _copy(connection, _ACTORS, IN_STORE // SIZE - 1, SIZE)
        in_store = await _measured(stand, window_s)
        await _copy(connection, _STORES, STORES - 1, OF_STORE)
        among = await _measured(stand, window_s)
    finally:
        await connection.close()
    note = f"{SIZE:,} entries of one actor, 1 client, over HTTP; p50 alone {alone.p50_ms:.2f} ms, here"
    return [
        Row(f"search {where}, p95", "ms", found.p95_ms, alone.p95_ms, at_most(1.5), f"{note} {found.p50_ms:.2f} ms")
        for where, found in (
            (f"in a store of {IN_STORE:,}", in_store),
            (f"among {STORES:,} stores besides", among),
        )
    ]


async def _copy(connection: asyncpg.Connection, places: str, count: int, entries: int) -> None:
    await connection.execute("truncate place")
    await connection.execute(places, count, timeout=COPY_DEADLINE_S)
    await connection.execute(_COPY, entries, timeout=COPY_DEADLINE_S)
    await connection.execute("vacuum analyze", timeout=COPY_DEADLINE_S)


async def _measured(stand: Stand, window_s: float) -> Window:
    async with connections(stand.url("memory"), 1) as [one]:
        step = searching(stand, one, itertools.repeat(ACTOR))
        return (await side_by_side({"ours": [step]}, window_s))["ours"]
