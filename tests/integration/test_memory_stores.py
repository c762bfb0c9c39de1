"""Memory stores over HTTP."""

import pytest

from libs.chassis import housekeeping
from services.memory.store.purge import PURGE, TABLES
from tests.support.memory import STORES, Distiller, Memory, said
from tests.support.service import chassis_of


async def test_a_store_is_named_by_query_or_body(memory: Memory) -> None:
    by_body = await memory.ok("POST", STORES, json={"display_name": "by-body", "description": "d"})
    by_query = await memory.ok("POST", STORES, params={"managed_memory_store_id": "by-query"})
    both = {"params": {"managed_memory_store_id": "one"}, "json": {"display_name": "two"}}

    assert (by_body["name"], by_body["display_name"]) == ("memory-stores/by-body", "by-body")
    assert by_query["name"] == "memory-stores/by-query"
    assert by_body["owner_user_id"] == by_body["creator_user_id"] == "ana@example.com"
    assert await memory.code("POST", STORES, **both) == (400, "INVALID_PARAMETER_VALUE")
    assert await memory.code("POST", STORES, json={"display_name": "by-body"}) == (409, "ALREADY_EXISTS")


@pytest.mark.parametrize("name", ["", "ab", "Abc", "1abc", "abc-", "a_c", "a" * 57, "äbc"])
async def test_a_name_outside_the_rules_is_refused(refusing: Memory, name: str) -> None:
    assert await refusing.code("POST", STORES, json={"display_name": name}) == (400, "INVALID_PARAMETER_VALUE")


async def test_a_display_name_may_be_masked_only_as_it_is(memory: Memory) -> None:
    same = {
        "params": {"update_mask": "display_name,description"},
        "json": {"display_name": "notes", "description": "x"},
    }
    other = {"params": {"update_mask": "display_name"}, "json": {"display_name": "else"}}

    assert (await memory.ok("PATCH", memory.url(), **same))["description"] == "x"
    assert await memory.code("PATCH", memory.url(), **other) == (400, "INVALID_PARAMETER_VALUE")
    cleared = {"params": {"update_mask": "description"}, "json": {}}
    assert "description" not in await memory.ok("PATCH", memory.url(), **cleared)


async def test_stores_are_listed_by_name_in_pages(memory: Memory) -> None:
    for name in ("ccc", "aaa", "bbb"):
        await memory.make_store(name)

    first = await memory.ok("GET", STORES, params={"page_size": 2})
    second = await memory.ok("GET", STORES, params={"page_size": 2, "page_token": first["next_page_token"]})

    names = [store["display_name"] for page in (first, second) for store in page["managed_memory_stores"]]
    assert names == ["aaa", "bbb", "ccc", "notes"]
    assert "next_page_token" not in second


async def test_what_a_deleted_store_held_is_purged_and_its_neighbour_stays(memory: Memory) -> None:
    await memory.make_store("other")
    for store in ("notes", "other"):
        await memory.add("ana", "/a.md", "words here", store=store)
        distiller = await Distiller.of(memory, store)
        await distiller.tell(said("/job.md", "Works at Northwind"))
    gone, kept = await memory.store_uid("notes"), await memory.store_uid("other")
    chassis = chassis_of(memory.app)

    await memory.ok("DELETE", memory.url())
    await housekeeping.run_pass(chassis.unit_of_work, PURGE)

    for table in TABLES:
        rows = await chassis.database.fetchval(f"select count(*) from {table} where store_uid = $1", gone)
        assert rows == 0, table
    assert await chassis.database.fetchval("select count(*) from purges") == 0
    assert await chassis.database.fetchval("select count(*) from entries where store_uid = $1", kept) == 2
    assert set(await memory.paths("ana", "words Northwind", store="other")) == {"/job.md", "/a.md"}
