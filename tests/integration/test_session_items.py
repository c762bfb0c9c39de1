"""Items over HTTP on a real database."""

import asyncio
import json
from collections.abc import AsyncIterator
from itertools import pairwise
from typing import Any
from uuid import uuid4

import pytest

from libs.chassis.idempotency import REPLAYED
from libs.contracts.limits import Limits
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


@pytest.fixture
async def session(service: SessionService, store: str) -> str:
    return await service.session(store)


async def count(service: SessionService, table: str, store: str) -> int:
    return int(
        await service.database.fetchval(
            f"select count(*) from {table} join session_stores using (store_uid) where store_id = $1", store[1:]
        )
    )


async def test_what_was_appended_is_read_back_newest_first(service: SessionService, session: str) -> None:
    appended = await service.append(session, message("hello"), message("hi", "assistant"))

    listed = await service.items(session)

    assert [item["position"] for item in appended] == [1, 2]
    assert listed == appended[::-1]
    assert listed[1]["data"] == message("hello")
    assert (await service.call("GET", session))["last_position"] == 2


@pytest.mark.parametrize(
    "data",
    [
        '{ "a" : 1.0, "b":1e2, "n": 123456789012345678901234567890 }',
        '"\\u0000 and \\ud83d half"',
        '{"text":"مرحبا 👨‍👩‍👧 \\u00e9"}',
        '{"a":1,"a":2}',
        "false",
        '""',
    ],
)
async def test_data_comes_back_byte_for_byte(service: SessionService, session: str, data: str) -> None:
    body = f'{{"items":[{{"data":{data}}}]}}'.encode()

    appended = await service.client.post(f"{STORES}{session}/items:append", content=body)
    listed = await service.client.get(f"{STORES}{session}/items")

    assert appended.status_code == 200
    assert f'"data":{data},'.encode() in appended.content
    assert f'"data":{data},'.encode() in listed.content


async def test_when_it_was_said_is_returned_as_it_came(service: SessionService, session: str) -> None:
    said = "2026-05-01T09:30:00.5+02:00"
    items = [{"data": 1, "occurred_at": said}, {"data": 2}]

    appended = (await service.call("POST", f"{session}/items:append", json={"items": items}))["session_items"]

    assert appended[0]["occurred_at"] == said
    assert "occurred_at" not in appended[1]
    assert (await service.items(session))[::-1] == appended


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b'{"items":[]}',
        b'{"items":[{}]}',
        b'{"items":[{"data":1},{"data":NaN}]}',
        b'{"items":[{"data":"\xff"}]}',
        b"[" * 100_000,
        json.dumps({"items": [{"data": 1}] * 1001}).encode(),
        b'{"items":[{"data":1}],"expected_position":"1"}',
    ],
)
async def test_a_wrong_append_leaves_nothing_behind(service: SessionService, session: str, body: bytes) -> None:
    answer = await service.client.post(f"{STORES}{session}/items:append", content=body, headers=KEY)

    assert answer.status_code == 400
    assert answer.json()["error_code"] == "INVALID_PARAMETER_VALUE"
    assert await service.items(session) == []
    assert await count(service, "idempotency_keys", session.split("/sessions")[0]) == 0


async def test_an_item_over_its_limit_is_413_and_names_it(postgres: PostgresServer) -> None:
    async with session_service(postgres, limits=Limits(item_bytes=100, body_bytes=1000)) as service:
        session = await service.session(await service.store())

        item = await service.client.post(
            f"{STORES}{session}/items:append", json={"items": [{"data": 1}, {"data": "x" * 100}]}
        )
        body = await service.client.post(f"{STORES}{session}/items:append", json={"items": [{"data": "x" * 1000}]})

        assert (item.status_code, body.status_code) == (413, 413)
        assert "items[1]" in item.json()["message"]
        assert "100" in item.json()["message"]
        assert "1000" in body.json()["message"]
        assert await service.items(session) == []


async def test_an_item_of_four_megabytes_comes_back(service: SessionService, session: str) -> None:
    text = "é" * (2 * 1024 * 1024 - 1)

    await service.append(session, text)

    assert (await service.items(session))[0]["data"] == text


async def test_fifty_appends_at_once_are_in_one_order(service: SessionService, session: str) -> None:
    single = await asyncio.gather(*(service.append(session, {"n": n}) for n in range(50)))
    batch = await service.append(session, *({"batch": n} for n in range(50)))

    by_position = {item["position"]: item for (item,) in single} | {item["position"]: item for item in batch}
    times = [by_position[position]["create_time"] for position in range(1, 101)]

    assert sorted(by_position) == list(range(1, 101))
    assert times == sorted(times)
    assert [item["data"]["batch"] for item in batch] == list(range(50))


async def walk(service: SessionService, session: str, **params: Any) -> list[int]:
    """Every position, page by page."""
    found: list[int] = []
    page: dict[str, Any] = {"next_page_token": None}
    while "next_page_token" in page:
        token = {"page_token": page["next_page_token"]} if page["next_page_token"] else {}
        page = await service.call("GET", f"{session}/items", params=params | token)
        found += [item["position"] for item in page["session_items"]]
    return found


@pytest.fixture(scope="module")
async def narrow(postgres: PostgresServer) -> AsyncIterator[SessionService]:
    async with session_service(postgres, limits=Limits(page_bytes=1000)) as running:
        yield running


async def test_both_directions_page_to_the_end(service: SessionService, session: str) -> None:
    await service.append(session, *range(100))

    assert await walk(service, session, page_size=7, order_by="create_time asc") == list(range(1, 101))
    assert await walk(service, session, page_size=7) == list(range(100, 0, -1))
    assert await walk(service, session, page_size=100, order_by="create_time asc") == list(range(1, 101))
    assert await walk(service, session, after=90, order_by="create_time asc", page_size=3) == list(range(91, 101))
    assert await walk(service, session, after=4) == [3, 2, 1]


@pytest.mark.parametrize("order", ["create_time asc", "create_time desc"])
@pytest.mark.parametrize("positions", [None, ",".join(str(n) for n in (*range(1, 40), 77))])
async def test_a_page_ends_early_at_its_bytes_but_never_without_an_item(
    narrow: SessionService, order: str, positions: str | None
) -> None:
    sizes = [300, 300, 300, 300, 5000, 10, 990, 1, 1000, 999, 2, *[40] * 30]
    session = await narrow.session(await narrow.store(f"s{uuid4().hex}"))
    await narrow.append(session, *("x" * (size - 2) if size > 1 else 7 for size in sizes))
    asked = {"order_by": order, "page_size": "100", **({"positions": positions} if positions else {})}

    pages = [await narrow.call("GET", f"{session}/items", params=asked)]
    while token := pages[-1].get("next_page_token"):
        pages.append(await narrow.call("GET", f"{session}/items", params=asked | {"page_token": token}))

    seen = [[item["position"] for item in page["session_items"]] for page in pages]
    expected = list(range(1, 40 if positions else 42))
    assert [position for page in seen for position in page] == (expected if "asc" in order else expected[::-1])
    bytes_of = [[sizes[position - 1] for position in page] for page in seen]
    assert all(sum(page) <= 1000 or len(page) == 1 for page in bytes_of), bytes_of
    assert all(sum(page) + following[0] > 1000 for page, following in pairwise(bytes_of)), bytes_of


async def test_items_asked_for_by_position_come_in_pages(service: SessionService, session: str) -> None:
    await service.append(session, *range(20))

    assert await walk(service, session, positions="2,3,5,7,11,13,17,99", page_size=3) == [17, 13, 11, 7, 5, 3, 2]


async def test_items_can_be_asked_for_by_position(service: SessionService, session: str) -> None:
    await service.append(session, *range(20))

    assert [i["position"] for i in await service.items(session, positions="1,5,99,20")] == [20, 5, 1]
    assert [i["position"] for i in await service.items(session, positions="5,1", order_by="create_time asc")] == [1, 5]


@pytest.mark.parametrize(
    "params",
    [
        {"page_size": "101"},
        {"page_size": "-1"},
        {"page_size": "x"},
        {"page_size": "9" * 5000},
        {"page_token": "x"},
        {"page_token": "é"},
        {"page_token": "eyJhIjoxfQ"},
        {"order_by": "position"},
        {"after": "x"},
        {"after": "9" * 30},
        {"positions": "1,x"},
        {"positions": "1", "after": "1"},
    ],
)
async def test_a_wrong_query_is_400(service: SessionService, session: str, params: dict[str, str]) -> None:
    answer = await service.client.get(f"{STORES}{session}/items", params=params)

    assert (answer.status_code, answer.json()["error_code"]) == (400, "INVALID_PARAMETER_VALUE")


async def test_a_token_is_good_only_for_its_own_list(service: SessionService, session: str) -> None:
    await service.append(session, *range(20))
    token = (await service.call("GET", f"{session}/items"))["next_page_token"]

    answer = await service.client.get(
        f"{STORES}{session}/items", params={"page_token": token, "order_by": "create_time asc"}
    )

    assert answer.status_code == 400


async def test_only_the_expected_position_lets_an_append_through(service: SessionService, session: str) -> None:
    await service.append(session, 1, expected_position=0)

    refused = await service.client.post(
        f"{STORES}{session}/items:append", json={"items": [{"data": 2}], "expected_position": 0}
    )

    assert (refused.status_code, refused.json()["error_code"]) == (409, "ABORTED")
    assert refused.json()["details"][1]["metadata"] == {"last_position": "1"}
    assert len(await service.items(session)) == 1


async def test_of_many_appends_with_one_expectation_one_wins(service: SessionService, session: str) -> None:
    async def attempt(n: int) -> int:
        body = {"items": [{"data": n}], "expected_position": 0}
        return (await service.client.post(f"{STORES}{session}/items:append", json=body)).status_code

    assert sorted(await asyncio.gather(*(attempt(n) for n in range(10)))) == [200] + [409] * 9
    assert len(await service.items(session)) == 1


async def test_a_repeat_with_its_key_gets_the_first_answer(service: SessionService, session: str) -> None:
    body = {"items": [{"data": "a"}, {"data": "b"}], "expected_position": 0}
    path = f"{STORES}{session}/items:append"

    first = await service.client.post(path, json=body, headers=KEY)
    await service.append(session, "later")
    repeats = await asyncio.gather(*(service.client.post(path, json=body, headers=KEY) for _ in range(5)))
    other = await service.client.post(path, json={"items": [{"data": "c"}]}, headers=KEY)

    assert first.status_code == 200
    assert "Idempotent-Replayed" not in first.headers
    assert {repeat.content for repeat in repeats} == {first.content}
    assert all(repeat.headers["Idempotent-Replayed"] == REPLAYED["Idempotent-Replayed"] for repeat in repeats)
    assert (other.status_code, other.json()["error_code"]) == (409, "ABORTED")
    assert [item["data"] for item in await service.items(session)] == ["later", "b", "a"]


async def test_parallel_repeats_write_once(service: SessionService, session: str) -> None:
    path = f"{STORES}{session}/items:append"

    answers = await asyncio.gather(
        *(service.client.post(path, json={"items": [{"data": "a"}]}, headers=KEY) for _ in range(10))
    )

    assert {answer.status_code for answer in answers} == {200}
    assert len({answer.content for answer in answers}) == 1
    assert len(await service.items(session)) == 1


async def test_the_same_key_of_another_session_or_caller_is_another_key(
    service: SessionService, store: str, session: str
) -> None:
    other = await service.session(store, "s2")
    await service.call(
        "POST",
        f"{store}/permissions:grant",
        json={"principal": {"type": "USER", "name": "bo@example.com"}, "permission": "WRITE"},
    )

    await service.append(session, 1, headers=KEY)
    await service.append(other, 2, headers=KEY)
    await service.append(session, 3, headers=KEY | service.keys.header("bo@example.com"))

    assert [item["data"] for item in await service.items(session)] == [3, 1]


@pytest.mark.parametrize("key", ["", "x" * 256, "a\tb"])
async def test_a_wrong_key_is_400(service: SessionService, session: str, key: str) -> None:
    answer = await service.client.post(
        f"{STORES}{session}/items:append", json={"items": [{"data": 1}]}, headers={"Idempotency-Key": key}
    )

    assert answer.status_code == 400


async def test_a_pop_takes_the_newest_and_never_its_number_again(service: SessionService, session: str) -> None:
    await service.append(session, "a", "b")

    popped = await service.call("POST", f"{session}/items:pop", json={})
    await service.append(session, "c")

    assert popped["item"]["data"] == "b"
    assert [(item["position"], item["data"]) for item in await service.items(session)] == [(3, "c"), (1, "a")]


async def test_parallel_pops_each_take_another_item(service: SessionService, session: str) -> None:
    await service.append(session, *range(20))

    popped = await asyncio.gather(*(service.call("POST", f"{session}/items:pop") for _ in range(25)))

    assert sorted(pop["item"]["data"] for pop in popped if pop) == list(range(20))
    assert await service.items(session) == []


async def test_a_repeated_pop_gives_the_same_item(service: SessionService, session: str) -> None:
    await service.append(session, "a", "b")

    popped = await asyncio.gather(*(service.call("POST", f"{session}/items:pop", headers=KEY) for _ in range(4)))

    assert [pop["item"]["data"] for pop in popped] == ["b"] * 4
    assert [item["data"] for item in await service.items(session)] == ["a"]
    assert await service.call("POST", f"{session}/items:pop", headers=KEY | {"Idempotency-Key": "k2"}) != popped[0]
    assert await service.call("POST", f"{session}/items:pop", headers=KEY | {"Idempotency-Key": "k3"}) == {}
    assert await service.call("POST", f"{session}/items:pop", headers=KEY | {"Idempotency-Key": "k3"}) == {}


async def test_clear_hides_at_once_and_purges_later(service: SessionService, store: str, session: str) -> None:
    await service.append(session, *range(30))

    await service.call("POST", f"{session}/items:clear")
    hidden = await service.items(session)
    await service.append(session, "new")
    await service.clean()

    assert hidden == []
    assert [item["position"] for item in await service.items(session)] == [31]
    assert await count(service, "session_items", store) == 1
    assert await count(service, "item_purges", store) == 0


async def test_a_clear_up_to_a_position_keeps_what_is_beyond_and_never_brings_back(
    service: SessionService, store: str, session: str
) -> None:
    await service.append(session, *range(10))

    await service.call("POST", f"{session}/items:clear?through=7")
    await service.call("POST", f"{session}/items:clear?through=3")
    kept = [item["position"] for item in await service.items(session)]
    await service.call("POST", f"{session}/items:clear?through=99")
    hidden = await service.items(session)
    appended = await service.append(session, "new")
    await service.clean()

    assert kept == [10, 9, 8]
    assert hidden == []
    assert [item["item_id"] for item in await service.items(session)] == [appended[0]["item_id"]]
    assert await count(service, "session_items", store) == 1


async def test_a_clear_while_appends_run_keeps_what_came_after(
    service: SessionService, store: str, session: str
) -> None:
    async def append(n: int) -> int:
        return int((await service.append(session, n))[0]["position"])

    await asyncio.gather(*(append(n) for n in range(10)), service.call("POST", f"{session}/items:clear"))
    await service.clean()

    left = [item["position"] for item in await service.items(session, page_size=100)]
    cleared = await service.database.fetchval(
        "select cleared_through from sessions join session_stores using (store_uid) where store_id = $1", store[1:]
    )
    assert left == list(range(10, cleared, -1))


@pytest.mark.parametrize("verb", ["GET items", "POST items:append", "POST items:pop", "POST items:clear"])
async def test_a_missing_session_or_store_is_404(service: SessionService, store: str, verb: str) -> None:
    method, _, tail = verb.partition(" ")
    body = {"items": [{"data": 1}]} if method == "POST" else None

    for path in (f"{store}/sessions/none", "/none/sessions/s1", f"{store}/sessions/a%2Fb", "/%00/sessions/s1"):
        answer = await service.client.request(method, f"{STORES}{path}/{tail}", json=body)

        assert (answer.status_code, answer.json()["error_code"]) == (404, "NOT_FOUND"), path


async def test_a_store_made_again_under_its_name_is_another_one(
    service: SessionService, store: str, session: str
) -> None:
    await service.append(session, "old")
    await service.call("DELETE", store)

    gone = await service.client.post(f"{STORES}{session}/items:append", json={"items": [{"data": 1}]})
    await service.session(await service.store(store[1:]))
    await service.append(session, "new")

    assert gone.status_code == 404
    assert [item["data"] for item in await service.items(session)] == ["new"]


async def test_an_append_leaves_one_event(service: SessionService, session: str) -> None:
    await service.append(session, "a", "b")

    rows = await service.database.fetch("select subject, payload from outbox order by message_id desc")
    event = json.loads(rows[0]["payload"])

    assert rows[0]["subject"] == "session.items.appended.v1"
    assert (event["session_id"], event["actor_id"], event["last_position"]) == ("s1", "ana", 2)
    assert "a" not in event.values()
