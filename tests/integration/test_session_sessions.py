"""Sessions over HTTP on a real database."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID, uuid4

import pytest

from tests.support.servers import PostgresServer
from tests.support.session import STORES, SessionService, session_service

KEY = {"Idempotency-Key": "k1"}


@pytest.fixture(scope="module")
async def service(postgres: PostgresServer) -> AsyncIterator[SessionService]:
    async with session_service(postgres) as running:
        yield running


@pytest.fixture
async def store(service: SessionService) -> str:
    return await service.store(f"chats-{uuid4().hex[:8]}")


async def status(service: SessionService, method: str, path: str, **request: Any) -> tuple[int, str | None]:
    answer = await service.client.request(method, STORES + path, **request)
    return answer.status_code, answer.json().get("error_code")


async def ids(service: SessionService, store: str, **params: Any) -> list[str]:
    """Every session id, page by page."""
    found: list[str] = []
    token = ""
    while True:
        page = await service.call("GET", f"{store}/sessions", params=params | {"page_token": token})
        found += [session["session_id"] for session in page["sessions"]]
        token = page.get("next_page_token")
        if not token:
            return found


async def test_a_session_is_made_read_and_changed(service: SessionService, store: str) -> None:
    made = await service.call(
        "POST", f"{store}/sessions", params={"session_id": "a@b:c~1"}, json={"actor_id": "ana", "metadata": {"k": "é"}}
    )

    assert made["name"] == f"session-stores{store}/sessions/a@b:c~1"
    assert (made["session_id"], made["root_session_id"], made["actor_id"]) == ("a@b:c~1", "a@b:c~1", "ana")
    assert (made["last_position"], made["session_store_name"]) == (0, store[1:])
    assert made["create_time"] == made["update_time"] == made["last_activity_time"]
    assert made["create_time"].endswith("Z")

    changed = await service.call(
        "PATCH", f"{store}/sessions/a@b:c~1", params={"update_mask": "metadata"}, json={"actor_id": "x"}
    )

    assert (changed["metadata"], changed["actor_id"]) == ({}, "ana")
    assert changed["update_time"] > made["update_time"]
    assert changed["last_activity_time"] == made["last_activity_time"]
    assert changed == await service.call("GET", f"{store}/sessions/a@b:c~1")


async def test_without_a_name_a_session_gets_a_uuid(service: SessionService, store: str) -> None:
    made = await service.call("POST", f"{store}/sessions", json={"actor_id": "ana"})

    assert UUID(made["session_id"])


@pytest.mark.parametrize(
    ("params", "body"),
    [
        ({}, {}),
        ({}, {"actor_id": " "}),
        ({}, {"actor_id": "a\nb"}),
        ({}, {"actor_id": "x" * 257}),
        ({}, {"actor_id": 5}),
        ({}, {"actor_id": "a", "metadata": {"a": None}}),
        ({"session_id": "a/b"}, {"actor_id": "a"}),
        ({"session_id": ".."}, {"actor_id": "a"}),
        ({"session_id": "x" * 256}, {"actor_id": "a"}),
    ],
)
async def test_a_wrong_session_is_400(service: SessionService, store: str, params: Any, body: Any) -> None:
    assert await status(service, "POST", f"{store}/sessions", params=params, json=body) == (
        400,
        "INVALID_PARAMETER_VALUE",
    )
    assert await ids(service, store) == []


async def test_a_name_is_taken_once_and_free_after_deletion(service: SessionService, store: str) -> None:
    session = await service.session(store, "s1")
    await service.append(session, "old")

    assert await status(service, "POST", f"{store}/sessions", params={"session_id": "s1"}, json={"actor_id": "b"}) == (
        409,
        "ALREADY_EXISTS",
    )
    await service.call("DELETE", session)
    assert await status(service, "GET", session) == (404, "NOT_FOUND")
    await service.session(store, "s1", "b")
    await service.clean()
    assert await service.items(session) == []


async def test_a_repeated_create_with_its_key_gives_the_session(service: SessionService, store: str) -> None:
    answers = await asyncio.gather(
        *(service.client.post(f"{STORES}{store}/sessions", json={"actor_id": "ana"}, headers=KEY) for _ in range(4))
    )

    assert len({answer.content for answer in answers}) == 1
    assert len(await ids(service, store)) == 1
    assert await status(service, "POST", f"{store}/sessions", json={"actor_id": "bo"}, headers=KEY) == (409, "ABORTED")


async def test_an_error_keeps_no_key(service: SessionService, store: str) -> None:
    body = {"actor_id": "ana", "parent_session_id": "p"}

    assert (await status(service, "POST", f"{store}/sessions", json=body, headers=KEY))[0] == 404
    await service.session(store, "p")
    assert (await status(service, "POST", f"{store}/sessions", json=body, headers=KEY))[0] == 200


async def family(service: SessionService, store: str) -> None:
    await service.session(store, "root")
    await service.session(store, "child", parent_session_id="root")
    await service.session(store, "grandchild", parent_session_id="child")
    await service.session(store, "other")


async def test_children_inherit_root_and_actor(service: SessionService, store: str) -> None:
    await family(service, store)

    grandchild = await service.call("GET", f"{store}/sessions/grandchild")

    assert (grandchild["root_session_id"], grandchild["parent_session_id"]) == ("root", "child")
    for body, code in (
        ({"actor_id": "bo", "parent_session_id": "root"}, (400, "INVALID_PARAMETER_VALUE")),
        ({"actor_id": "ana", "parent_session_id": "none"}, (404, "NOT_FOUND")),
    ):
        assert await status(service, "POST", f"{store}/sessions", json=body) == code


async def test_force_false_refuses_what_has_descendants(service: SessionService, store: str) -> None:
    await family(service, store)

    refused = await status(service, "DELETE", f"{store}/sessions/root", params={"force": "false"})

    assert refused == (400, "FAILED_PRECONDITION")
    assert await status(service, "DELETE", f"{store}/sessions/root", params={"force": "maybe"}) == (
        400,
        "INVALID_PARAMETER_VALUE",
    )
    assert len(await ids(service, store)) == 4
    await service.call("DELETE", f"{store}/sessions/other", params={"force": "false"})


@pytest.mark.parametrize("params", [{}, {"force": "true"}])
async def test_a_delete_takes_the_descendants(service: SessionService, store: str, params: dict[str, str]) -> None:
    await family(service, store)
    await service.append(f"{store}/sessions/grandchild", *range(20))
    before = await service.database.fetchval("select count(*) from outbox")

    await service.call("DELETE", f"{store}/sessions/root", params=params)
    await service.clean()

    assert await ids(service, store) == ["other"]
    assert await service.database.fetchval("select count(*) from outbox") == before + 3
    events = await service.database.fetch("select payload from outbox order by message_id desc limit 3")
    assert {json.loads(event["payload"])["actor_id"] for event in events} == {"ana"}
    assert not await service.database.fetchval(
        "select count(*) from session_items i where not exists"
        " (select from sessions s where s.store_uid = i.store_uid and s.session_uid = i.session_uid)"
    )


async def test_children_made_while_their_root_is_deleted_are_no_orphans(service: SessionService, store: str) -> None:
    await service.session(store, "root")

    async def child(n: int) -> None:
        await service.client.post(
            f"{STORES}{store}/sessions",
            json={"actor_id": "ana", "parent_session_id": "root" if n < 9 else "c3"},
            params={"session_id": f"c{n}"},
        )

    await asyncio.gather(*(child(n) for n in range(18)), service.call("DELETE", f"{store}/sessions/root"))

    assert await ids(service, store) == []


async def test_filters_and_orders_find_what_they_name(service: SessionService, store: str) -> None:
    await service.session(store, "a1", "ana", metadata={"kind": "chat", "a key": "x"})
    await service.session(store, "a2", "ana")
    await service.session(store, "b1", 'b"o', metadata={"kind": "chat"})
    await service.session(store, "a3", "ana", parent_session_id="a1")
    await service.append(f"{store}/sessions/a2", 1)

    assert await ids(service, store) == ["a2", "a3", "b1", "a1"]
    assert await ids(service, store, order_by="create_time asc") == ["a1", "a2", "b1", "a3"]
    assert await ids(service, store, filter='actor_id = "ana"', order_by="create_time") == ["a1", "a2", "a3"]
    assert await ids(service, store, filter='actor_id = "b\\"o"') == ["b1"]
    assert await ids(service, store, filter='metadata.kind = "chat" AND actor_id="ana"') == ["a1"]
    assert await ids(service, store, filter='metadata["a key"] = "x"') == ["a1"]
    assert await ids(service, store, filter='root_session_id = "a1"') == ["a3", "a1"]
    assert await ids(service, store, filter='parent_session_id = "a1"') == ["a3"]


@pytest.mark.parametrize(
    "params",
    [
        {"filter": "x"},
        {"order_by": "x"},
        {"page_size": "1000"},
        {"page_token": "x"},
        {"filter": 'actor_id = "\\u0000"'},
        {"filter": "\x00"},
    ],
)
async def test_a_wrong_query_is_400(service: SessionService, store: str, params: dict[str, str]) -> None:
    assert await status(service, "GET", f"{store}/sessions", params=params) == (400, "INVALID_PARAMETER_VALUE")


async def test_a_walk_by_create_time_sees_each_session_once_while_others_come_and_move(
    service: SessionService, store: str
) -> None:
    names = [f"s{n:02}" for n in range(30)]
    for name in names:
        await service.session(store, name)
    seen: list[str] = []
    token = ""

    for turn in range(20):
        page = await service.call(
            "GET", f"{store}/sessions", params={"order_by": "create_time desc", "page_size": 4, "page_token": token}
        )
        seen += [session["session_id"] for session in page["sessions"]]
        await service.session(store, f"new{turn}")
        await service.append(f"{store}/sessions/{names[turn]}", turn)
        token = page.get("next_page_token")
        if not token:
            break

    assert sorted(name for name in seen if name in names) == names
    assert len(seen) == len(set(seen))
