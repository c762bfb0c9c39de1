"""Every event comes twice, and all of them once more when everything is long done: each fact is there once."""

from nats.aio.msg import Msg

from libs.contracts.events import BatchesApplied, ItemsAppended, MemoriesDistilled
from tests.fault.broker import connected, publish
from tests.support.cluster import Cluster
from tests.support.load import Load, judged

EVENTS = (ItemsAppended, MemoriesDistilled, BatchesApplied)


async def test_an_event_that_comes_twice_is_handled_once(running: Cluster, load: Load) -> None:
    seen: set[bytes] = set()

    async with connected(running.nats.url) as client:
        stream = client.jetstream()

        async def once_more(message: Msg) -> None:
            if message.data not in seen:
                seen.add(message.data)
                await publish(stream, message.subject, message.data)

        for event in EVENTS:
            await client.subscribe(event.subject, cb=once_more)
        await load.run(lambda done: done >= 10)

        await judged(running, load.ledger)

    assert len(seen) > len(load.ledger.appends)


async def test_events_of_long_ago_change_nothing(running: Cluster, load: Load) -> None:
    heard: list[Msg] = []

    async def hear(message: Msg) -> None:
        heard.append(message)

    async with connected(running.nats.url) as client:
        stream = client.jetstream()
        listening = [await client.subscribe(event.subject, cb=hear) for event in EVENTS]
        await load.run(lambda done: done >= 5)
        await judged(running, load.ledger)
        for each in listening:
            await each.unsubscribe()
        for message in heard:
            await publish(stream, message.subject, message.data)
        await load.run(lambda done: done >= 2)

    await judged(running, load.ledger)
    assert {message.subject for message in heard} == {event.subject for event in EVENTS}
