"""deploy/nats on a real server: each service's user may do what its service does, and little else."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import nats
import pytest
from nats.aio.client import Client
from nats.js.api import ConsumerConfig

from libs.chassis.bus import Bus, apply_topology
from libs.chassis.database import Database
from libs.chassis.metrics import Metrics
from libs.chassis.parked import ParkedMessages
from libs.contracts.events import DistillerActorErased
from libs.contracts.ids import uuid7
from libs.contracts.topology import STREAMS, consumers_of
from services.standalone.embedded.nats import _binary
from tests.support.servers import free_port
from tests.support.service import until

DEPLOY = Path(__file__).parents[2] / "deploy"
SERVICES = ("session", "distiller", "memory")
DEADLINE_S = 20.0
REFUSED_WITHIN_S = 2.0


@pytest.fixture(scope="module")
async def url(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[str]:
    """A server with the users of deploy/nats; `{user}` stands for one of them."""
    directory = tmp_path_factory.mktemp("rights")
    port = free_port()
    text = (DEPLOY / "nats" / "nats.conf").read_text()
    text = text.replace("0.0.0.0:4222", f"127.0.0.1:{port}").replace('"/data"', f'"{directory / "data"}"')
    (directory / "nats.conf").write_text(text.replace('http: "127.0.0.1:8222"', ""))
    (directory / "users.conf").write_text((DEPLOY / "nats" / "users.conf").read_text())
    passwords = {f"NATS_PASSWORD_{service.upper()}": f"p-{service}" for service in SERVICES}
    process = await asyncio.create_subprocess_exec(
        _binary(),
        "-c",
        str(directory / "nats.conf"),
        "-l",
        str(directory / "log"),
        env={"PATH": os.defpath, **passwords},
    )
    try:
        yield f"nats://{{user}}:p-{{user}}@127.0.0.1:{port}"
    finally:
        process.send_signal(signal.SIGTERM)
        await asyncio.wait_for(process.wait(), DEADLINE_S)


@asynccontextmanager
async def user(url: str, service: str) -> AsyncIterator[tuple[Client, list[str]]]:
    """A connection as a service makes it, and what the server refused it."""
    refused: list[str] = []

    async def note(error: Exception) -> None:
        if "violation" in str(error).lower():
            refused.append(str(error).lower())

    client = await nats.connect(
        url.format(user=service),
        inbox_prefix=f"_INBOX_{service}",
        error_cb=note,
        max_reconnect_attempts=20,
        reconnect_time_wait=0.2,
    )
    try:
        yield client, refused
    finally:
        await client.close()


async def round_trip(client: Client) -> None:
    """After it the server has handled all that was sent before. nats-py's ping overtakes what its flusher still holds;
    the first one empties the flusher, so only the second one is a barrier."""
    await client.flush()
    await client.flush()


async def is_refused(client: Client, refused: list[str], subject: str) -> bool:
    """Whether the server has said so; after a round trip it has said what it has to say."""
    await round_trip(client)
    await until(lambda: any(subject.lower() in line for line in refused), deadline_s=DEADLINE_S)
    return True


@pytest.mark.parametrize("service", SERVICES)
async def test_a_service_may_do_its_work(url: str, service: str) -> None:
    async with user(url, service) as (client, refused):
        stream = client.jetstream(timeout=DEADLINE_S)
        await apply_topology(stream, service)
        for owned in STREAMS:
            if owned.name == service.upper():
                for event in owned.events:
                    await stream.publish(event.subject, b"{}")
        for consumer in consumers_of(service):
            await stream.publish(consumer.event.subject, b"{}")  # as a redrive does
            await stream.consumer_info(consumer.stream, consumer.durable)
            taken = await stream.pull_subscribe_bind(durable=consumer.durable, stream=consumer.stream)
            try:
                for message in await taken.fetch(1, timeout=0.2):
                    await message.ack_sync()
            except TimeoutError:
                pass  # its event's owner has published none yet

        await round_trip(client)
        assert refused == []


async def test_a_bus_consumes_within_its_rights(url: str) -> None:
    """A pull that waits on an inbox of another prefix is refused silently and would be deaf for ever."""
    metrics = Metrics()
    parked = ParkedMessages(Database("postgresql://nowhere", pool_size=1))
    bus = Bus("session", url.format(user="session"), parked, metrics)
    event = DistillerActorErased(workspace_id=1, store_uid=uuid7(), actor_id="ana", epoch=1, erasure_id=uuid7())
    heard: list[DistillerActorErased] = []

    async def hear(erased: DistillerActorErased) -> None:
        heard.append(erased)

    bus.consume(DistillerActorErased, hear)
    running = asyncio.create_task(bus.run())
    try:
        await until(lambda: bus.connected)
        async with user(url, "distiller") as (client, _):
            await client.jetstream(timeout=DEADLINE_S).publish(event.subject, event.model_dump_json().encode())

        await until(lambda: event in heard)
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_a_question_is_answered(url: str) -> None:
    async with user(url, "session") as (session, refused), user(url, "distiller") as (distiller, _):

        async def answer(message: Any) -> None:
            await message.respond(b"here")

        await session.subscribe("session.transcript.read", queue="session", cb=answer)
        await round_trip(session)

        reply = await distiller.request("session.transcript.read", b"{}", timeout=DEADLINE_S)

        assert reply.data == b"here"
        assert refused == []


async def test_memory_publishes_no_event_of_the_session_service(url: str) -> None:
    async with user(url, "memory") as (client, refused):
        await client.publish("session.items.appended.v1", b"{}")

        assert await is_refused(client, refused, 'publish to "session.items.appended.v1"')


@pytest.mark.parametrize("subject", ["session.items.appended.v1", "session.>", "_INBOX_session.>", "_INBOX.>", ">"])
async def test_memory_listens_to_nobody_elses_messages(url: str, subject: str) -> None:
    async with user(url, "memory") as (client, refused):
        await client.subscribe(subject)

        assert await is_refused(client, refused, f'subscription to "{subject}"')


@pytest.mark.parametrize(
    "call",
    [
        "CONSUMER.MSG.NEXT.SESSION.distiller-items-appended",
        "CONSUMER.MSG.NEXT.MEMORY.distiller-batches-applied",
        "STREAM.MSG.GET.SESSION",
        "DIRECT.GET.SESSION",
        "STREAM.DELETE.SESSION",
        "STREAM.PURGE.SESSION",
        "CONSUMER.DELETE.SESSION.distiller-items-appended",
        "CONSUMER.CREATE.SESSION.spy",
        "CONSUMER.DURABLE.CREATE.SESSION.spy",
    ],
)
async def test_memory_takes_nothing_from_anothers_stream(url: str, call: str) -> None:
    async with user(url, "memory") as (client, refused):
        await client.publish(f"$JS.API.{call}", b"{}", reply=client.new_inbox())

        assert await is_refused(client, refused, f'publish to "$js.api.{call}"')


async def test_memory_cannot_turn_anothers_consumer_to_itself(url: str) -> None:
    async with user(url, "distiller") as (distiller, _):
        await apply_topology(distiller.jetstream(timeout=DEADLINE_S), "distiller")
    async with user(url, "memory") as (client, _):
        stolen = ConsumerConfig(
            durable_name="distiller-items-appended",
            filter_subject="session.items.appended.v1",
            deliver_subject=client.new_inbox(),
        )

        with pytest.raises((nats.js.errors.APIError, TimeoutError)):
            await client.jetstream(timeout=REFUSED_WITHIN_S).add_consumer("SESSION", stolen)


async def test_nobody_enters_without_a_password(url: str) -> None:
    client = Client()

    try:
        with pytest.raises(nats.errors.Error, match=r"(?i)authorization"):
            await client.connect(url.format(user="memory").replace("p-memory", "wrong"), allow_reconnect=False)
    finally:
        await client.close()
