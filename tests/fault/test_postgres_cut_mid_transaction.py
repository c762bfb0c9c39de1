"""Every connection to the databases is cut again and again under load, wherever its statement happens to be."""

import asyncio
import random
from urllib.parse import urlsplit

import asyncpg

from tests.support.cluster import Cluster
from tests.support.load import Load, judged

CUT = (
    "select count(pg_terminate_backend(pid)) from pg_stat_activity where datname = any($1) and pid <> pg_backend_pid()"
)


async def test_nothing_is_lost_or_doubled_when_connections_are_cut_under_load(
    running: Cluster, load: Load, seed: int, is_soak: bool
) -> None:
    rng = random.Random(seed)
    databases = [urlsplit(dsn).path.lstrip("/") for dsn in running.dsns.values()]
    cut = 0

    async def keep_cutting() -> None:
        nonlocal cut
        connection = await asyncpg.connect(running.postgres.dsn(), timeout=10)
        try:
            for _ in range(200 if is_soak else 25):
                await asyncio.sleep(rng.uniform(0.05, 0.3))
                cut += await connection.fetchval(CUT, databases)
        finally:
            await connection.close()

    load.pause_s = 0.02
    cutting = asyncio.create_task(keep_cutting())
    await load.run(lambda _: cutting.done())
    await cutting

    await judged(running, load.ledger)
    assert cut > 0
