"""SIGTERM under load: each request is finished or refused, each process ends by itself, and nothing is lost."""

import asyncio
import signal

from tests.support.cluster import SERVICES, Cluster
from tests.support.load import Load, judged

STOPPED = (0, -signal.SIGTERM)


async def test_a_service_that_is_told_to_stop_under_load_finishes_or_refuses(
    running: Cluster, load: Load, is_soak: bool
) -> None:
    statuses: dict[str, list[int]] = {service: [] for service in SERVICES}

    async def stop_each() -> None:
        for _ in range(5 if is_soak else 1):
            for service in SERVICES:
                await asyncio.sleep(0.5)
                for replica in running.of(service):
                    count = len(replica.statuses)
                    replica.send(signal.SIGTERM)
                    async with asyncio.timeout(20):
                        while len(replica.statuses) == count:  # noqa: ASYNC110 - the keeper finds it, and starts another
                            await asyncio.sleep(0.02)
                    statuses[service].append(replica.statuses[-1])
                await running.ready()

    load.pause_s = 0.01
    stopping = asyncio.create_task(stop_each())
    await load.run(lambda _: stopping.done())
    await stopping

    await judged(running, load.ledger)
    assert all(status in STOPPED for each in statuses.values() for status in each), statuses
