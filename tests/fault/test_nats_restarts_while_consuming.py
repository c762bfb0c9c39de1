"""The broker stops, dies and comes back under load; what was committed meanwhile is distilled afterwards."""

import asyncio

from tests.support.cluster import Cluster
from tests.support.load import Load, judged

AWAY_S = 2.0


async def test_nothing_is_lost_or_doubled_when_nats_restarts_and_dies_under_load(
    running: Cluster, load: Load, is_soak: bool
) -> None:
    async def restart() -> None:
        for number in range(10 if is_soak else 2):
            await asyncio.sleep(1)
            if number % 2:
                running.nats.kill()
            else:
                await running.nats.stop()
            await asyncio.sleep(AWAY_S)
            await running.nats.start()
            await running.ready()

    restarting = asyncio.create_task(restart())
    await load.run(lambda _: restarting.done())
    await restarting

    await judged(running, load.ledger)
    assert load.retried == 0, "appends must not notice that the broker is away"
