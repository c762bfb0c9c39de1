"""Two and three replicas of the session service behind one edge are one service, also while they die and stop."""

import asyncio
import itertools
import json
import random
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from tests.support.cluster import SESSIONS, Cluster, Replica, cluster
from tests.support.ledger import Ledger
from tests.support.load import Load, judged
from tests.support.proxy import TcpEdge
from tests.support.servers import PostgresServer

SHARED = "shared"
WRITERS = 16
ENDED = {signal.SIGKILL: {-signal.SIGKILL}, signal.SIGTERM: {0, -signal.SIGTERM}}


@asynccontextmanager
async def edge_of(running: Cluster) -> AsyncIterator[None]:
    """Everything that is asked of the session service goes through one port."""
    async with TcpEdge([replica.port for replica in running.of("session")]) as edge:
        running.edges["session"] = f"http://{edge.address}"
        yield


async def end_each(running: Cluster, rounds: int) -> None:
    """Kills one replica and stops another under load, again and again, each time with the rest serving."""
    replicas = running.of("session")
    for number, replica in zip(range(rounds), itertools.cycle(replicas), strict=False):
        await asyncio.sleep(0.5)
        how = signal.SIGTERM if number % 2 else signal.SIGKILL
        count = len(replica.statuses)
        replica.send(how)
        async with asyncio.timeout(20):
            while len(replica.statuses) == count:  # noqa: ASYNC110 - the keeper finds it, and starts another
                await asyncio.sleep(0.02)
        assert replica.statuses[-1] in ENDED[how]
        await running.ready(replica)


async def write_together(load: Load, is_over: Callable[[], bool]) -> None:
    """Several writers of one session, each waiting for its own answers only."""

    async def write(number: int) -> None:
        for turn in itertools.count():
            if is_over():
                return
            lines = [load.script.answer() for _ in range(2)]
            await load.append(SHARED, SHARED, lines, key=f"{SHARED} {number} {turn}")

    await asyncio.gather(*(write(number) for number in range(WRITERS)))


async def read_along(running: Cluster, is_over: Callable[[], bool]) -> int:
    """Walks of the shared session, page by page, and forks of it; returns how many. What is seen once stays."""
    seen: list[str] = []
    for number in itertools.count():
        if is_over():
            return number
        items = await running.items(SHARED)
        assert [item.position for item in items] == list(range(1, len(items) + 1))
        data = [item.data for item in items]
        assert data[: len(seen)] == seen
        seen = data
        await running.call(
            "POST",
            f"{SESSIONS}:fork",
            json={"source_session_id": SHARED, "actor_id": "reader", "session_id": f"fork-{number}"},
            headers={"Idempotency-Key": f"fork {number}"},
        )
        forked = [item.data for item in await running.items(f"fork-{number}")]
        assert forked[: len(seen)] == seen
        await delete(running, f"{SESSIONS}/fork-{number}")
    raise AssertionError


async def delete(running: Cluster, path: str) -> None:
    """Until it is gone, whoever answers."""
    async with asyncio.timeout(60):
        while True:
            try:
                answer = await running.request("DELETE", path)
            except httpx.TransportError:
                continue
            if answer.status_code in (200, 404):
                return
            assert answer.status_code in (500, 503), answer.text


@pytest.mark.parametrize("replicas", [2, 3])
async def test_replicas_that_die_and_stop_under_load_lose_double_and_halve_nothing(
    postgres: PostgresServer, ledger: Ledger, seed: int, is_soak: bool, replicas: int
) -> None:
    async with cluster(postgres, replicas={"session": replicas}, seed=seed) as running, edge_of(running):
        load = Load(running, ledger, seed, pause_s=0.02)
        await running.make_session(SHARED, SHARED)
        ending = asyncio.create_task(end_each(running, 30 if is_soak else 4))
        walks, *_ = await asyncio.gather(
            read_along(running, ending.done), load.run(lambda _: ending.done()), write_together(load, ending.done)
        )
        await ending
        await running.ready()

        await judged(running, ledger)
        served = [await running.metric(each, "memstream_http_requests_total") for each in running.of("session")]

    assert ledger.acknowledged == len(ledger.appends)
    assert walks > 0
    assert all(served)


@pytest.fixture
async def three(postgres: PostgresServer) -> AsyncIterator[Cluster]:
    async with cluster(postgres, replicas={"session": 3}) as running:
        yield running


async def test_a_page_token_and_a_key_of_one_replica_are_good_at_every_other(three: Cluster) -> None:
    replicas = three.of("session")
    await three.make_session("s1", "ana")
    rng = random.Random(0)

    async def ask(replica: Replica, method: str, path: str, **request: Any) -> httpx.Response:
        async with httpx.AsyncClient(base_url=replica.url, headers=three.keys.header(), timeout=20) as client:
            return await client.request(method, path, **request)

    append = {"json": {"items": [{"data": n} for n in range(50)]}, "headers": {"Idempotency-Key": "k"}}
    answers = await asyncio.gather(
        *(ask(replica, "POST", f"{SESSIONS}/s1/items:append", **append) for replica in replicas * 3)
    )
    positions: list[int] = []
    token: dict[str, str] = {}
    while True:
        params = {"page_size": "7"} | token
        page = json.loads((await ask(rng.choice(replicas), "GET", f"{SESSIONS}/s1/items", params=params)).content)
        positions += [item["position"] for item in page["session_items"]]
        if "next_page_token" not in page:
            break
        token = {"page_token": page["next_page_token"]}

    assert {answer.status_code for answer in answers} == {200}
    assert len({answer.content for answer in answers}) == 1
    assert sorted(answer.headers.get("Idempotent-Replayed", "") for answer in answers) == ["", *["true"] * 8]
    assert positions == list(range(50, 0, -1))
