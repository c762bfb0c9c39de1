"""The table of lanes alone: what picking costs when few of many are due, and how fast marks are taken."""

import asyncio
import time
from datetime import UTC, datetime

import asyncpg

from libs.chassis import migrations
from libs.chassis.command import revisions
from libs.chassis.database import Database
from libs.contracts.ids import uuid7
from services.distiller.settings import DistillerSettings
from services.distiller.store import Lanes, Leases, Mark
from tests.bench.report import Row, at_most
from tests.bench.stand import Stand
from tests.bench.windows import percentile

LANES = 100_000
DUE_SHARE = 0.01
PICKS = 300
MARKS_AT_ONCE = 200
MARKED_S = 4.0
WORKSPACES = 10


async def lane_rows(stand: Stand) -> list[Row]:
    dsn = await stand.make_database("bench_lanes")
    await asyncio.to_thread(migrations.upgrade, dsn, revisions("distiller"))
    database = Database(dsn, pool_size=2)
    try:
        await _fill(dsn)
        return [*await _picking(Leases(database)), await _marking(database)]
    finally:
        await database.close()


async def _fill(dsn: str) -> None:
    connection = await asyncpg.connect(dsn, timeout=30)
    try:
        await connection.execute(
            "insert into pipelines (pipeline_uid, workspace_id, session_store_uid, session_store_id, memory_store_uid,"
            " memory_store_id, trigger, quiet_period_s, max_wait_s, creator_type, creator)"
            " select gen_random_uuid(), n, gen_random_uuid(), 'chats', gen_random_uuid(), 'facts', 'CONTINUOUS', 0, 0,"
            " 'USER', 'ana@example.com' from generate_series(1, $1::int) n",
            WORKSPACES,
        )
        await connection.execute(
            "insert into lanes (pipeline_uid, actor_id, workspace_id, due_at)"
            " select p.pipeline_uid, 'actor-' || n, p.workspace_id,"
            "  case when n % $2::int = 0 then now() - interval '1 minute' else now() + interval '1 hour' end"
            " from generate_series(1, $1::int) n join pipelines p on p.workspace_id = 1 + (n / $2::int) % $3::int",
            LANES,
            round(1 / DUE_SHARE),
            WORKSPACES,
        )
        await connection.execute("vacuum analyze lanes")
    finally:
        await connection.close()


async def _picking(leases: Leases) -> list[Row]:
    settings = DistillerSettings(database_url="postgresql://unused")  # type: ignore[arg-type]
    took = []
    for _ in range(PICKS):
        begun = time.perf_counter()
        found = await leases.due(settings.lanes_per_turn, settings.lanes_per_process, ())
        took.append((time.perf_counter() - begun) * 1e3)
        assert len(found) == settings.lanes_per_process
    note = f"{LANES:,} lanes of {WORKSPACES} workspaces, {DUE_SHARE:.0%} due; p95 {percentile(took, 0.95):.2f} ms"
    return [Row("picking due lanes, p50", "ms", percentile(took, 0.5), None, at_most(2), note)]


async def _marking(database: Database) -> Row:
    """Each mark of another session, as the handler gathers them."""
    store_uid = await database.fetchval("select session_store_uid from pipelines where workspace_id = 1")
    lanes, count = Lanes(database), 0
    begun = time.perf_counter()
    while (elapsed := time.perf_counter() - begun) < MARKED_S:
        now = datetime.now(UTC)
        await lanes.mark(
            [
                Mark(store_uid, uuid7(), f"s{number}", f"marked-{number}", 1, now)
                for number in range(count, count + MARKS_AT_ONCE)
            ]
        )
        count += MARKS_AT_ONCE
    note = f"{MARKS_AT_ONCE} at once, each a new lane and session beside {LANES:,} others, one connection"
    return Row("lane marks", "/s", count / elapsed, None, None, note)
