"""An Idempotency-Key ends with what it made: once that is deleted, a repeat is a first call."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any
from uuid import uuid4

import httpx
import pytest

from tests.support.servers import PostgresServer
from tests.support.session import STORES, SessionService, session_service

BO = "bo@example.com"


@pytest.fixture(scope="module")
async def service(postgres: PostgresServer) -> AsyncIterator[SessionService]:
    async with session_service(postgres) as running:
        yield running


@pytest.fixture
async def store(service: SessionService) -> str:
    return await service.store(f"s{uuid4().hex}")


async def post(service: SessionService, path: str, body: Any, **headers: str) -> httpx.Response:
    """With the one key of these tests."""
    return await service.client.post(STORES + path, json=body, headers={"Idempotency-Key": "k", **headers})


def told(answer: httpx.Response) -> tuple[int, bool]:
    """Its status, and whether it is a first answer given again."""
    return answer.status_code, "Idempotent-Replayed" in answer.headers


async def test_an_append_to_a_session_that_was_made_again_is_a_first_call(service: SessionService, store: str) -> None:
    session, body = await service.session(store), {"items": [{"data": "a"}, {"data": "b"}]}
    append = f"{session}/items:append"
    assert told(await post(service, append, body)) == (200, False)
    assert told(await post(service, append, body)) == (200, True)

    await service.call("DELETE", session)
    gone = await post(service, append, body)
    await service.session(store, "s1", "bo")
    answers = await asyncio.gather(*(post(service, append, body) for _ in range(5)))
    other = await post(service, append, {"items": [{"data": "c"}]})

    assert told(gone) == (404, False)
    assert sorted(told(answer) for answer in answers) == [(200, False)] + [(200, True)] * 4
    assert len({answer.content for answer in answers}) == 1
    assert told(other) == (409, False)
    assert [item["data"] for item in await service.items(session)] == ["b", "a"]


async def test_an_ended_key_hides_no_wrong_position(service: SessionService, store: str) -> None:
    session, body = await service.session(store), {"items": [{"data": "a"}], "expected_position": 0}
    await post(service, f"{session}/items:append", body)
    await service.call("DELETE", session)
    await service.append(await service.session(store), "new")

    answer = await post(service, f"{session}/items:append", body)

    assert told(answer) == (409, False)
    assert answer.json()["details"][-1]["metadata"] == {"last_position": "1"}


async def test_a_pop_of_a_session_that_was_made_again_is_a_first_call(service: SessionService, store: str) -> None:
    session = await service.session(store)
    await service.append(session, "old")
    await post(service, f"{session}/items:pop", None)
    await service.call("DELETE", session)
    await service.append(await service.session(store), "a", "b")

    first, repeat = [await post(service, f"{session}/items:pop", None) for _ in range(2)]

    assert (told(first), told(repeat)) == ((200, False), (200, True))
    assert first.json()["item"]["data"] == "b"
    assert repeat.content == first.content
    assert [item["data"] for item in await service.items(session)] == ["a"]


@pytest.mark.parametrize("verb", ["sessions", "sessions:fork"])
@pytest.mark.parametrize("changed", [False, True])
async def test_a_session_that_was_deleted_is_made_again_by_its_key(
    service: SessionService, store: str, verb: str, changed: bool
) -> None:
    await service.append(await service.session(store, "source"), "a")
    body = {"actor_id": "ana", **({"source_session_id": "source"} if verb != "sessions" else {})}
    first = (await post(service, f"{store}/{verb}", body)).json()
    made = first.get("session", first)["session_id"]
    await service.call("DELETE", f"{store}/sessions/{made}")

    later = body | ({"actor_id": "bo"} if changed else {})
    answers = await asyncio.gather(*(post(service, f"{store}/{verb}", later) for _ in range(4)))

    assert sorted(told(answer) for answer in answers) == [(200, False)] + [(200, True)] * 3
    assert len({answer.content for answer in answers}) == 1
    sessions = (await service.call("GET", f"{store}/sessions"))["sessions"]
    assert len(sessions) == 2
    assert made not in {session["session_id"] for session in sessions}


async def test_a_store_that_was_deleted_is_made_again_by_its_key(service: SessionService) -> None:
    name = f"s{uuid4().hex}"
    create = f"?session_store_id={name}"
    await post(service, create, {})
    await service.session(f"/{name}")
    await service.call("DELETE", f"/{name}")

    answers = await asyncio.gather(*(post(service, create, {}) for _ in range(4)))

    assert sorted(told(answer) for answer in answers) == [(200, False)] + [(200, True)] * 3
    assert await service.call("GET", f"/{name}/sessions") == {"sessions": []}


async def test_a_key_never_answers_with_the_store_of_another(service: SessionService) -> None:
    name = f"s{uuid4().hex}"
    create = f"?session_store_id={name}"
    await post(service, create, {})
    await service.call("DELETE", f"/{name}")
    await service.store(name, headers=service.keys.header(BO))

    answer = await post(service, create, {})

    assert told(answer) == (409, False)
    assert answer.json()["error_code"] == "ALREADY_EXISTS"


async def test_a_session_of_retention_is_gone_for_its_key_too(service: SessionService, store: str) -> None:
    await service.call("PATCH", store, params={"update_mask": "idle_ttl_minutes"}, json={"idle_ttl_minutes": 5})
    create = f"{store}/sessions?session_id=s1"
    await post(service, create, {"actor_id": "ana"})
    await service.database.write("update sessions set last_activity_time = now() - interval '6 minutes'")
    await service.clean()

    assert told(await post(service, create, {"actor_id": "ana"})) == (200, False)
