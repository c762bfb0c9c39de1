"""A process dies between its commit and its acknowledgement, or inside its transaction: the batch is applied once."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg

from libs.contracts.events import MemoriesDistilled
from libs.contracts.topology import consumers_of
from tests.fault.broker import connected, redelivers_after
from tests.support.cluster import Cluster, cluster
from tests.support.ledger import Ledger
from tests.support.load import Load, judged
from tests.support.servers import PostgresServer
from tests.support.service import until

NO_HELP = {"distiller": {"SWEEP_INTERVAL_S": "3600", "UNANSWERED_AFTER_S": "3600"}}
QUICKLY_S = 2.0
WAITING = (
    "select count(*) from pg_locks l join pg_database d on d.oid = l.database"
    " where d.datname = current_database() and not l.granted"
)


@asynccontextmanager
async def batches_held(running: Cluster) -> AsyncIterator[None]:
    """While it lasts, the memory service cannot finish the transaction that applies a batch."""
    connection = await asyncpg.connect(running.dsns["memory"], timeout=10)
    try:
        async with connection.transaction():
            await connection.execute("lock table batches in exclusive mode")
            yield
    finally:
        await connection.close()


async def append_one_fact(running: Cluster, load: Load) -> str:
    """Its actor."""
    session, actor = f"{load.name}-s", f"{load.name}-a"
    await running.make_session(session, actor)
    await load.append(session, actor, [load.script.fact()], key=load.name)
    return actor


async def is_held_up(running: Cluster) -> bool:
    return bool((await running.rows("memory", WAITING))[0][0])


async def applied(running: Cluster, actor: str) -> int:
    return await running.count("memory", "batches", f"actor_id = '{actor}'")


async def test_a_batch_that_was_committed_but_not_acknowledged_is_applied_once(running: Cluster, load: Load) -> None:
    async with batches_held(running):
        actor = await append_one_fact(running, load)
        await until(lambda: is_held_up(running))
        running.nats.kill()

    async def is_committed() -> bool:
        return await applied(running, actor) == 1

    await until(is_committed)
    await running.halt("memory")
    await running.nats.start()
    running.resume("memory")
    await running.ready()

    await judged(running, load.ledger)
    assert await applied(running, actor) == 1


async def test_the_broker_alone_brings_again_what_was_not_committed(
    postgres: PostgresServer, ledger: Ledger, seed: int
) -> None:
    """With the sweep and the re-emission switched off, an acknowledgement before the commit would lose the batch."""
    async with cluster(postgres, settings=NO_HELP, seed=seed) as running:
        load = Load(running, ledger, seed)
        async with batches_held(running):
            actor = await append_one_fact(running, load)
            await until(lambda: is_held_up(running))
            await running.halt("memory")
        running.resume("memory")
        await running.ready()
        async with connected(running.nats.url) as client:
            consumer = next(each for each in consumers_of("memory") if each.event is MemoriesDistilled)
            await redelivers_after(client.jetstream(), consumer, QUICKLY_S)

        await judged(running, ledger)
        assert await applied(running, actor) == 1


async def test_a_batch_whose_transaction_died_with_its_process_is_applied_by_the_next(
    running: Cluster, load: Load
) -> None:
    async with batches_held(running):
        actor = await append_one_fact(running, load)
        await until(lambda: is_held_up(running))
        await running.halt("memory")

    assert await applied(running, actor) == 0
    running.resume("memory")
    await running.ready()
    await judged(running, load.ledger)
    assert await applied(running, actor) == 1
