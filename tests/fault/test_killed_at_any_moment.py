"""kill -9 of any process at any moment: nothing is lost or doubled, the order is kept, every fact is there once.

Tried on copies: a session service that answers before its commit fails here (lost), one that forgets Idempotency-Keys
fails here (doubled), and Postgres with `synchronous_commit = off` fails in `test_postgres_restarts.py` (lost). A memory
service that acknowledges messages before its commit does not, for what that loses is emitted again;
`test_killed_after_commit_before_ack.py` finds it.
"""

import asyncio
import random

from tests.support.cluster import SERVICES, Cluster, cluster
from tests.support.ledger import Ledger, told
from tests.support.load import Load, faults_of
from tests.support.servers import PostgresServer


async def kill_in_rounds(running: Cluster, rounds: int, rng: random.Random) -> None:
    """In each round every service dies once, at a random moment of a second and a half in which all three work.

    In one round of five the next begins before everybody is back.
    """
    for _ in range(rounds):
        if rng.random() < 0.8:
            await running.ready()
        for pause_s, service in sorted((rng.uniform(0.0, 1.5), service) for service in SERVICES):
            asyncio.get_running_loop().call_later(pause_s, running.kill, service)
        await asyncio.sleep(1.5)


async def test_nothing_is_lost_or_doubled_when_any_process_is_killed_at_any_moment(
    postgres: PostgresServer, ledger: Ledger, seed: int, is_soak: bool
) -> None:
    rounds, replicas = (67, {"distiller": 2, "memory": 2}) if is_soak else (5, {})

    async with cluster(postgres, replicas=replicas, seed=seed) as running:
        load = Load(running, ledger, seed)
        killing = asyncio.create_task(kill_in_rounds(running, rounds, random.Random(seed)))
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
