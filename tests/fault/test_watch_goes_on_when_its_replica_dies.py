"""A watch whose replica is killed goes on at another: each change once, in its actor's order, none missing.

Twenty writers write through a third replica, so changes get their numbers in one order and commit in another.
"""

import asyncio
import json
import random
import signal
from collections import defaultdict
from typing import Any

import httpx

from libs.contracts.routes import BASE
from tests.support.cluster import ENTRIES, Cluster, Replica, cluster
from tests.support.servers import PostgresServer
from tests.support.service import until

WRITERS, ROUNDS, ACTORS = 20, 30, 5
Seen = list[tuple[str, dict[str, Any]]]


async def watch(running: Cluster, replica: Replica, seen: Seen, count: int) -> None:
    """Adds what it hears as (id, body) after the last of `seen`, until there are `count` or the connection breaks."""
    after = {"Last-Event-ID": seen[-1][0]} if seen else {}
    async with (
        httpx.AsyncClient(headers=running.keys.header() | after, timeout=30) as client,
        client.stream("GET", f"{replica.url}{ENTRIES}:watch") as answer,
    ):
        event: dict[str, str] = {}
        async for line in answer.aiter_lines():
            if line:
                name, _, value = line.partition(": ")
                event[name] = value
                continue
            assert event.get("event") != "reset", "nothing has expired"
            if event.get("event") == "set":
                seen.append((event["id"], json.loads(event["data"])))
            event = {}
            if len(seen) == count:
                return


async def write(running: Cluster, replica: Replica, number: int) -> None:
    chance = random.Random(number)
    async with httpx.AsyncClient(headers=running.keys.header(), timeout=30) as client:
        for version in range(ROUNDS):
            body = {"actor_id": f"a{number % ACTORS}", "path": f"/{number}.md", "content": f"version {version}"}
            answer = await client.post(f"{replica.url}{ENTRIES}:put", json=body)
            assert answer.status_code == 200, answer.text
            await asyncio.sleep(chance.uniform(0.05, 0.2))


async def test_a_watch_goes_on_at_another_replica_after_kill_9(postgres: PostgresServer) -> None:
    seen: Seen = []
    async with cluster(postgres, replicas={"memory": 3}) as running:
        writes_at, watched, next_watched = running.of("memory")
        # The place to begin from, so that no change comes before the first watch hears.
        seen.append((await first_place(running, watched), {}))
        watching = asyncio.create_task(watch(running, watched, seen, WRITERS * ROUNDS + 1))
        writing = asyncio.gather(*(write(running, writes_at, number) for number in range(WRITERS)))
        await until(lambda: len(seen) > 1)
        watched.send(signal.SIGKILL)
        broken = await asyncio.gather(watching, return_exceptions=True)
        heard = len(seen)
        async with asyncio.timeout(60):
            await watch(running, next_watched, seen, WRITERS * ROUNDS + 1)
        await writing

    assert isinstance(broken[0], httpx.TransportError)
    assert heard < WRITERS * ROUNDS, "the first watch did not hear all"
    versions: defaultdict[str, list[int]] = defaultdict(list)
    for _, body in seen[1:]:
        versions[body["path"]].append(body["version"])
    assert versions == {f"/{number}.md": list(range(1, ROUNDS + 1)) for number in range(WRITERS)}


async def first_place(running: Cluster, replica: Replica) -> str:
    async with (
        httpx.AsyncClient(headers=running.keys.header(), timeout=30) as client,
        client.stream("GET", f"{replica.url}{BASE}/memory-stores/facts/entries:watch") as answer,
    ):
        async for line in answer.aiter_lines():
            if line.startswith("id: "):
                return line.removeprefix("id: ")
    raise AssertionError("the feed ended")
