"""Our own outage costs a message no attempt: it waits as long as it takes; a fault of its own parks it in the end."""

import pytest

from libs.chassis.app import Chassis
from libs.chassis.errors import Retry
from libs.contracts.events import ItemsAppended
from tests.fault.consuming import Handler, consuming
from tests.support.servers import PostgresServer
from tests.support.service import until

MORE_THAN_ALL = 8


async def test_a_message_outlives_a_database_that_is_away_for_longer_than_all_its_attempts(
    postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    handled: list[str] = []

    def handler(chassis: Chassis) -> Handler:
        async def on_items_appended(event: ItemsAppended) -> None:
            async with chassis.unit_of_work.begin() as tx:
                await tx.execute(
                    "insert into erased_actors (store_uid, actor_id, epoch) values ($1, $2, 1)",
                    event.store_uid,
                    event.actor_id,
                )
            handled.append(event.session_id)

        return on_items_appended

    async with consuming(postgres, monkeypatch, handler) as service:
        service.wire.refuse()
        service.wire.cut()
        await service.send("waits")

        await until(lambda: service.deliveries("away") >= MORE_THAN_ALL, deadline_s=30)
        assert handled == []
        await service.wire.resume()

        await until(service.is_done)
        assert handled == ["waits"]
        assert await service.chassis.parked.count() == 0


async def test_an_outage_leaves_a_message_the_attempts_that_it_had(
    postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries: list[str] = []

    def handler(chassis: Chassis) -> Handler:
        async def on_items_appended(event: ItemsAppended) -> None:
            await chassis.database.fetchval("select 1")
            tries.append(event.session_id)
            if len(tries) == 1:
                raise Retry("something else is not there yet")

        return on_items_appended

    async with consuming(postgres, monkeypatch, handler) as service:
        service.wire.refuse()
        service.wire.cut()
        await service.send("unlucky")

        await until(lambda: service.deliveries("away") >= MORE_THAN_ALL, deadline_s=30)
        await service.wire.resume()

        await until(service.is_done)
        assert tries == ["unlucky", "unlucky"]
        assert await service.chassis.parked.count() == 0


async def test_a_message_that_fails_by_itself_is_parked_after_its_attempts_with_its_reason(
    postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries: list[str] = []

    def handler(_: Chassis) -> Handler:
        async def on_items_appended(event: ItemsAppended) -> None:
            tries.append(event.session_id)
            if event.session_id == "poison":
                raise Retry("will never be there")

        return on_items_appended

    async with consuming(postgres, monkeypatch, handler) as service:
        await service.send("poison")
        await service.send("good")

        await until(service.is_done)

        assert tries.count("good") == 1
        assert tries.count("poison") == 4
        (message,) = await service.chassis.parked.page(1, None, 10)
        assert (message.reason, message.attempts) == ("will never be there", 4)
