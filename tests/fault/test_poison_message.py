"""A message that cannot be handled is parked alone, with its reason, and one call sends it round again."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from libs.contracts.events import BatchesApplied, ItemsAppended, MemoriesDistilled
from libs.contracts.ids import uuid7
from tests.fault.broker import connected, publish
from tests.support.cluster import Cluster
from tests.support.load import Load, judged
from tests.support.service import WORKSPACE, until

POISONS = {
    ItemsAppended.subject: ("distiller", [b"\xff\xfe not JSON", b"{}", b"[]"]),
    MemoriesDistilled.subject: ("memory", [b"{}"]),
    BatchesApplied.subject: ("distiller", [b'{"batch_id": 1}']),
}


@pytest.fixture
async def running(running: Cluster) -> AsyncIterator[Cluster]:
    """Leaves nothing parked behind for the next test."""
    yield running
    for service in ("distiller", "memory"):
        await running.rows(service, "delete from parked_messages")


async def parked(running: Cluster, service: str) -> list[dict[str, Any]]:
    """What an admin sees of a service's parked messages."""
    header = running.keys.header(admin=True)
    page = await running.answer("GET", f"/ops/{service}/parked-messages", headers=header)
    messages: list[dict[str, Any]] = page["parked_messages"]
    return messages


async def is_parked(running: Cluster) -> bool:
    return len(await parked(running, "distiller")) == 1


async def test_a_message_that_cannot_be_read_is_parked_at_once_with_its_reason(running: Cluster, load: Load) -> None:
    async with connected(running.nats.url) as client:
        for subject, (_, payloads) in POISONS.items():
            for payload in payloads:
                await publish(client.jetstream(), subject, payload)
    await load.run(lambda done: done >= 2)

    async def all_are_parked() -> bool:
        return len(await parked(running, "distiller")) == 4 and len(await parked(running, "memory")) == 1

    await until(all_are_parked)

    for service in ("distiller", "memory"):
        for message in await parked(running, service):
            assert message["reason"].startswith("invalid body")
            assert message["attempts"] == 1
            assert "payload" not in message
    await running.rows("distiller", "delete from parked_messages")
    await running.rows("memory", "delete from parked_messages")
    await judged(running, load.ledger)


async def test_a_value_that_the_database_refuses_is_parked_alone(running: Cluster, load: Load) -> None:
    """Marks are written many at once: those beside a bad one must not share its fate."""
    (store_uid,) = (await running.rows("session", "select store_uid from session_stores"))[0]
    wave = 40

    def appended(session: str, actor: str) -> bytes:
        return (
            ItemsAppended(
                workspace_id=WORKSPACE,
                store_uid=store_uid,
                session_uid=uuid7(),
                session_id=session,
                actor_id=actor,
                last_position=1,
            )
            .model_dump_json()
            .encode()
        )

    async with connected(running.nats.url) as client:
        for number in range(wave):
            await client.publish(ItemsAppended.subject, appended(f"{load.name}-{number}", load.name))
            if number == wave // 2:
                await client.publish(ItemsAppended.subject, appended(load.name, "nul\x00"))
        await client.flush()

    async def all_others_are_marked() -> bool:
        return await running.count("distiller", "lane_sessions", f"actor_id = '{load.name}'") == wave

    await until(all_others_are_marked)
    await until(lambda: is_parked(running))
    (message,) = await parked(running, "distiller")
    assert "CharacterNotInRepertoire" in message["reason"]


async def test_a_parked_message_goes_round_again_with_one_call(running: Cluster) -> None:
    async with connected(running.nats.url) as client:
        await publish(client.jetstream(), ItemsAppended.subject, b'{"workspace_id": 1}')

    await until(lambda: is_parked(running))
    (first,) = await parked(running, "distiller")
    header = running.keys.header(admin=True)

    redrive = f"/ops/distiller/parked-messages/{first['parked_id']}:redrive"
    answer = await running.request("POST", redrive, headers=header)

    assert answer.status_code == 200, answer.text

    async def came_back() -> bool:
        now = await parked(running, "distiller")
        return len(now) == 1 and now[0]["parked_id"] != first["parked_id"]

    await until(came_back)
    again = await running.request("POST", redrive, headers=header)
    assert again.status_code == 404
