"""What tests do to the broker by hand: send an event again, send nonsense, read back what went through."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import nats
from nats.aio.client import Client
from nats.js import JetStreamContext
from nats.js.api import ConsumerConfig, DeliverPolicy

from libs.contracts.topology import Consumer

CONNECT_TIMEOUT_S = 10
FETCH_TIMEOUT_S = 1


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[Client]:
    client = await nats.connect(url, connect_timeout=CONNECT_TIMEOUT_S, max_reconnect_attempts=-1)
    try:
        yield client
    finally:
        await client.close()


async def publish(stream: JetStreamContext, subject: str, payload: bytes | str) -> None:
    """Without a message id, so that the broker takes it for a new message."""
    await stream.publish(subject, payload.encode() if isinstance(payload, str) else payload)


async def redelivers_after(stream: JetStreamContext, consumer: Consumer, seconds: float) -> None:
    """Also what is waiting for its acknowledgement now; until its service starts again and sets its own time."""
    config = (await stream.consumer_info(consumer.stream, consumer.durable)).config
    config.ack_wait = seconds
    await stream.add_consumer(consumer.stream, config)


async def published(stream: JetStreamContext, subject: str) -> list[bytes]:
    """Every message that a stream still holds of a subject, oldest first."""
    subscription = await stream.pull_subscribe(
        subject, config=ConsumerConfig(deliver_policy=DeliverPolicy.ALL, inactive_threshold=30)
    )
    found: list[bytes] = []
    try:
        while True:
            for message in await subscription.fetch(100, timeout=FETCH_TIMEOUT_S):
                found.append(message.data)
                await message.ack()
    except TimeoutError:
        return found
    finally:
        await subscription.unsubscribe()
