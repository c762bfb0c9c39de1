"""NATS is away for longer than any timer of a healthy system while items are appended; nobody appends afterwards."""

import asyncio

import pytest

from tests.support.cluster import Cluster, cluster
from tests.support.ledger import Ledger
from tests.support.load import Load, judged
from tests.support.servers import PostgresServer
from tests.support.service import until

AWAY_S, SOAKED_AWAY_S = 5.0, 20.0  # re-emission comes after 4 s, the sweep after 2, the relay's after 1


@pytest.mark.parametrize("replicas", [1, 3])
async def test_items_appended_while_nats_is_away_are_distilled_without_a_further_append(
    postgres: PostgresServer, ledger: Ledger, seed: int, is_soak: bool, replicas: int
) -> None:
    async with cluster(postgres, replicas={"distiller": replicas, "memory": replicas}, seed=seed) as running:
        load = Load(running, ledger, seed)
        await running.make_session("s1", "ana")
        await running.nats.stop()

        append = ledger.begin("s1", "ana", [load.script.fact() for _ in range(3)], key="k1")
        is_answered = await load.tried(append)
        await asyncio.sleep(SOAKED_AWAY_S if is_soak else AWAY_S)
        await running.nats.start()
        if not is_answered:
            await load.answered(append)

        await judged(running, ledger)
        assert append.answers[0] == (1, 2, 3)
        assert len(await running.entries("ana")) == 3
        await until(lambda: nothing_is_pending(running))


async def nothing_is_pending(running: Cluster) -> bool:
    gauges = [await running.metric(replica, "memstream_outbox_pending") for replica in running.replicas]
    return sum(gauges) == 0
