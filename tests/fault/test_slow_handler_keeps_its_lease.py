"""A handler that takes longer than the broker waits says so, and its message is not delivered a second time."""

import asyncio

import pytest

from libs.chassis.app import Chassis
from libs.contracts.events import ItemsAppended
from tests.fault.consuming import Handler, consuming
from tests.support.servers import PostgresServer
from tests.support.service import until

ACK_WAIT_S = 1.0


async def test_a_handler_four_times_slower_than_the_wait_for_its_answer_runs_once(
    postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[str] = []

    def handler(_: Chassis) -> Handler:
        async def on_items_appended(event: ItemsAppended) -> None:
            begun.append(event.session_id)
            await asyncio.sleep(4 * ACK_WAIT_S)

        return on_items_appended

    async with consuming(postgres, monkeypatch, handler, ack_wait_s=ACK_WAIT_S) as service:
        await service.send("slow")

        await until(service.is_done)

        assert begun == ["slow"]
        assert service.deliveries("done") == 1
