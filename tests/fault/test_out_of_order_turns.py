"""Events come in any order: a session is distilled from its watermark, not from what a message says."""

import random
from collections.abc import Callable

from libs.contracts.events import ItemsAppended
from tests.fault.broker import connected, publish, published
from tests.support.cluster import Cluster, cluster
from tests.support.ledger import Ledger
from tests.support.load import Load, judged
from tests.support.servers import PostgresServer
from tests.support.service import until

NO_SWEEP = {"distiller": {"SWEEP_INTERVAL_S": "3600"}}


async def test_events_in_reverse_or_in_random_order_distil_every_line_once(
    postgres: PostgresServer, ledger: Ledger, seed: int
) -> None:
    orders: tuple[Callable[[list[bytes]], None], ...] = (list.reverse, random.Random(seed).shuffle)

    async with cluster(postgres, settings=NO_SWEEP, seed=seed) as running, connected(running.nats.url) as client:
        load = Load(running, ledger, seed, pause_s=0.0)
        stream = client.jetstream()
        for reorder in orders:
            await running.halt("distiller")
            await stream.purge_stream("SESSION")
            before = len(ledger.appends)
            await load.run(lambda done: done >= 6)
            await until(lambda: is_published(running))
            events = await published(stream, ItemsAppended.subject)
            await stream.purge_stream("SESSION")
            reorder(events)
            for event in events:
                await publish(stream, ItemsAppended.subject, event)
            running.resume("distiller")

            assert len(events) == len(ledger.appends) - before
            await judged(running, ledger)


async def is_published(running: Cluster) -> bool:
    return await running.count("session", "outbox") == 0
