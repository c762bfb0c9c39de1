"""One of two distillers is killed under load: what the other lanes feel of it."""

import asyncio

import asyncpg

from tests.bench.client import connections
from tests.bench.freshness import (
    ACTORS,
    CONNECTIONS,
    LASTS_S,
    WARM_UP_S,
    Connections,
    Freshness,
    Told,
    stream_to_memory,
)
from tests.bench.report import Row, at_most
from tests.bench.stand import Stand
from tests.bench.windows import percentile

PER_S = 20


async def kill_rows(stand: Stand, latency_ms: float) -> list[Row]:
    """The 95th percentile of freshness after the kill against before; lanes that were leased then are left out.

    The model takes `latency_ms`, so that lanes are at work at any moment.
    """
    await stream_to_memory(stand)
    async with (
        connections(stand.url("session"), CONNECTIONS) as session,
        connections(stand.url("memory"), CONNECTIONS) as memory,
    ):
        freshness = Freshness(stand, Connections(session), Connections(memory), PER_S)
        running = asyncio.ensure_future(freshness.run())
        await asyncio.wait([running], timeout=ACTORS / 500 + WARM_UP_S + LASTS_S / 2)
        leased = await _leased(stand.dsns["distiller"])
        killed_at = asyncio.get_running_loop().time()
        stand.services["distiller-2"].process.kill()
        told = await running
    others = [each for each in told if each.actor not in leased]
    before = _p95([each for each in others if each.due < killed_at])
    after = _p95([each for each in others if each.due >= killed_at])
    held = max((each.searchable_s for each in told if each.actor in leased), default=0.0)
    note = (
        f"{PER_S} appends/s over {ACTORS} actors, a model that takes {latency_ms:.0f} ms, quiet period 0; the reference"
        f" is before the kill; {len(leased)} lanes were leased then, their slowest append took {held:.1f} s"
    )
    return [
        Row("append → searchable after SIGKILL of one of 2 distillers, p95", "ms", after, before, at_most(1.2), note)
    ]


async def _leased(dsn: str) -> set[str]:
    connection = await asyncpg.connect(dsn, timeout=30)
    try:
        rows = await connection.fetch("select actor_id from lanes where lease_until > now()")
    finally:
        await connection.close()
    return {row["actor_id"] for row in rows}


def _p95(told: list[Told]) -> float:
    return percentile([each.searchable_s for each in told], 0.95) * 1e3
