"""Synchronous extraction: a session distilled at once, into the slots that a pipeline would write."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from libs.contracts.routes import BASE
from tests.support.servers import NatsServer, PostgresServer
from tests.support.system import System, system

EXTRACT = "/session-stores/chats/sessions/s1/extractions"


@pytest.fixture
async def memstream(postgres: PostgresServer, nats: NatsServer) -> AsyncIterator[System]:
    async with system(postgres, nats) as running:
        await running.call("POST", "/session-stores?session_store_id=chats", json={})
        await running.call("POST", "/memory-stores?managed_memory_store_id=facts", json={})
        await running.say("ana", "s1", "I am allergic to peanuts.", "Hello?", "I work at Northwind.")
        yield running


async def extract(memstream: System, **body: Any) -> list[dict[str, Any]]:
    answer = await memstream.call("POST", EXTRACT, json={"memory_store": "memory-stores/facts"} | body)
    assert answer["name"]
    entries: list[dict[str, Any]] = answer["entries"]
    return entries


async def test_an_extraction_answers_what_it_has_written(memstream: System) -> None:
    entries = await extract(memstream)

    assert {entry["path"]: entry["content"] for entry in entries} == await memstream.memories("ana")
    assert "/job/employer.md" in await memstream.memories("ana")
    for entry in entries:
        shown = await memstream.call("GET", f"/{entry['name']}")
        assert (shown["path"], shown["actor_id"]) == (entry["path"], "ana")
        assert shown["source_type"] == "MANAGED_MEMORY_ENTRY_SOURCE_TYPE_DREAMER"


async def test_a_dry_run_writes_nothing_and_names_every_entry(memstream: System) -> None:
    entries = await extract(memstream, dry_run=True)

    assert len(entries) == 2
    assert all(entry["name"].startswith("memory-stores/facts/entries/") for entry in entries)
    assert await memstream.memories("ana") == {}


async def test_an_extraction_and_a_pipeline_never_make_a_fact_twice(memstream: System) -> None:
    await extract(memstream)
    before = await memstream.memories("ana")

    pipeline = await memstream.call(
        "POST",
        "/memory-pipelines",
        json={"session_store": "chats", "memory_store": "facts", "dreamer_policy": {"trigger": "CONTINUOUS"}},
    )
    await memstream.settled(pipeline["name"])
    await extract(memstream)

    assert await memstream.memories("ana") == before


async def test_a_long_session_is_extracted_whole(memstream: System) -> None:
    likes = [f"I am allergic to thing{n}berries." for n in range(90)]
    for start in range(0, 90, 30):
        await memstream.say("ana", "s1", *likes[start : start + 30])

    await extract(memstream)

    allergies = [path for path in await memstream.memories("ana") if path.startswith("/allergies/")]
    assert len(allergies) == 91


@pytest.mark.parametrize(
    ("path", "body", "code", "says"),
    [
        (EXTRACT, {}, 400, "memory_store"),
        (EXTRACT, {"memory_store": "session-stores/facts"}, 400, "memory-stores/"),
        (EXTRACT, {"memory_store": "nobody"}, 404, "nobody"),
        (EXTRACT.replace("s1", "s9"), {"memory_store": "facts"}, 404, "s9"),
        (EXTRACT.replace("chats", "others"), {"memory_store": "facts"}, 404, "others"),
    ],
)
async def test_a_bad_extraction_is_refused(
    memstream: System, path: str, body: dict[str, Any], code: int, says: str
) -> None:
    answer = await memstream.client.post(f"{BASE}{path}", json=body)

    assert answer.status_code == code
    assert says in answer.json()["message"]


async def test_an_extraction_needs_both_grants(memstream: System) -> None:
    friend = memstream.keys.header("friend@example.com")
    body = {"memory_store": "facts"}

    assert (await memstream.client.post(f"{BASE}{EXTRACT}", json=body, headers=friend)).status_code == 403
    for store, permission, code in (("session-stores/chats", "READ", 403), ("memory-stores/facts", "WRITE", 200)):
        await memstream.call(
            "POST",
            f"/{store}/permissions:grant",
            json={
                "principal": {"principal_type": "USER", "name": "friend@example.com"},
                "permission": permission,
            },
        )
        answer = await memstream.client.post(f"{BASE}{EXTRACT}", json=body, headers=friend)
        assert answer.status_code == code, answer.text
