"""Forks: a copy taken at one moment, independent from then on."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any
from uuid import uuid4

import pytest

from tests.support.servers import PostgresServer
from tests.support.session import STORES, SessionService, message, session_service

KEY = {"Idempotency-Key": "k1"}


@pytest.fixture(scope="module")
async def service(postgres: PostgresServer) -> AsyncIterator[SessionService]:
    async with session_service(postgres) as running:
        yield running


@pytest.fixture
async def store(service: SessionService) -> str:
    return await service.store(f"chats-{uuid4().hex[:8]}")


async def fork(service: SessionService, store: str, **body: Any) -> Any:
    wanted = {"source_session_id": "s1", "actor_id": "bo", "session_id": "f1"} | body
    return (await service.call("POST", f"{store}/sessions:fork", json=wanted))["session"]


async def test_a_fork_has_the_items_with_new_ids_and_the_old_times(service: SessionService, store: str) -> None:
    session = await service.session(store, metadata={"a": "1"})
    appended = await service.append(session, message("a"), message("b"))
    appended += (
        await service.call(
            "POST",
            f"{session}/items:append",
            json={"items": [{"data": "c", "occurred_at": "2026-05-01T10:00:00+02:00"}]},
        )
    )["session_items"]

    forked = await fork(service, store, metadata={"b": "2"})
    items = (await service.items(f"{store}/sessions/f1"))[::-1]

    assert (forked["actor_id"], forked["root_session_id"], forked["metadata"]) == ("bo", "f1", {"b": "2"})
    assert "parent_session_id" not in forked
    assert (forked["forked_from_session_id"], forked["last_position"]) == ("s1", 3)
    assert [i | {"item_id": ""} for i in items] == [i | {"item_id": ""} for i in appended]
    assert not {i["item_id"] for i in items} & {i["item_id"] for i in appended}


async def test_a_fork_ends_with_the_named_item_and_numbers_from_one(service: SessionService, store: str) -> None:
    session = await service.session(store)
    await service.append(session, *range(3))
    await service.call("POST", f"{session}/items:clear")
    items = await service.append(session, *range(3, 8))
    await service.call("POST", f"{session}/items:pop")

    forked = await fork(service, store, up_to_item_id=items[2]["item_id"])
    copied = await service.items(f"{store}/sessions/f1", order_by="create_time asc")

    assert [(item["position"], item["data"]) for item in copied] == [(1, 3), (2, 4), (3, 5)]
    assert forked["last_position"] == 3
    assert (await service.append(f"{store}/sessions/f1", "new", expected_position=3))[0]["position"] == 4


async def test_source_and_fork_go_their_own_ways(service: SessionService, store: str) -> None:
    session = await service.session(store)
    await service.append(session, 1)
    await fork(service, store)
    await service.append(session, 2)
    await service.append(f"{store}/sessions/f1", 3)

    await service.call("DELETE", session)
    await service.clean()

    assert [item["data"] for item in await service.items(f"{store}/sessions/f1")] == [3, 1]


async def test_a_fork_is_told_only_by_its_own_appends(service: SessionService, store: str) -> None:
    await service.append(await service.session(store), 1)
    before = await service.database.fetchval("select count(*) from outbox")

    await fork(service, store)

    assert await service.database.fetchval("select count(*) from outbox") == before


async def test_what_cannot_be_forked_says_why(service: SessionService, store: str) -> None:
    session = await service.session(store)
    items = await service.append(session, 1, 2, 3)
    await service.session(store, "s2")
    other = await service.append(f"{store}/sessions/s2", 1)
    await service.call("POST", f"{session}/items:pop")
    cases: list[tuple[dict[str, Any], int, str]] = [
        ({"source_session_id": None}, 400, "INVALID_PARAMETER_VALUE"),
        ({"actor_id": None}, 400, "INVALID_PARAMETER_VALUE"),
        ({"session_id": "a/b"}, 400, "INVALID_PARAMETER_VALUE"),
        ({"session_id": "s2"}, 409, "ALREADY_EXISTS"),
        ({"source_session_id": "none"}, 404, "NOT_FOUND"),
        ({"up_to_item_id": "x"}, 404, "NOT_FOUND"),
        ({"up_to_item_id": "f" * 48}, 404, "NOT_FOUND"),
        ({"up_to_item_id": other[0]["item_id"]}, 404, "NOT_FOUND"),
        ({"up_to_item_id": items[2]["item_id"]}, 404, "NOT_FOUND"),
    ]

    for body, status, code in cases:
        wanted = {"source_session_id": "s1", "actor_id": "bo", "session_id": "f1"} | body
        answer = await service.client.post(f"{STORES}{store}/sessions:fork", json=wanted)
        assert (answer.status_code, answer.json()["error_code"]) == (status, code), body
    assert len((await service.call("GET", f"{store}/sessions"))["sessions"]) == 2


async def test_thousands_of_items_are_copied_while_others_append(service: SessionService, store: str) -> None:
    session = await service.session(store)
    for n in range(5):
        await service.append(session, *range(n * 1000, n * 1000 + 1000))

    forked, *_ = await asyncio.gather(fork(service, store), *(service.append(session, "late") for _ in range(10)))

    count = forked["last_position"]
    assert 5000 <= count <= 5010
    assert (await service.items(f"{store}/sessions/f1"))[0]["position"] == count


async def test_a_repeated_fork_with_its_key_gives_the_first(service: SessionService, store: str) -> None:
    await service.append(await service.session(store), 1)
    body = {"source_session_id": "s1", "actor_id": "bo"}

    answers = await asyncio.gather(
        *(service.client.post(f"{STORES}{store}/sessions:fork", json=body, headers=KEY) for _ in range(3))
    )

    assert len({answer.content for answer in answers}) == 1
    assert len((await service.call("GET", f"{store}/sessions"))["sessions"]) == 2
