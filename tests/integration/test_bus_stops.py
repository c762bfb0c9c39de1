"""A bus that is told to stop does, whatever its client swallows."""

import asyncio

import pytest

from libs.chassis.bus import Bus
from libs.chassis.database import Database
from libs.chassis.metrics import Metrics
from libs.chassis.parked import ParkedMessages
from tests.support.servers import NatsServer
from tests.support.service import until

DEADLINE_S = 20.0


async def test_a_cancellation_that_came_with_an_answer_is_heard(
    nats: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    bus = Bus("session", nats.url, ParkedMessages(Database("postgresql://nowhere", pool_size=1)), Metrics())
    asked = asyncio.Event()

    async def swallow(_: Bus) -> list[str]:
        asked.set()
        try:
            await asyncio.sleep(DEADLINE_S)
        except asyncio.CancelledError:
            return []
        return []

    monkeypatch.setattr(Bus, "_missing", swallow)
    running = asyncio.create_task(bus.run())
    await until(asked.is_set, deadline_s=DEADLINE_S)
    running.cancel()

    _, left = await asyncio.wait([running], timeout=DEADLINE_S)

    assert not left
    assert running.cancelled()
