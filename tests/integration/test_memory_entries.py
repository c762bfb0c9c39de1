"""Entries over HTTP, against the real database."""

import asyncio
from typing import Any

import pytest

from tests.support.memory import Memory


async def test_what_was_created_is_read_listed_and_found_at_once(memory: Memory) -> None:
    made = await memory.add("ana", "/diet/nuts.md", "Cannot eat peanuts", description="food allergies")

    read = await memory.ok("GET", f"/api/2.0/agents/{made['name']}")

    assert read["content"] == "Cannot eat peanuts"
    assert read["version"] == 1
    assert read["source_type"] == "MANAGED_MEMORY_ENTRY_SOURCE_TYPE_AGENT"
    assert await memory.entries("ana") == [read]
    [hit] = await memory.search("ana", "peanut allergy")
    assert hit["managed_memory_entry"] == read
    assert 0 < hit["score"] <= 1


async def test_a_missing_session_is_a_key_of_its_own(memory: Memory) -> None:
    await memory.add("ana", "/a.md", "one")
    await memory.add("ana", "/a.md", "two", session_id="s1")
    await memory.add("bo", "/a.md", "three")

    again = {"actor_id": "ana", "path": "/a.md", "content": "four"}
    assert await memory.code("POST", memory.url("/entries"), json=again) == (409, "ALREADY_EXISTS")
    again["session_id"] = "s1"
    assert await memory.code("POST", memory.url("/entries"), json=again) == (409, "ALREADY_EXISTS")


async def test_of_parallel_creates_exactly_one_wins(memory: Memory) -> None:
    body = {"actor_id": "ana", "path": "/race.md", "content": "x"}

    answers = await asyncio.gather(*(memory.client.post(memory.url("/entries"), json=body) for _ in range(8)))

    codes = sorted(answer.status_code for answer in answers)
    assert codes == [200] + [409] * 7
    assert len(await memory.entries("ana")) == 1


@pytest.mark.parametrize("path", ["", "a.md", "/", "//a", "/a//b", "/a/", "/a/./b", "/../a", "/" + "x" * 1024])
async def test_a_path_outside_the_rules_is_refused(refusing: Memory, path: str) -> None:
    body = {"actor_id": "ana", "path": path}

    assert await refusing.code("POST", refusing.url("/entries"), json=body) == (400, "INVALID_PARAMETER_VALUE")
    assert await refusing.entries("ana") == []


async def test_the_filters_mean_what_the_contract_says(memory: Memory) -> None:
    await memory.add("ana", "/a/x.md", "no session")
    await memory.add("ana", "/a/x.md", "with session", session_id="s1")
    await memory.add("ana", "/ab.md", "other")
    await memory.add("ana", "/A/x.md", "capital", session_id="s2")

    async def listed(**params: str) -> list[str]:
        return [entry["content"] for entry in await memory.entries("ana", **params)]

    assert sorted(await listed(path="/a/x.md")) == ["no session", "with session"]
    assert sorted(await listed(path="/a/x.md", session_id="s2")) == ["no session", "with session"]
    assert await listed(session_id="s1") == ["with session"]
    assert sorted(await listed(path_prefix="/a")) == ["no session", "other", "with session"]
    assert sorted(await listed(path_prefix="/a/")) == ["no session", "with session"]
    assert len(await listed(path_prefix="/")) == 4
    assert await listed(path_prefix="/a", session_id="s1") == ["with session"]
    both = {"actor_id": "ana", "path": "/a/x.md", "path_prefix": "/a"}
    assert await memory.code("GET", memory.url("/entries"), params=both) == (400, "INVALID_PARAMETER_VALUE")


async def test_names_that_look_like_patterns_match_only_themselves(memory: Memory) -> None:
    stores = ["acme", "acme-corp", "acme1"]
    actors = ["a.b", "a*b", "a>b", "50%", "a_b", "0b7e3f5c-7c43-4d0e-8f57-5a8a7bb1f001"]
    for store in stores:
        await memory.make_store(store)
        for actor in actors:
            await memory.add(actor, "/x_y.md", f"canary {actor}", store=store)
            await memory.add(actor, "/xay.md", "decoy bird", store=store)

    await memory.ok("DELETE", memory.url(store="acme"))

    for store in stores[1:]:
        for actor in actors:
            assert await memory.paths(actor, "canary", store=store) == ["/x_y.md"]
            assert len(await memory.entries(actor, path_prefix="/x_", store=store)) == 1
    assert await memory.code("GET", memory.url("/entries", "acme"), params={"actor_id": "a.b"}) == (404, "NOT_FOUND")


async def test_pages_give_every_entry_once(memory: Memory) -> None:
    for number in range(25):
        await memory.add("ana", f"/n/{number:02}.md", str(number), session_id=f"s{number % 3}")

    seen: list[str] = []
    token = None
    while True:
        params = {"actor_id": "ana", "page_size": 7, **({"page_token": token} if token else {})}
        page = await memory.ok("GET", memory.url("/entries"), params=params)
        seen += [entry["path"] for entry in page["managed_memory_entries"]]
        token = page.get("next_page_token")
        if not token:
            break

    assert seen == [f"/n/{number:02}.md" for number in range(25)]
    foreign = {"actor_id": "bo", "page_size": 7}
    first = await memory.ok("GET", memory.url("/entries"), params={"actor_id": "ana", "page_size": 7})
    foreign["page_token"] = first["next_page_token"]
    assert await memory.code("GET", memory.url("/entries"), params=foreign) == (400, "INVALID_PARAMETER_VALUE")


@pytest.mark.parametrize(
    "params", [{"page_size": "101"}, {"page_size": "-1"}, {"page_size": "x"}, {"page_token": "zz"}]
)
async def test_a_bad_page_is_refused(refusing: Memory, params: dict[str, Any]) -> None:
    asked = {"actor_id": "ana", **params}
    assert await refusing.code("GET", refusing.url("/entries"), params=asked) == (400, "INVALID_PARAMETER_VALUE")


async def test_an_update_changes_what_the_mask_names(memory: Memory) -> None:
    made = await memory.add("ana", "/a.md", "old", description="about")
    url = f"/api/2.0/agents/{made['name']}"

    body = {"content": "new", "description": "ignored", "actor_id": "bo", "path": "/b.md"}
    updated = await memory.ok("PATCH", url, params={"update_mask": "content"}, json=body)

    assert (updated["content"], updated["description"], updated["version"]) == ("new", "about", 2)
    cleared = await memory.ok("PATCH", url, params={"update_mask": "description"}, json={})
    assert "description" not in cleared
    assert await memory.paths("ana", "old") == []
    assert await memory.paths("ana", "new") == ["/a.md"]
    for mask in ("", "path", "content,kind"):
        bad = {"params": {"update_mask": mask}, "json": body}
        assert await memory.code("PATCH", url, **bad) == (400, "INVALID_PARAMETER_VALUE")


async def test_what_was_deleted_is_gone_and_its_place_is_free(memory: Memory) -> None:
    made = await memory.add("ana", "/a.md", "secret word", managed="x")
    url = f"/api/2.0/agents/{made['name']}"

    await memory.ok("DELETE", url)

    assert await memory.code("GET", url) == (404, "NOT_FOUND")
    assert await memory.code("DELETE", url) == (404, "NOT_FOUND")
    assert await memory.code("PATCH", url, params={"update_mask": "content"}, json={}) == (404, "NOT_FOUND")
    assert await memory.entries("ana") == []
    assert await memory.search("ana", "secret word") == []
    again = await memory.add("ana", "/a.md", "fresh")
    assert again["name"] != made["name"]
    assert await memory.code("GET", url) == (404, "NOT_FOUND")
    assert [entry["content"] for entry in await memory.entries("ana")] == ["fresh"]


async def test_a_chosen_entry_id_is_unique_in_its_store(memory: Memory) -> None:
    await memory.make_store("other")
    chosen = {"params": {"managed_memory_entry_id": "my.id"}, "json": {"actor_id": "ana", "path": "/a.md"}}
    made = await memory.ok("POST", memory.url("/entries"), **chosen)
    await memory.ok("POST", memory.url("/entries", "other"), **chosen)

    assert made["name"] == "memory-stores/notes/entries/my.id"
    chosen["json"] = {"actor_id": "bo", "path": "/b.md"}
    assert await memory.code("POST", memory.url("/entries"), **chosen) == (409, "ALREADY_EXISTS")
    for bad in ("a:b", "..", "ä", "x" * 256):
        chosen["params"] = {"managed_memory_entry_id": bad}
        assert await memory.code("POST", memory.url("/entries"), **chosen) == (400, "INVALID_PARAMETER_VALUE")
    await memory.ok("DELETE", memory.url("/entries/my.id"))
    chosen["params"] = {"managed_memory_entry_id": "my.id"}
    await memory.ok("POST", memory.url("/entries"), **chosen)


async def test_views_and_masks_leave_the_identity(memory: Memory) -> None:
    made = await memory.add("ana", "/a.md", "words", description="about")
    url = f"/api/2.0/agents/{made['name']}"

    basic = await memory.ok("GET", url, params={"view": "MANAGED_MEMORY_ENTRY_VIEW_BASIC"})
    masked = await memory.ok("GET", url, params={"read_mask": "description"})
    [hit] = await memory.search("ana", "words", read_mask="name,path")

    assert "content" not in basic
    assert basic["description"] == "about"
    assert masked == {"name": made["name"], "actor_id": "ana", "path": "/a.md", "description": "about"}
    assert hit["managed_memory_entry"].keys() == {"name", "actor_id", "path"}
    assert hit["score"] > 0
    for bad in (
        {"view": "FULL"},
        {"read_mask": "colour"},
        {"view": "MANAGED_MEMORY_ENTRY_VIEW_FULL", "read_mask": "path"},
    ):
        assert await memory.code("GET", url, params=bad) == (400, "INVALID_PARAMETER_VALUE")


async def test_a_repeat_with_the_same_key_creates_once(memory: Memory) -> None:
    body = {"actor_id": "ana", "path": "/a.md", "content": "x"}
    headers = {"Idempotency-Key": "k1"}

    first, *repeats = await asyncio.gather(
        *(memory.client.post(memory.url("/entries"), json=body, headers=headers) for _ in range(5))
    )

    assert {answer.status_code for answer in (first, *repeats)} == {200}
    assert len({answer.json()["name"] for answer in (first, *repeats)}) == 1
    assert sum("idempotent-replayed" in answer.headers for answer in (first, *repeats)) == 4
    other = {"json": body | {"content": "y"}, "headers": headers}
    assert await memory.code("POST", memory.url("/entries"), **other) == (409, "ABORTED")


async def test_an_entry_that_was_deleted_is_made_again_by_its_key(memory: Memory) -> None:
    body = {"actor_id": "ana", "path": "/again.md", "content": "x"}
    headers = {"Idempotency-Key": "again"}
    first = await memory.client.post(memory.url("/entries"), json=body, headers=headers)
    await memory.client.delete(f"/api/2.0/agents/{first.json()['name']}")

    again = await memory.client.post(memory.url("/entries"), json=body, headers=headers)

    assert (again.status_code, "idempotent-replayed" in again.headers) == (200, False)
    assert again.json()["content"] == "x"


async def test_grants_decide_who_reads_and_who_writes(memory: Memory) -> None:
    made = await memory.add("ana", "/a.md", "words")
    url = f"/api/2.0/agents/{made['name']}"
    reader = memory.keys.header("reader@example.com")
    grant = {"principal": {"principal_type": "USER", "name": "reader@example.com"}, "permission": "READ"}
    search = {"actor_id": "ana", "query": "words"}
    denied = (403, "PERMISSION_DENIED")

    for method, target, more in (
        ("GET", url, {}),
        ("GET", memory.url("/entries"), {"params": {"actor_id": "ana"}}),
        ("POST", memory.url("/entries:search"), {"json": search}),
        ("GET", memory.url(), {}),
    ):
        assert await memory.code(method, target, headers=reader, **more) == denied
        admin = memory.keys.header("root@example.com", admin=True)
        if target != memory.url():
            assert await memory.code(method, target, headers=admin, **more) == denied
        stranger = memory.keys.header("ana@example.com", workspace=2)
        assert await memory.code(method, target, headers=stranger, **more) == (404, "NOT_FOUND")
    await memory.ok("POST", memory.url("/permissions:grant"), json=grant)

    assert (await memory.ok("GET", url, headers=reader))["content"] == "words"
    assert len((await memory.ok("POST", memory.url("/entries:search"), headers=reader, json=search))["results"]) == 1
    assert await memory.code("DELETE", url, headers=reader) == denied
    body = {"actor_id": "ana", "path": "/b.md"}
    assert await memory.code("POST", memory.url("/entries"), headers=reader, json=body) == denied
    assert (await memory.client.get(memory.url(), headers={"Authorization": ""})).status_code == 401


async def test_a_store_made_anew_under_its_old_name_is_empty(memory: Memory) -> None:
    await memory.add("ana", "/a.md", "before")
    await memory.ok("DELETE", memory.url())
    await memory.make_store("notes")

    assert await memory.entries("ana") == []
    assert await memory.search("ana", "before") == []


async def test_concurrent_writers_of_one_actor_lose_nothing(memory: Memory) -> None:
    await asyncio.gather(*(memory.add("ana", f"/p/{number}.md", f"word{number} common") for number in range(40)))

    assert len(await memory.entries("ana")) == 40
    assert len(await memory.search("ana", "common", page_size=100)) == 40
    assert await memory.paths("ana", "word17") == ["/p/17.md"]
