"""kill -9 of any process at any moment: nothing is lost, nothing is doubled, the order is kept, every fact is there once."""

import asyncio
import random
from collections.abc import Iterator

from tests.support.cluster import SERVICES, Cluster, cluster
from tests.support.ledger import Ledger, told
from tests.support.load import Load, faults_of
from tests.support.servers import PostgresServer


def deck(rng: random.Random) -> Iterator[str]:
    """The services in random order, each as often as the others."""
    while True:
        yield from rng.sample(SERVICES, len(SERVICES))


async def kill_at_random(running: Cluster, kills: int, rng: random.Random) -> None:
    """Mostly while a replica serves; one time in five while it starts."""
    services = deck(rng)
    for service in (next(services) for _ in range(kills)):
        if rng.random() < 0.8:
            async with asyncio.timeout(60):
                while not any([await running.is_ready(replica) for replica in running.of(service)]):  # noqa: ASYNC110
                    await asyncio.sleep(0.05)
        else:
            async with asyncio.timeout(60):
                while not any(replica.is_running for replica in running.of(service)):  # noqa: ASYNC110
                    await asyncio.sleep(0.02)
        await asyncio.sleep(rng.uniform(0.0, 0.6))
        if any(replica.is_running for replica in running.of(service)):
            running.kill(service)


async def test_nothing_is_lost_or_doubled_when_any_process_is_killed_at_any_moment(
    postgres: PostgresServer, ledger: Ledger, seed: int, is_soak: bool
) -> None:
    kills, replicas = (200, {"distiller": 2, "memory": 2}) if is_soak else (20, {})
    rng = random.Random(seed)

    async with cluster(postgres, replicas=replicas, seed=seed) as running:
        load = Load(running, ledger, seed)
        killing = asyncio.create_task(kill_at_random(running, kills, rng))
        await load.run(lambda _: killing.done())
        await killing
        await running.ready()
        await running.at_rest()
        faults = await faults_of(running, ledger)
        fresh = await running.freshness_s(ledger.sessions, ledger.actors)

    rows = {f"kills of {service}": running.kills[service] for service in SERVICES} | {
        "appends": len(ledger.appends),
        "acknowledged": ledger.acknowledged,
        "tries repeated": load.retried,
        "items": sum(len(append.lines) for append in ledger.appends),
        "lost": sum("lost" in fault.kind for fault in faults),
        "doubled": sum("doubled" in fault.kind for fault in faults),
        "other faults": sum("lost" not in fault.kind and "doubled" not in fault.kind for fault in faults),
        "facts": len(fresh),
        "p50 append to searchable, s": round(fresh[len(fresh) // 2], 2),
        "p95 append to searchable, s": round(fresh[len(fresh) * 95 // 100], 2),
    }
    print("\n".join(["", *(f"{name:<30} {value}" for name, value in rows.items())]))
    assert not faults, told(faults)
    assert ledger.acknowledged == len(ledger.appends)
    assert sum(running.kills.values()) >= kills * 0.9
