"""Every public method of both clients against a running Memstream: one list of scenes, run with each client.

A method that no scene calls fails the last line.
"""

import asyncio
import uuid
from collections.abc import Awaitable, Callable
from datetime import UTC, date, datetime, timedelta
from functools import partial
from typing import Any

import pytest

from memstream.errors import Aborted, AlreadyExists, FailedPrecondition, NotFound, Unauthenticated
from memstream.records import NewItem, Replay, ReplayedActors
from tests.support.proxy import TcpProxy
from tests.support.sdk import Face, both_clients, everything, face, public_methods
from tests.support.service import until
from tests.support.standalone import StandaloneProcess

DEADLINE_S = 60.0

Scene = Callable[[Face], Awaitable[None]]


def name() -> str:
    """A store name that nobody else has."""
    return f"t-{uuid.uuid4().hex[:12]}"


async def eventually(read: Callable[[], Awaitable[Any]], is_enough: Callable[[Any], bool]) -> Any:
    """What is read once it is enough."""
    seen: list[Any] = []

    async def look() -> bool:
        seen[:] = [await read()]
        return is_enough(seen[0])

    await until(look, deadline_s=DEADLINE_S)
    return seen[0]


def said(text: str) -> dict[str, str]:
    return {"type": "message", "role": "user", "content": text}


async def stores_are_made_found_changed_and_deleted(client: Face) -> None:
    first = name()
    chats = await client.session_stores.create(first, description="d", metadata={"a": "b"}, retention_days=30)
    facts = await client.memory_stores.create(first, description="d", metadata={"a": "b"}, language="german")

    assert (await client.session_stores.get(f"session-stores/{first}")).target == chats.target
    assert (await client.memory_stores.get(first)).target == facts.target
    assert first in [store.name async for store in client.session_stores.list(page_size=2)]
    assert first in [store.id async for store in client.memory_stores.list(page_size=2)]
    with pytest.raises(AlreadyExists):
        await client.session_stores.create(first)

    changed = await chats.update(description="e", idle_ttl_minutes=60, clear=["metadata", "retention_days"])
    assert (changed.description, changed.metadata, changed.retention_days) == ("e", {}, None)
    assert (changed.idle_ttl_minutes, chats.retention_days, chats.metadata) == (60, 30, {"a": "b"})
    remembered = await facts.update(history_days=90, clear=["description"])
    assert (remembered.description, remembered.history_days, remembered.language) == (None, 90, "german")
    assert changed.create_time.tzinfo is not None

    await chats.delete()
    await facts.delete()
    with pytest.raises(NotFound):
        await client.session_stores.get(first)
    with pytest.raises(NotFound):
        await client.memory_stores.get(first)


async def sessions_are_added_listed_forked_and_deleted(client: Face) -> None:
    chats = await client.session_stores.create(name())
    parent = await chats.add(actor_id="ines", session_id="parent", metadata={"channel": "web"})
    child = await chats.add(actor_id="ines", parent_session_id="parent")

    assert (child.parent_session_id, child.root_session_id) == ("parent", "parent")
    assert (await chats.get("parent")).metadata == {"channel": "web"}
    listed = chats.list(page_size=1, filter='actor_id = "ines"', order_by="create_time asc")
    assert [each.session_id async for each in listed] == ["parent", child.session_id]
    assert [each.session_id async for each in chats.list(filter='metadata.channel = "web"')] == ["parent"]
    assert (await parent.update(metadata={"channel": "app"})).metadata == {"channel": "app"}

    items = await parent.append_items([1, 2, 3])
    fork = await parent.fork(actor_id="emil", up_to_item_id=items[1].item_id, session_id="fork")
    assert (fork.actor_id, fork.forked_from_session_id, fork.parent_session_id) == ("emil", "parent", None)
    assert [item.data async for item in fork.list_items(order_by="create_time asc")] == [1, 2]

    with pytest.raises(FailedPrecondition):
        await parent.delete()
    await parent.delete(force=True)
    assert [each.session_id async for each in chats.list()] == ["fork"]


async def items_are_appended_listed_popped_and_cleared(client: Face) -> None:
    session = await (await client.session_stores.create(name())).add(actor_id="ines")
    spoken = datetime(2026, 3, 1, 9, 30, tzinfo=UTC)
    datas = [None, 0, "", {"ü": [1.5, True]}, said("hello")]

    stored = await session.append_items([*datas[:-1], NewItem(datas[-1], spoken)], expected_position=0)
    assert [item.data for item in stored] == datas
    assert [item.position for item in stored] == [1, 2, 3, 4, 5]
    assert datetime.fromisoformat(stored[-1].occurred_at) == spoken
    with pytest.raises(Aborted) as raised:
        await session.append_items(["late"], expected_position=0)
    assert raised.value.metadata["last_position"] == "5"

    again = [await session.append_items(["once"], idempotency_key="mine") for _ in range(2)]
    assert again[0] == again[1]
    assert [item.position async for item in session.list_items(page_size=2)] == [6, 5, 4, 3, 2, 1]
    after = session.list_items(order_by="create_time asc", after=4)
    assert [item.position async for item in after] == [5, 6]
    assert [item.position async for item in session.list_items(positions=[5, 1, 99])] == [5, 1]

    assert (await session.pop_item()).data == "once"
    (next_one,) = await session.append_items(["next"])
    assert next_one.position == 7
    await session.clear_items(through=5)
    assert [item.position async for item in session.list_items()] == [7]
    await session.clear_items()
    assert await everything(session.list_items()) == []
    assert await session.pop_item() is None


async def permissions_are_granted_listed_and_revoked(client: Face) -> None:
    shared = name()
    for store in (await client.session_stores.create(shared), await client.memory_stores.create(shared)):
        await store.grant_permission("emil@example.org", permission="READ")
        await store.grant_permission("an-agent")
        granted = {(each.principal_type, each.principal, each.permission) async for each in store.list_permissions()}
        assert granted == {("USER", "emil@example.org", "READ"), ("SERVICE_PRINCIPAL", "an-agent", "WRITE")}

        await store.revoke_permission("an-agent")
        assert [each.principal async for each in store.list_permissions(page_size=1000)] == ["emil@example.org"]
        assert (await store.own_permission()).permission == "WRITE"


async def memories_are_written_read_searched_and_deleted(client: Face) -> None:
    facts = await client.memory_stores.create(name())
    tea = await facts.add(actor_id="ines", path="/tea.md", content="Drinks green tea.", memory_id="tea")
    with pytest.raises(AlreadyExists):
        await facts.add(actor_id="ines", path="/tea.md", content="Drinks black tea.")
    await facts.add(actor_id="ines", path="/tea.md", content="Only in this one.", session_id="s-1")
    await facts.add(actor_id="emil", path="/tea.md", content="Drinks no tea.")

    assert (await facts.get("tea")).content == (await facts.get(tea.name)).content == "Drinks green tea."
    masked = await facts.get("tea", read_mask=["description"])
    assert (masked.content, masked.path) == (None, "/tea.md")
    assert len(await everything(facts.list(actor_id="ines", path="/tea.md", page_size=1))) == 2
    (of_session,) = await everything(facts.list(actor_id="ines", path_prefix="/", session_id="s-1"))
    assert of_session.content == "Only in this one."

    more = await facts.put(actor_id="ines", path="/tea.md", content="Takes no sugar.", append=True, expected_version=1)
    assert more.content == "Drinks green tea.\nTakes no sugar."
    with pytest.raises(Aborted):
        await facts.put(actor_id="ines", path="/tea.md", content="late", expected_version=1)
    hits = await facts.search(actor_id="ines", query="what about sugar?", limit=5)
    assert hits[0].memory.id == "tea"
    assert hits[0].score > 0
    assert len(await facts.search(actor_id="ines", query="sugar", min_score=1.0)) <= len(hits)

    changed = await more.update(description="hot drinks")
    assert (changed.description, changed.content) == ("hot drinks", more.content)
    await changed.delete()
    with pytest.raises(NotFound):
        await facts.get("tea")


async def what_an_entry_said_is_kept(client: Face) -> None:
    facts = await client.memory_stores.create(name())
    first = await facts.put(actor_id="ines", path="/home/city.md", content="Hamburg")
    second = await first.update(content="Lisbon")
    moment = first.valid_from + (second.valid_from - first.valid_from) / 2

    assert [each.content async for each in second.versions(page_size=1)] == ["Lisbon", "Hamburg"]
    assert (await facts.get(second.id, as_of=moment)).content == "Hamburg"
    assert (await facts.get(second.id, known_at=datetime.now(UTC) + timedelta(days=1))).content == "Lisbon"
    then = facts.list(actor_id="ines", as_of=moment)
    assert [each.content async for each in then] == ["Hamburg"]
    assert (await facts.search(actor_id="ines", query="Hamburg", as_of=moment))[0].memory.content == "Hamburg"

    restored = await second.restore(first.version)
    assert (restored.content, restored.version) == ("Hamburg", 3)


async def a_pipeline_distils_and_a_search_waits_for_it(client: Face) -> None:
    chats, facts = await client.session_stores.create(name()), await client.memory_stores.create(name())
    pipeline = await client.pipelines.create(
        session_store=chats.name, memory_store=facts.name, trigger="CONTINUOUS", quiet_period_s=0.1, max_wait_s=1
    )
    with pytest.raises(AlreadyExists):
        await client.pipelines.create(session_store=chats.name, memory_store=facts.id)
    session = await chats.add(actor_id="ines")

    items = await session.append_items([said("I'm allergic to peanuts.")])
    settled = await session.up_to(items[-1].position)
    hits = await facts.search(actor_id="ines", query="allergies", wait_for=settled, max_wait_ms=30_000)
    assert hits.settled is True
    (hit,) = hits
    (evidence,) = (await facts.get(hit.memory.id)).evidence
    assert (evidence.session_id, evidence.positions, evidence.available) == (session.session_id, (1,), True)
    waited = facts.list(actor_id="ines", wait_for=settled, max_wait_ms=1000)
    assert [each.path async for each in waited] == [hit.memory.path]

    begun = await pipeline.run()
    run = await eventually(lambda: pipeline.get_run(begun.id), lambda run: run.has_ended)
    assert run.state == "SUCCEEDED"
    assert run in await everything(pipeline.runs(page_size=1))
    (lane,) = await everything(pipeline.lanes(actor_id="ines"))
    assert (lane.actor_id, lane.behind, lane.state) == ("ines", 0, "settled")
    assert await everything(pipeline.lanes(state="parked")) == []
    assert await pipeline.redrive() == 0
    # The built-in model is called by nobody who counts tokens.
    assert await pipeline.usage(since=date(2026, 1, 1), until=date(2100, 1, 1)) == []


async def what_was_said_is_distilled_again(client: Face) -> None:
    chats, facts = await client.session_stores.create(name()), await client.memory_stores.create(name())
    other = await client.memory_stores.create(name())
    pipeline = await client.pipelines.create(session_store=chats.name, memory_store=facts.id, quiet_period_s=0.1)
    for actor, text in (("ines", "I'm allergic to peanuts."), ("emil", "I live in Lisbon.")):
        await (await chats.add(actor_id=actor)).append_items([said(text)])
    begun = await pipeline.run()
    await eventually(lambda: pipeline.get_run(begun.id), lambda run: run.has_ended)

    async def known(store: Face) -> list[tuple[str, str]]:
        return [(each.path, each.content) for actor in ("ines", "emil") async for each in store.list(actor_id=actor)]

    async def ended(replay: Replay) -> Replay:
        found: Replay = await eventually(partial(pipeline.get_replay, replay.id), lambda replay: replay.has_ended)
        return found

    before = await known(facts)
    replayed = await ended(await pipeline.replay())
    assert (replayed.state, replayed.error, replayed.actor_id) == ("SUCCEEDED", None, None)
    assert (replayed.memory_store, replayed.actors) == (facts.name, ReplayedActors(total=2, swapped=2, failed=0))
    assert None not in (replayed.create_time, replayed.end_time)
    assert len(before) == 2
    assert await known(facts) == before

    apart = await ended(await pipeline.replay(actor_id="ines", memory_store=other.id))
    assert (apart.actor_id, apart.memory_store, apart.actors.swapped) == ("ines", other.name, 1)
    assert await known(other) == before[:1]

    begun = await pipeline.replay()
    await pipeline.cancel_replay(begun.id)
    assert (await ended(begun)).state in ("CANCELED", "SUCCEEDED")  # it may have been faster
    await pipeline.cancel_replay(replayed.name)
    assert await pipeline.get_replay(replayed.name) == replayed
    listed = [replay async for replay in pipeline.replays(page_size=1)]
    assert (listed[0].id, listed[-1]) == (begun.id, replayed)


async def pipelines_are_found_changed_and_deleted(client: Face) -> None:
    chats, facts = await client.session_stores.create(name()), await client.memory_stores.create(name())
    made = await client.pipelines.create(session_store=chats.name, memory_store=facts.id, instructions="Only food.")
    assert (made.trigger, made.enabled, made.instructions) == ("MANUAL_ONLY", False, "Only food.")

    changed = await made.update(
        trigger="SCHEDULED", display_name="food", daily_token_budget=1000, clear=["instructions"], etag=made.etag
    )
    assert (changed.trigger, changed.enabled, changed.instructions) == ("SCHEDULED", True, None)
    assert (changed.display_name, changed.daily_token_budget) == ("food", 1000)
    with pytest.raises(Aborted):
        await made.update(trigger="CONTINUOUS", etag=made.etag)
    continuous = await changed.update(trigger="CONTINUOUS", clear=["daily_token_budget"])
    paused = await continuous.update(enabled=False)
    resumed = await paused.update(enabled=True)
    assert [each.trigger for each in (continuous, paused, resumed)] == ["CONTINUOUS", "MANUAL_ONLY", "CONTINUOUS"]

    assert (await client.pipelines.get(made.name)).target == resumed.target
    await chats.delete()
    error = (await client.pipelines.get(made.name)).error
    assert error is not None
    assert f"{chats.name} of this pipeline was deleted" in error
    assert made.id in [each.id async for each in client.pipelines.list(page_size=100)]
    await changed.delete()
    with pytest.raises(NotFound):
        await client.pipelines.get(made.id)


async def a_session_is_extracted_without_a_pipeline(client: Face) -> None:
    chats, facts = await client.session_stores.create(name()), await client.memory_stores.create(name())
    session = await chats.add(actor_id="ines")
    await session.append_items([said("My sister's name is Petra.")])

    tried = await session.extract_memories(memory_store=facts.name, dry_run=True)
    assert await everything(facts.list(actor_id="ines")) == []
    written = await session.extract_memories(memory_store=facts.id, instructions="Family only.")

    assert [each.path for each in tried] == [each.path for each in written]
    assert [each.content async for each in facts.list(actor_id="ines")] == [each.content for each in written]


async def an_actor_is_erased_and_the_receipt_is_confirmed(client: Face) -> None:
    chats, facts = await client.session_stores.create(name()), await client.memory_stores.create(name())
    await (await chats.add(actor_id="ines")).append_items([1, 2])
    await facts.put(actor_id="ines", path="/tea.md", content="green")

    for store, counted in ((chats, ("items", 2)), (facts, ("memory", 1))):
        begun = await store.erase_actor("ines")
        receipt = await eventually(partial(store.get_erasure, begun.erasure_id), lambda receipt: receipt.is_done)
        assert counted in receipt.counts.items()
    assert await everything(chats.list()) == []
    assert await everything(facts.list(actor_id="ines")) == []


async def changes_are_watched(client: Face) -> None:
    facts = await client.memory_stores.create(name())
    watch = facts.watch(actor_id="ines")
    assert (await anext(watch)).change == "ready"

    written = await facts.put(actor_id="ines", path="/tea.md", content="green")
    change = await anext(watch)
    await watch.aclose()

    assert (change.change, change.name, change.path, change.version) == ("set", written.name, "/tea.md", 1)


SCENES: list[Scene] = [
    stores_are_made_found_changed_and_deleted,
    sessions_are_added_listed_forked_and_deleted,
    items_are_appended_listed_popped_and_cleared,
    permissions_are_granted_listed_and_revoked,
    memories_are_written_read_searched_and_deleted,
    what_an_entry_said_is_kept,
    a_pipeline_distils_and_a_search_waits_for_it,
    what_was_said_is_distilled_again,
    pipelines_are_found_changed_and_deleted,
    a_session_is_extracted_without_a_pipeline,
    an_actor_is_erased_and_the_receipt_is_confirmed,
    changes_are_watched,
]


@both_clients
async def test_every_public_method_does_what_it_says(standalone: StandaloneProcess, kind: str) -> None:
    client = face(kind, base_url=standalone.url, token=standalone.token)

    try:
        for scene in SCENES:
            await scene(client)
    finally:
        await client.close()

    assert client.called == public_methods(kind)


@both_clients
async def test_a_watch_misses_nothing_while_its_connection_is_cut(standalone: StandaloneProcess, kind: str) -> None:
    direct = face(kind, base_url=standalone.url, token=standalone.token)
    facts = await direct.memory_stores.create(name())
    async with TcpProxy(("127.0.0.1", standalone.port)) as wire:
        cut_off = face(kind, base_url=f"http://{wire.address}", token=standalone.token)
        watch = (await cut_off.memory_stores.get(facts.id)).watch()
        assert (await anext(watch)).change == "ready"

        wire.refuse()
        wire.cut()
        for version in range(3):
            await facts.put(actor_id="ines", path="/tea.md", content=f"cup {version}")
        await wire.resume()
        async with asyncio.timeout(DEADLINE_S):
            seen = [(await anext(watch)).version for _ in range(3)]
        await watch.aclose()
        await cut_off.close()
    await direct.close()

    assert seen == [1, 2, 3]


@both_clients
async def test_a_token_that_is_refused_says_so_with_a_hint(standalone: StandaloneProcess, kind: str) -> None:
    client = face(kind, base_url=standalone.url, token="nobody's")

    with pytest.raises(Unauthenticated) as raised:
        await everything(client.session_stores.list())
    await client.close()

    assert raised.value.error_code == "UNAUTHENTICATED"
    assert raised.value.hint


@both_clients
async def test_an_append_behind_a_wire_that_is_cut_arrives_once(standalone: StandaloneProcess, kind: str) -> None:
    direct = face(kind, base_url=standalone.url, token=standalone.token)
    chats = await direct.session_stores.create(name())
    session = await chats.add(actor_id="ines")
    async with TcpProxy(("127.0.0.1", standalone.port)) as wire:
        cut_off = face(kind, base_url=f"http://{wire.address}", token=standalone.token)
        through = await (await cut_off.session_stores.get(chats.name)).get(session.session_id)

        appends = [asyncio.create_task(through.append_items([number])) for number in range(40)]
        await until(lambda: any(append.done() for append in appends))
        wire.cut()
        await asyncio.gather(*appends)
        await cut_off.close()

    datas = [item.data async for item in session.list_items(page_size=100)]
    await direct.close()
    assert sorted(datas) == list(range(40))
