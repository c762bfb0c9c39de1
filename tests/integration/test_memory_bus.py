"""The memory service on the real bus."""

from collections.abc import AsyncIterator, Iterator

import pytest

from libs.chassis.outbox import OutboxRow
from libs.contracts.events import BatchesApplied
from libs.contracts.ids import uuid7
from libs.contracts.requests import AuthorizeMemoryStore, Related, RelatedEntries, StoreAuthorization
from tests.support.memory import Distiller, Memory, memory_service, said
from tests.support.servers import NatsServer, PostgresServer
from tests.support.service import USER, WORKSPACE, Keys, chassis_of, key_directory, until


@pytest.fixture(scope="module")
def keys() -> Iterator[Keys]:
    with key_directory() as keys:
        yield keys


@pytest.fixture
async def memory(postgres: PostgresServer, nats: NatsServer, keys: Keys) -> AsyncIterator[Memory]:
    async with memory_service(postgres, keys, nats.url) as memory:
        yield memory


async def test_a_batch_from_the_bus_is_applied_and_answered(memory: Memory) -> None:
    distiller = await Distiller.of(memory)
    bus = chassis_of(memory.app).bus
    batch = distiller.batch([said("/job.md", "Works at Northwind")])
    assert bus._client is not None
    answers = await bus._client.subscribe(BatchesApplied.subject)

    await bus.publish(OutboxRow.of(batch))
    await bus.publish(OutboxRow(uuid7(), batch.subject, batch.model_dump_json()))
    first = BatchesApplied.model_validate_json((await answers.next_msg(timeout=10)).data)
    second = BatchesApplied.model_validate_json((await answers.next_msg(timeout=10)).data)

    assert first.outcomes == second.outcomes
    assert [outcome.outcome for outcome in first.outcomes] == ["applied"]
    assert await memory.paths("ana", "Northwind") == ["/job.md"]


async def test_other_services_get_their_questions_answered(memory: Memory) -> None:
    bus = chassis_of(memory.app).bus
    store_uid = await memory.store_uid()
    await memory.add("ana", "/cat.md", "has a cat")

    related = await bus.ask(RelatedEntries(store_uid=store_uid, actor_id="ana", texts=["cat"]), Related)
    own = await bus.ask(
        AuthorizeMemoryStore(
            workspace_id=WORKSPACE, principal_type="USER", principal=USER, permission="WRITE", store_id="notes"
        ),
        StoreAuthorization,
    )
    foreign = await bus.ask(
        AuthorizeMemoryStore(
            workspace_id=WORKSPACE, principal_type="USER", principal="x", permission="READ", store_uid=store_uid
        ),
        StoreAuthorization,
    )
    nowhere = await bus.ask(
        AuthorizeMemoryStore(
            workspace_id=2, principal_type="USER", principal=USER, permission="READ", store_id="notes"
        ),
        StoreAuthorization,
    )

    assert [entry.path for entry in related.entries] == ["/cat.md"]
    assert own == StoreAuthorization(allowed=True, store_uid=store_uid, store_id="notes")
    assert foreign == StoreAuthorization(allowed=False, store_uid=store_uid, store_id="notes")
    assert nowhere == StoreAuthorization()


async def test_what_cannot_be_parsed_is_parked_and_what_can_is_answered(memory: Memory) -> None:
    bus = chassis_of(memory.app).bus
    distiller = await Distiller.of(memory)
    broken = distiller.batch([])

    await bus.publish(OutboxRow(uuid7(), broken.subject, '{"batch_id": 5}'))
    await bus.publish(OutboxRow.of(distiller.batch([said("no-slash", "x")], session_id="good")))

    await until(lambda: chassis_of(memory.app).database.fetchval("select count(*) from progress"))
    await until(lambda: chassis_of(memory.app).database.fetchval("select count(*) from parked_messages"))
    assert await chassis_of(memory.app).database.fetchval("select count(*) from parked_messages") == 1
