"""The change feed, read by replicas over real HTTP."""

import asyncio
import json
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from libs.chassis import housekeeping
from services.memory.app import build
from services.memory.store.changes import EXPIRE_CHANGES
from tests.support.memory import Memory, settings
from tests.support.service import Keys, chassis_of, served


@pytest.fixture
async def replica(memory: Memory, keys: Keys) -> AsyncIterator[str]:
    async with served(build(settings(memory.dsn, keys))) as url:
        yield url


Event = tuple[str, str, dict[str, Any]]


class Watch:
    def __init__(self, lines: AsyncIterator[str]) -> None:
        self._lines = lines

    async def next(self) -> Event:
        """The next event as id, name and data."""
        fields: dict[str, str] = {}
        async with asyncio.timeout(20):
            async for line in self._lines:
                if line.startswith(":"):
                    continue
                if not line and fields:
                    return fields["id"], fields["event"], json.loads(fields["data"])
                name, _, value = line.partition(": ")
                fields[name] = value
        raise AssertionError("the feed ended")


@asynccontextmanager
async def watching(
    memory: Memory, url: str, actor_id: str | None = "ana", after: str | None = None
) -> AsyncIterator[Watch]:
    headers = memory.keys.header() | ({"Last-Event-ID": after} if after else {})
    async with httpx.AsyncClient(base_url=url, headers=headers, timeout=30) as client:
        params = {} if actor_id is None else {"actor_id": actor_id}
        async with client.stream("GET", memory.url("/entries:watch"), params=params) as answer:
            assert answer.status_code == 200
            assert answer.headers["content-type"].startswith("text/event-stream")
            yield Watch(answer.aiter_lines())


async def test_each_change_arrives_once_in_order(memory: Memory, replica: str) -> None:
    async with watching(memory, replica) as watch:
        _, name, _ = await watch.next()
        assert name == "ready"
        made = await memory.add("ana", "/a.md", "one")
        await memory.add("bo", "/a.md", "foreign")
        url = f"/api/2.0/agents/{made['name']}"
        await memory.ok("PATCH", url, params={"update_mask": "content"}, json={"content": "two"})
        await memory.ok("DELETE", url)
        await memory.ok("POST", memory.url("/actors:erase"), json={"actor_id": "bo"})

        seen = [await watch.next() for _ in range(3)]

    assert [(name, body["path"], body["version"]) for _, name, body in seen] == [
        ("set", "/a.md", 1),
        ("set", "/a.md", 2),
        ("retired", "/a.md", 3),
    ]
    assert seen[0][2]["name"] == made["name"]


async def test_a_reader_goes_on_at_another_replica_and_misses_nothing(memory: Memory, replica: str, keys: Keys) -> None:
    writers, rounds = 20, 5
    seen: list[tuple[str, int]] = []

    async def write(number: int) -> None:
        for version in range(rounds):
            body = {"actor_id": f"ana{number % 4}", "path": f"/{number}.md", "content": str(version)}
            await memory.ok("POST", memory.url("/entries:put"), json=body)
            await asyncio.sleep(random.random() / 100)

    async def read(watch: Watch, count: int) -> str:
        place = ""
        while count:
            place, name, body = await watch.next()
            if name == "set":
                seen.append((body["path"], body["version"]))
                count -= 1
        return place

    async with watching(memory, replica, None) as watch:
        await watch.next()
        writing = asyncio.gather(*(write(number) for number in range(writers)))
        place = await read(watch, writers)
    async with served(build(settings(memory.dsn, keys))) as other, watching(memory, other, None, place) as watch:
        await read(watch, writers * rounds - writers)
    await writing

    assert sorted(seen) == sorted((f"/{n}.md", v + 1) for n in range(writers) for v in range(rounds))
    for number in range(writers):
        assert [version for path, version in seen if path == f"/{number}.md"] == list(range(1, rounds + 1))


async def test_a_row_that_commits_late_is_not_lost(memory: Memory, replica: str) -> None:
    store_uid = await memory.store_uid()
    insert = "insert into changes (store_uid, actor_id, change, path) values ($1, 'ana', 'set', $2)"
    async with watching(memory, replica) as watch, chassis_of(memory.app).database.connection() as slow:
        await watch.next()
        transaction = slow.transaction()
        await transaction.start()
        await slow.execute(insert, store_uid, "/late.md")
        await memory.add("ana", "/early.md", "x")
        await asyncio.sleep(1.5)
        await transaction.commit()

        paths = [(await watch.next())[2]["path"] for _ in range(2)]

    assert paths == ["/late.md", "/early.md"]


async def test_a_place_that_expired_gets_one_reset(memory: Memory, replica: str) -> None:
    async with watching(memory, replica) as watch:
        ready, _, _ = await watch.next()
        await memory.add("ana", "/a.md", "x")
        first, _, _ = await watch.next()
    chassis = chassis_of(memory.app)
    await memory.add("ana", "/b.md", "x")
    await chassis.database.write("update changes set created_at = now() - interval '8 days'")
    await housekeeping.run_pass(chassis.unit_of_work, EXPIRE_CHANGES)

    for place in (ready, first):
        async with watching(memory, replica, after=place) as watch:
            _, name, _ = await watch.next()
            await memory.add("ana", f"/after-{place}.md", "x")
            _, then, body = await watch.next()
            assert (name, then, body["path"]) == ("reset", "set", f"/after-{place}.md")


async def restored_elsewhere(memory: Memory) -> None:
    """What the database knows is of transactions that its new server will not reach for long."""
    database = chassis_of(memory.app).database
    for table in ("changes", "change_horizons"):
        await database.write(f"update {table} set tx = (tx::text::bigint + 1000000000)::text::xid8")


async def test_a_reader_of_a_database_that_was_restored_into_another_server_gets_one_reset(
    memory: Memory, replica: str
) -> None:
    chassis = chassis_of(memory.app)
    async with watching(memory, replica) as watch:
        await watch.next()
        await memory.add("ana", "/a.md", "x")
        first, _, _ = await watch.next()
    await chassis.database.write("update changes set created_at = now() - interval '8 days'")
    await housekeeping.run_pass(chassis.unit_of_work, EXPIRE_CHANGES)
    await memory.add("ana", "/b.md", "x")
    await restored_elsewhere(memory)
    tx, _, change_id = first.partition("-")

    async with watching(memory, replica, after=f"{int(tx) + 1_000_000_000}-{change_id}") as watch:
        place, name, _ = await watch.next()
        await memory.add("ana", "/c.md", "x")
        _, then, body = await watch.next()
    assert (name, then, body["path"]) == ("reset", "set", "/c.md")

    await chassis.database.write("update changes set created_at = now() - interval '8 days'")
    await housekeeping.run_pass(chassis.unit_of_work, EXPIRE_CHANGES)
    async with watching(memory, replica, after=place) as watch:
        _, name, _ = await watch.next()
        await memory.add("ana", "/d.md", "x")
        _, then, body = await watch.next()
    assert (name, then, body["path"]) == ("reset", "set", "/d.md")


async def test_an_erasure_is_told_without_what_was_erased(memory: Memory, replica: str) -> None:
    async with watching(memory, replica) as watch:
        place, _, _ = await watch.next()
    await memory.add("ana", "/secret-path.md", "x")
    await memory.ok("POST", memory.url("/actors:erase"), json={"actor_id": "ana"})

    async with watching(memory, replica, after=place) as watch:
        _, ready, _ = await watch.next()
        _, name, body = await watch.next()

    assert (ready, name, body) == ("ready", "erased", {"actor_id": "ana"})


async def test_who_may_not_read_may_not_watch(memory: Memory) -> None:
    url = memory.url("/entries:watch")
    stranger = memory.keys.header("stranger@example.com")

    assert await memory.code("GET", url, headers=stranger) == (403, "PERMISSION_DENIED")
    for bad in ("x", "1", "-1-2", f"{2**70}-1"):
        assert await memory.code("GET", url, headers={"Last-Event-ID": bad}) == (400, "INVALID_PARAMETER_VALUE")


async def test_a_watch_ends_when_the_grant_does(memory: Memory, replica: str, keys: Keys) -> None:
    reader = {"principal": {"principal_type": "USER", "name": "r@x"}}
    await memory.ok("POST", memory.url("/permissions:grant"), json=reader | {"permission": "READ"})
    headers = keys.header("r@x")

    async with (
        httpx.AsyncClient(base_url=replica, headers=headers, timeout=30) as client,
        client.stream("GET", memory.url("/entries:watch")) as answer,
    ):
        await memory.ok("POST", memory.url("/permissions:revoke"), json=reader)
        async with asyncio.timeout(20):
            lines = [line async for line in answer.aiter_lines()]

    assert "event: ready" in lines


async def test_a_watch_ends_when_the_token_does(memory: Memory, replica: str, keys: Keys) -> None:
    headers = keys.header(ttl_s=-27)  # 30 s of leeway leave it three

    async with (
        httpx.AsyncClient(base_url=replica, headers=headers, timeout=30) as client,
        client.stream("GET", memory.url("/entries:watch")) as answer,
    ):
        async with asyncio.timeout(20):
            lines = [line async for line in answer.aiter_lines()]

    assert "event: ready" in lines
