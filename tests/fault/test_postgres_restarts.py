"""Postgres dies under load, postmaster and all, and comes back; what was acknowledged is there, once."""

import asyncio
import os
import signal

from tests.support.cluster import cluster, own_postgres
from tests.support.ledger import Ledger
from tests.support.load import Load, judged


async def test_nothing_is_lost_or_doubled_when_postgres_is_killed_and_stopped_under_load(
    ledger: Ledger, seed: int, is_soak: bool
) -> None:
    async with own_postgres() as postgres, cluster(postgres, seed=seed) as running:

        async def restart() -> None:
            for number in range(10 if is_soak else 3):
                await asyncio.sleep(1)
                if number % 3 == 2:
                    await postgres.stop()
                else:
                    assert postgres.pid is not None
                    os.kill(postgres.pid, signal.SIGKILL)
                    postgres.kill()
                await asyncio.sleep(0.5)
                await postgres.start()
                await running.ready()

        load = Load(running, ledger, seed, pause_s=0.02)
        restarting = asyncio.create_task(restart())
        await load.run(lambda _: restarting.done())
        await restarting

        await judged(running, ledger)
        assert load.retried > 0
