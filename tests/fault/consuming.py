"""A service with one handler of the test's own, on a real broker and database: what delivery does with its failures.

The topology's times are shortened here, and only here; everything else is as in any service.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from urllib.parse import parse_qs, urlsplit

import pytest
from nats.js import JetStreamContext
from pydantic import SecretStr

from libs.chassis import bus, delivery
from libs.chassis.app import Chassis
from libs.chassis.command import revisions
from libs.chassis.settings import ServiceSettings
from libs.contracts import topology
from libs.contracts.events import ItemsAppended
from libs.contracts.ids import uuid7
from tests.fault.broker import connected, publish
from tests.support.cluster import own_nats
from tests.support.proxy import TcpProxy
from tests.support.servers import PostgresServer
from tests.support.service import database, until

Handler = Callable[[ItemsAppended], Awaitable[None]]


@dataclass(frozen=True)
class Consuming:
    """`wire` lies between the service and its database."""

    chassis: Chassis
    stream: JetStreamContext
    wire: TcpProxy

    async def send(self, session: str = "s1") -> ItemsAppended:
        event = ItemsAppended(
            workspace_id=1,
            store_uid=uuid7(),
            session_uid=uuid7(),
            session_id=session,
            actor_id="ana",
            last_position=1,
        )
        await publish(self.stream, event.subject, event.model_dump_json())
        return event

    async def unacknowledged(self) -> int:
        consumer = next(each for each in topology.consumers_of("distiller") if each.event is ItemsAppended)
        info = await self.stream.consumer_info(consumer.stream, consumer.durable)
        return (info.num_ack_pending or 0) + (info.num_pending or 0)

    async def is_done(self) -> bool:
        return await self.unacknowledged() == 0

    def deliveries(self, outcome: str) -> float:
        """How many deliveries ended so."""
        labels = {"consumer": "distiller-items-appended", "outcome": outcome}
        return self.chassis.metrics.registry.get_sample_value("memstream_deliveries_total", labels) or 0.0


@asynccontextmanager
async def consuming(
    postgres: PostgresServer,
    monkeypatch: pytest.MonkeyPatch,
    make_handler: Callable[[Chassis], Handler],
    *,
    ack_wait_s: float = 30.0,
    delays_s: tuple[float, ...] = (0.05, 0.05, 0.05),
    away_delay_s: float = 0.05,
) -> AsyncIterator[Consuming]:
    quick = tuple(replace(each, ack_wait_s=ack_wait_s, delays_s=delays_s) for each in topology.CONSUMERS)
    monkeypatch.setattr(topology, "CONSUMERS", quick)
    monkeypatch.setattr(bus, "CONSUMERS", quick)
    monkeypatch.setattr(delivery, "AWAY_DELAY_S", away_delay_s)
    async with (
        own_nats() as nats,
        database(postgres, "distiller", revisions("distiller")) as dsn,
        TcpProxy(socket_of(dsn)) as wire,
    ):
        settings = ServiceSettings(
            database_url=SecretStr(f"postgresql://postgres@{wire.address}{urlsplit(dsn).path}"),
            nats_url=SecretStr(nats.url),
            database_acquire_timeout_s=0.5,
        )
        chassis = Chassis("distiller", settings)
        chassis.bus.consume(ItemsAppended, make_handler(chassis))
        async with chassis.running(), connected(nats.url) as client:
            await until(lambda: chassis.bus.connected)
            yield Consuming(chassis, client.jetstream(), wire)


def socket_of(dsn: str) -> str:
    """The unix socket of the suite's Postgres."""
    query = parse_qs(urlsplit(dsn).query)
    return f"{query['host'][0]}/.s.PGSQL.{query['port'][0]}"
