"""History: versions, what held at a time, putting and restoring."""

import asyncio
from typing import Any

import pytest

from tests.support.memory import Distiller, Memory, said
from tests.support.service import chassis_of

JOB = "/job/employer.md"


@pytest.fixture
async def employer(memory: Memory) -> str:
    """The URL of an entry that was told three times: Northwind, Contoso, Northwind again."""
    distiller = await Distiller.of(memory)
    await distiller.tell(said(JOB, "Works at Northwind", "2026-01-10"))
    await distiller.tell(said(JOB, "Works at Contoso", "2026-04-10"))
    [outcome] = await distiller.tell(said(JOB, "Is back at Northwind", "2026-09-10"))
    return memory.url(f"/entries/{outcome.entry_id}")


async def versions(memory: Memory, url: str) -> list[dict[str, Any]]:
    told: list[dict[str, Any]] = []
    token = None
    while True:
        params = {"page_size": 2, **({"page_token": token} if token else {})}
        page = await memory.ok("GET", f"{url}/versions", params=params)
        told += page["versions"]
        token = page.get("next_page_token")
        if not token:
            return told


async def test_every_version_is_told_newest_first_with_its_evidence(memory: Memory, employer: str) -> None:
    told = await versions(memory, employer)

    assert [each["content"] for each in told] == ["Is back at Northwind", "Works at Contoso", "Works at Northwind"]
    assert [each["version"] for each in told] == [3, 2, 1]
    assert [len(each["evidence"]) for each in told] == [1, 1, 1]
    assert told[0]["writer"]["type"] == "DISTILLER"


async def test_reads_as_of_a_time_see_what_held_then(memory: Memory, employer: str) -> None:
    june = {"as_of": "2026-06-01T00:00:00+02:00"}

    assert (await memory.ok("GET", employer, params=june))["content"] == "Works at Contoso"
    [listed] = await memory.entries("ana", **june)
    assert (listed["content"], listed["version"]) == ("Works at Contoso", 2)
    assert [hit["managed_memory_entry"]["content"] for hit in await memory.search("ana", "works", **june)] == [
        "Works at Contoso"
    ]
    assert await memory.search("ana", "Northwind", **june) == []
    assert await memory.paths("ana", "Northwind", as_of="2026-02-01T00:00:00Z") == [JOB]
    before = {"as_of": "2025-12-31T00:00:00Z"}
    assert await memory.code("GET", employer, params=before) == (404, "NOT_FOUND")
    assert await memory.entries("ana", **before) == []


async def test_reads_as_known_at_a_time_see_what_was_known_then(memory: Memory, employer: str) -> None:
    told = await versions(memory, employer)

    known = {"known_at": told[1]["recorded_at"]}

    assert (await memory.ok("GET", employer, params=known))["content"] == "Works at Contoso"
    assert (await memory.ok("GET", employer, params=known | {"as_of": "2026-02-01T00:00:00Z"}))["version"] == 1


@pytest.mark.parametrize("time", ["yesterday", "2026-06-01", "2026-06-01T00:00:00", "9999-12-31T23:59:59-14:00"])
async def test_a_time_without_an_offset_is_refused(memory: Memory, employer: str, time: str) -> None:
    assert await memory.code("GET", employer, params={"as_of": time}) == (400, "INVALID_PARAMETER_VALUE")
    body = {"actor_id": "ana", "query": "x", "known_at": time}
    assert await memory.code("POST", memory.url("/entries:search"), json=body) == (400, "INVALID_PARAMETER_VALUE")


async def test_what_was_deleted_is_still_what_held_before(memory: Memory, employer: str) -> None:
    await memory.ok("DELETE", employer)

    assert await memory.paths("ana", "Contoso", as_of="2026-06-01T00:00:00Z") == [JOB]
    assert (await memory.ok("GET", employer, params={"as_of": "2026-06-01T00:00:00Z"}))["version"] == 2
    assert [each["retired"] for each in await versions(memory, employer)] == [True, False, False, False]


async def test_a_restore_is_a_new_version_and_brings_back_what_was_deleted(memory: Memory, employer: str) -> None:
    await memory.ok("DELETE", employer)

    restored = await memory.ok("POST", f"{employer}:restore", json={"version": 2})

    assert (restored["content"], restored["version"]) == ("Works at Contoso", 5)
    assert await memory.paths("ana", "Contoso") == [JOB]
    [entry] = await memory.entries("ana")
    assert len(entry["evidence"]) == 1
    assert await memory.code("POST", f"{employer}:restore", json={"version": 4}) == (400, "FAILED_PRECONDITION")
    for version in (0, -1, 99, 2**40):
        assert await memory.code("POST", f"{employer}:restore", json={"version": version}) == (404, "NOT_FOUND")


async def test_a_search_in_the_past_refuses_more_history_than_it_may_read(memory: Memory) -> None:
    made = await memory.add("ana", "/a.md", "words")
    uid = made["name"].rpartition("/")[2]
    await chassis_of(memory.app).database.write(
        "insert into entry_versions select e.store_uid, e.actor_id, e.entry_uid, n, false, 'x', null, 'state', 'user',"
        " now(), now(), null, 'USER', 'x', null, null, false from entries e, generate_series(2, 20001) n"
        " where e.entry_id = $1",
        uid,
    )
    body = {"actor_id": "ana", "query": "words", "as_of": "2026-01-01T00:00:00Z"}

    assert await memory.code("POST", memory.url("/entries:search"), json=body) == (400, "INVALID_PARAMETER_VALUE")


async def put(memory: Memory, path: str, content: str, **more: Any) -> dict[str, Any]:
    body = {"actor_id": "ana", "path": path, "content": content, **more}
    return await memory.ok("POST", memory.url("/entries:put"), json=body)


async def test_a_put_writes_whether_or_not_something_is_there(memory: Memory) -> None:
    first = await put(memory, "/a.md", "one", description="about")
    second = await put(memory, "/a.md", "two")
    scoped = await put(memory, "/a.md", "three", session_id="s1")

    assert (second["name"], second["version"], second["description"]) == (first["name"], 2, "about")
    assert scoped["name"] != first["name"]
    assert (await put(memory, "/a.md", "two"))["version"] == 2


async def test_concurrent_appends_lose_no_line(memory: Memory) -> None:
    await asyncio.gather(*(put(memory, "/log.md", f"line {number}", append=True) for number in range(20)))
    await asyncio.gather(*(put(memory, "/log.md", f"line {number}", append=True) for number in range(20)))

    [entry] = await memory.entries("ana")
    assert sorted(entry["content"].split("\n")) == sorted(f"line {number}" for number in range(20))
    assert entry["version"] == 20


async def test_of_writers_that_expect_the_same_version_one_wins(memory: Memory) -> None:
    await put(memory, "/a.md", "start", expected_version=0)
    body = {"actor_id": "ana", "path": "/a.md", "expected_version": 1}

    answers = await asyncio.gather(
        *(memory.client.post(memory.url("/entries:put"), json=body | {"content": str(number)}) for number in range(6))
    )

    assert sorted(answer.status_code for answer in answers) == [200] + [409] * 5
    lost = next(answer for answer in answers if answer.status_code == 409).json()
    assert lost["error_code"] == "ABORTED"
    assert lost["details"][1]["metadata"] == {"version": "2"}
    fresh = {"json": {**body, "path": "/new.md", "content": "x"}}
    assert await memory.code("POST", memory.url("/entries:put"), **fresh) == (409, "ABORTED")


async def test_a_put_is_repeated_safely_with_a_key(memory: Memory) -> None:
    await put(memory, "/a.md", "a")
    request: dict[str, Any] = {
        "json": {"actor_id": "ana", "path": "/a.md", "content": "b", "append": True},
        "headers": {"Idempotency-Key": "k"},
    }
    first = await memory.ok("POST", memory.url("/entries:put"), **request)
    await put(memory, "/a.md", "rewritten")

    again = await memory.client.post(memory.url("/entries:put"), **request)

    assert again.headers["idempotent-replayed"] == "true"
    assert again.json()["name"] == first["name"]
    assert (await memory.entries("ana"))[0]["content"] == "rewritten"


async def test_content_may_not_grow_over_its_limit(memory: Memory) -> None:
    await put(memory, "/a.md", "x" * (1024 * 1024 - 1))
    body = {"actor_id": "ana", "path": "/a.md", "content": "yy", "append": True}

    assert await memory.code("POST", memory.url("/entries:put"), json=body) == (400, "INVALID_PARAMETER_VALUE")


async def test_a_repeated_restore_adds_one_version(memory: Memory) -> None:
    made = await memory.add("ana", "/a.md", "one")
    url = f"/api/2.0/agents/{made['name']}"
    await memory.ok("PATCH", url, params={"update_mask": "content"}, json={"content": "two"})
    key = {"Idempotency-Key": "restore"}

    first, second, other = [
        await memory.client.post(f"{url}:restore", json={"version": version}, headers=key) for version in (1, 1, 2)
    ]

    assert first.json() == second.json()
    assert first.json()["version"] == 3
    assert "Idempotent-Replayed" not in first.headers
    assert second.headers["Idempotent-Replayed"] == "true"
    assert (other.status_code, other.json()["error_code"]) == (409, "ABORTED")
    assert len((await memory.ok("GET", f"{url}/versions"))["versions"]) == 3
