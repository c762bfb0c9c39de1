"""What the session service and Postgres say to each other, and what a client hears when that wire breaks."""

import asyncio
import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import asyncpg
import pytest

from libs.contracts.limits import Limits
from services.session.app import REVISIONS
from services.session.store.pages import NEWEST_FIRST
from tests.support.plans import nodes
from tests.support.servers import PostgresServer
from tests.support.service import database, key_directory, running, until
from tests.support.session import STORES, SessionService, session_app
from tests.support.wire import Wire, socket_of

SOAK = os.environ.get("SOAK") == "1"


@dataclass(frozen=True)
class Wired:
    service: SessionService
    wire: Wire
    direct: "asyncpg.Connection[asyncpg.Record]"
    dsn: str

    async def items(self) -> int:
        return int(await self.direct.fetchval("select count(*) from session_items"))


@pytest.fixture
async def wired(postgres: PostgresServer) -> AsyncIterator[Wired]:
    with key_directory() as keys:
        async with database(postgres, "session", REVISIONS) as dsn, Wire(socket_of(dsn), record=True) as wire:
            proxied = wire.dsn(dsn)
            app = session_app(proxied, keys)
            direct = await asyncpg.connect(dsn)
            try:
                async with running(app, keys) as client:
                    yield Wired(SessionService(app, client, keys, dsn), wire, direct, proxied)
            finally:
                await direct.close()


def messages(recorded: bytearray) -> list[str]:
    """The types of the frontend messages: a letter and a length each."""
    types, at = [], 0
    while at < len(recorded):
        types.append(chr(recorded[at]))
        at += 1 + int.from_bytes(recorded[at + 1 : at + 5])
    return types


async def test_a_first_append_with_a_key_is_one_round_trip(wired: Wired) -> None:
    session = await wired.service.session(await wired.service.store())
    await wired.service.append(session, "warm", headers={"Idempotency-Key": "k0"})
    recorded: list[list[str]] = []

    while ["B", "E", "S"] not in recorded and len(recorded) < 200:  # what runs in the background may come between
        wired.wire.recorded.clear()
        n = len(recorded)
        await wired.service.append(
            session, "a", "b", headers={"Idempotency-Key": f"first {n}"}, expected_position=2 * n + 1
        )
        recorded.append(messages(wired.wire.recorded))

    assert ["B", "E", "S"] in recorded


async def test_a_lost_answer_is_told_and_a_key_makes_repeating_safe(wired: Wired) -> None:
    session = await wired.service.session(await wired.service.store())
    path = f"{STORES}{session}/items:append"

    committed = 0
    for attempt in range(20):
        await wired.service.append(session, "warm")
        before = await wired.items()
        key = {"Idempotency-Key": f"k{attempt}"} if attempt % 2 else {}
        body = {"items": [{"data": attempt}]}

        lost = await lose_answer(
            wired.wire, wired.direct, partial(wired.service.client.post, path, json=body, headers=key)
        )

        written = await wired.items() - before
        committed += written
        if key:
            assert (lost.status_code, lost.headers["retry-after"]) == (503, "1")
            again = await wired.service.client.post(path, json=body, headers=key)
            assert (again.status_code, "idempotent-replayed" in again.headers) == (200, written == 1)
            assert await wired.items() == before + 1
        elif written:
            assert lost.status_code == 500
            assert lost.json()["details"][1]["reason"] == "OUTCOME_UNKNOWN"
        else:
            assert lost.status_code in (500, 503)
    assert committed >= 10


async def lose_answer(wire: Wire, direct: Any, call: Callable[[], Awaitable[Any]]) -> Any:
    """What a caller hears when the wire goes silent before its statement and breaks after the commit, if one came."""
    before = await direct.fetchval("select count(*) from session_items")
    wire.is_mute = True
    calling = asyncio.ensure_future(call())
    with suppress(TimeoutError):  # something in the background may have had the connection that knows the statement
        await until(lambda: _has(direct, before + 1), deadline_s=3)
    wire.cut()
    wire.is_mute = False
    return (await asyncio.gather(calling, return_exceptions=True))[0]


async def _has(direct: Any, count: int) -> bool:
    return bool(await direct.fetchval("select count(*) from session_items") == count)


async def test_without_postgres_503_comes_soon_and_service_returns_by_itself(wired: Wired) -> None:
    session = await wired.service.session(await wired.service.store())
    wired.wire.refuse()
    wired.wire.cut()

    async with asyncio.timeout(10):
        answers = await asyncio.gather(
            *(
                wired.service.client.post(f"{STORES}{session}/items:append", json={"items": [{"data": n}]})
                for n in range(20)
            ),
            wired.service.client.get(f"{STORES}{session}/items"),
        )
    await wired.wire.resume()

    assert {(a.status_code, a.headers.get("retry-after")) for a in answers} <= {(503, "1"), (500, None)}
    assert answers[-1].json()["error_code"] == "TEMPORARILY_UNAVAILABLE"
    assert await wired.items() == 0
    assert [item["position"] for item in await wired.service.append(session, 1)] == [1]


async def test_a_postgres_that_takes_connections_and_says_nothing_is_503_too(wired: Wired) -> None:
    session = await wired.service.session(await wired.service.store())
    wired.wire.is_mute = True
    wired.wire.cut()
    await wired.service.client.get(f"{STORES}{session}/items")  # may find a connection that is dead

    async with asyncio.timeout(10):
        answers = await asyncio.gather(
            *(
                wired.service.client.post(f"{STORES}{session}/items:append", json={"items": [{"data": n}]})
                for n in range(20)
            ),
            *(wired.service.client.get(f"{STORES}{session}/items") for _ in range(20)),
        )
    wired.wire.is_mute = False
    wired.wire.cut()

    assert {(answer.status_code, answer.headers.get("retry-after")) for answer in answers} == {(503, "1")}
    await until(lambda: _serves(wired, session))
    assert await wired.items() == 0


async def _serves(wired: Wired, session: str) -> bool:
    return (await wired.service.client.get(f"{STORES}{session}/items")).status_code == 200


@pytest.mark.parametrize("sessions", [1_000, *([1_000_000] if SOAK else [])])
async def test_the_newest_of_100_000_items_touch_no_more_than_they_are(wired: Wired, sessions: int) -> None:
    service = wired.service
    store = await service.store()
    session = await service.session(store, "long")
    await service.append(session, "first")
    row = await wired.direct.fetchrow("select store_uid, session_uid from sessions")
    assert row is not None
    await wired.direct.execute(
        "insert into session_items (store_uid, session_uid, position, data, create_time)"
        " select $1, $2, n, '\"x\"', now() from generate_series(2, 100000) n",
        *row.values(),
    )
    await wired.direct.execute(
        "insert into sessions (store_uid, session_uid, session_id, actor_id, root_session_id, create_time, update_time,"
        " last_activity_time) select $1, gen_random_uuid(), 'x' || n, 'ana', 'x' || n, now(), now(), now()"
        " from generate_series(2, $2::int) n",
        row["store_uid"],
        sessions,
    )
    await wired.direct.execute(
        "insert into session_items (store_uid, session_uid, position, data, create_time)"
        " select store_uid, session_uid, 1, '\"x\"', now() from sessions where session_id <> 'long'"
    )
    await wired.direct.execute("vacuum analyze sessions, session_items")

    plan = await wired.direct.fetchval(
        f"explain (analyze, buffers, format json) {NEWEST_FIRST.small}",
        row["store_uid"],
        "USER",
        "ana@example.com",
        "long",
        2**63 - 1,
        20,
        Limits().page_bytes // 20,
    )

    root = json.loads(plan)[0]["Plan"]
    scans = [node for node in nodes(root) if node.get("Relation Name") == "session_items"]
    assert {node["Node Type"] for node in scans} == {"Index Scan"}
    assert sum(node["Actual Rows"] + node.get("Rows Removed by Filter", 0) for node in scans) <= 25
    assert root["Shared Hit Blocks"] + root["Shared Read Blocks"] <= 40
