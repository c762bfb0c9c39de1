"""The published client, unmodified, against the memory service behind a real HTTP server."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any, TypeVar

import pytest
from databricks.sdk import WorkspaceClient
from databricks.sdk.common.types.fieldmask import FieldMask
from databricks.sdk.errors import AlreadyExists, InvalidParameterValue, NotFound, PermissionDenied
from databricks.sdk.service import agentkit

from services.memory.app import REVISIONS, build
from tests.support.memory import settings
from tests.support.servers import PostgresServer
from tests.support.service import Keys, database, served

T = TypeVar("T")
Entry = agentkit.ManagedMemoryEntry


@pytest.fixture
async def url(postgres: PostgresServer, keys: Keys) -> AsyncIterator[str]:
    async with database(postgres, "memory", REVISIONS) as dsn, served(build(settings(dsn, keys))) as url:
        yield url


@pytest.fixture
async def kit(url: str, keys: Keys) -> Any:
    return await client(url, keys.token())


async def client(url: str, token: str) -> Any:
    return (await off_loop(lambda: WorkspaceClient(host=url, token=token))).agent_kit


def mask(*paths: str) -> Any:
    return FieldMask(list(paths))  # type: ignore[no-untyped-call]


async def off_loop(call: Callable[[], T]) -> T:
    """The client blocks, and the server lives in this loop."""
    return await asyncio.to_thread(call)


async def make_store(kit: Any, name: str = "notes") -> Any:
    store = agentkit.ManagedMemoryStore(description="d")
    return await off_loop(lambda: kit.create_memory_store(store, name))


async def test_stores_live_their_life(kit: Any) -> None:
    made = await make_store(kit)
    name = "memory-stores/notes"
    assert (made.name, made.description, made.creator_user_id) == (name, "d", "ana@example.com")
    assert made.create_time is not None

    changed = await off_loop(
        lambda: kit.update_memory_store(name, agentkit.ManagedMemoryStore(description="new"), mask("description"))
    )
    for number in range(12):
        await make_store(kit, f"more-{number:02}")
    listed = await off_loop(lambda: [store.name for store in kit.list_memory_stores(page_size=5)])
    got = await off_loop(lambda: kit.get_memory_store(name))
    await off_loop(lambda: kit.delete_memory_store(name))

    assert (changed.description, got.description) == ("new", "new")
    assert listed == sorted([*(f"memory-stores/more-{number:02}" for number in range(12)), name])
    with pytest.raises(NotFound):
        await off_loop(lambda: kit.get_memory_store(name))
    with pytest.raises(AlreadyExists):
        await make_store(kit, "more-01")
    with pytest.raises(InvalidParameterValue):
        await make_store(kit, "No")


async def test_entries_live_their_life(kit: Any) -> None:
    parent = (await make_store(kit)).name
    source = agentkit.ManagedMemoryEntrySourceType.MANAGED_MEMORY_ENTRY_SOURCE_TYPE_DREAMER
    basic = agentkit.ManagedMemoryEntryView.MANAGED_MEMORY_ENTRY_VIEW_BASIC
    entry = Entry(actor_id="ana", path="/a.md", content="likes tea", description="drinks", source_type=source)

    made = await off_loop(lambda: kit.create_memory(parent, entry))
    chosen = await off_loop(
        lambda: kit.create_memory(
            parent, Entry(actor_id="ana", path="/b.md", session_id="s1"), managed_memory_entry_id="mine"
        )
    )
    got = await off_loop(lambda: kit.get_memory(made.name))
    bare = await off_loop(lambda: kit.get_memory(made.name, view=basic))
    changed = await off_loop(
        lambda: kit.update_memory(
            made.name, Entry(actor_id="ana", path="/a.md", content="likes coffee"), mask("content")
        )
    )
    for number in range(12):
        path = f"/many/{number:02}.md"
        await off_loop(lambda path=path: kit.create_memory(parent, Entry(actor_id="ana", path=path, content="tea")))  # type: ignore[misc]
    listed = await off_loop(lambda: list(kit.list_memories(parent, "ana", page_size=5)))
    scoped = await off_loop(lambda: list(kit.list_memories(parent, "ana", session_id="s1", view=basic)))
    prefixed = await off_loop(lambda: list(kit.list_memories(parent, "ana", path_prefix="/many/")))
    await off_loop(lambda: kit.delete_memory(made.name))

    assert chosen.name == f"{parent}/entries/mine"
    assert (got.content, got.description, got.source_type) == ("likes tea", "drinks", source)
    assert (bare.content, bare.description) == (None, "drinks")
    assert changed.content == "likes coffee"
    assert changed.update_time.ToDatetime() > changed.create_time.ToDatetime()
    assert [each.path for each in listed] == sorted({each.path for each in listed})
    assert len(listed) == 14
    assert [each.path for each in scoped] == ["/b.md"]
    assert len(prefixed) == 12
    with pytest.raises(NotFound):
        await off_loop(lambda: kit.delete_memory(made.name))
    with pytest.raises(AlreadyExists):
        await off_loop(lambda: kit.create_memory(parent, Entry(actor_id="ana", path="/many/00.md")))
    with pytest.raises(InvalidParameterValue):
        await off_loop(lambda: kit.create_memory(parent, Entry(actor_id="ana", path="a.md")))


async def test_a_search_gives_results_with_scores(kit: Any) -> None:
    parent = (await make_store(kit)).name
    for path, content in (("/tea.md", "likes green tea"), ("/pets.md", "has a cat")):
        entry = Entry(actor_id="ana", path=path, content=content)
        await off_loop(lambda entry=entry: kit.create_memory(parent, entry))  # type: ignore[misc]

    by_size = await off_loop(lambda: list(kit.search_memories(parent, "ana", "green tea", page_size=5)))
    by_limit = await off_loop(lambda: list(kit.search_memories(parent, "ana", "green tea", limit=5)))
    nothing = await off_loop(lambda: list(kit.search_memories(parent, "bo", "green tea")))

    [hit] = by_size
    assert (hit.managed_memory_entry.path, hit.managed_memory_entry.content) == ("/tea.md", "likes green tea")
    assert 0 < hit.score <= 1
    assert [each.score for each in by_limit] == [hit.score]
    assert nothing == []
    with pytest.raises(InvalidParameterValue):
        await off_loop(lambda: list(kit.search_memories(parent, "ana", "tea", limit=5, page_size=6)))


async def test_permissions_are_granted_listed_and_revoked(kit: Any, url: str, keys: Keys) -> None:
    parent = (await make_store(kit)).name
    reader = await client(url, keys.token("app-1", service_principal=True))
    principal = agentkit.StorePrincipal(name="app-1", principal_type=agentkit.PrincipalType.SERVICE_PRINCIPAL)
    with pytest.raises(PermissionDenied):
        await off_loop(lambda: reader.get_memory_store(parent))

    await off_loop(lambda: kit.grant_memory_store_permission(parent, principal, agentkit.PermissionLevel.READ))
    own = await off_loop(lambda: reader.get_memory_store_permission(parent))
    listed = await off_loop(lambda: list(kit.list_memory_store_permissions(parent)))
    got = await off_loop(lambda: reader.get_memory_store(parent))
    with pytest.raises(PermissionDenied):
        await off_loop(lambda: reader.create_memory(parent, Entry(actor_id="a", path="/a")))
    await off_loop(lambda: kit.revoke_memory_store_permission(parent, principal))

    assert got.name == parent
    assert own.permission == agentkit.PermissionLevel.READ
    assert [(each.principal.name, each.permission) for each in listed] == [("app-1", agentkit.PermissionLevel.READ)]
    with pytest.raises(PermissionDenied):
        await off_loop(lambda: reader.get_memory_store(parent))
