"""The main job through the public surface: an agent appends, seconds later the facts are found."""

import time

import pytest

from memstream.client import AgentKitClient
from memstream.distilling import wait_until_distilled
from memstream.errors import NotFound
from memstream.memories import MemoryStore
from memstream.pipelines import Pipeline
from memstream.records import NewItem
from memstream.sessions import SessionStore

DEADLINE_S = 60.0


def said(text: str, time: str | None = None) -> NewItem:
    return NewItem({"type": "message", "role": "user", "content": text}, time)


def stores(
    client: AgentKitClient, name: str, *, trigger: str = "CONTINUOUS"
) -> tuple[SessionStore, MemoryStore, Pipeline]:
    sessions, memories = client.session_stores.create(name), client.memory_stores.create(name)
    pipeline = client.pipelines.create(
        session_store=sessions.name, memory_store=memories.id, trigger=trigger, quiet_period_s=0.1, max_wait_s=1
    )
    return sessions, memories, pipeline


def test_what_was_said_is_found_without_anybody_starting_a_run(client: AgentKitClient, name: str) -> None:
    sessions, memories, _ = stores(client, name)
    session = sessions.add(actor_id="ines")

    session.append_items([said("My sister's name is Petra."), {"type": "function_call", "name": "no_message"}])

    deadline = time.monotonic() + DEADLINE_S
    while not (found := memories.search(actor_id="ines", query="who is my sister")) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert [hit.memory.content for hit in found] == ["My sister's name is Petra."]
    (evidence,) = found[0].memory.evidence
    assert (evidence.session_id, evidence.positions) == (session.session_id, (1,))


def test_a_change_of_mind_replaces_the_old_value(client: AgentKitClient, name: str) -> None:
    sessions, memories, pipeline = stores(client, name)
    first, second = (sessions.add(actor_id="ines") for _ in range(2))

    first.append_items([said("I live in Hamburg.", "2026-01-01T10:00:00+01:00")])
    wait_until_distilled(pipeline, DEADLINE_S, lambda *_: None)
    second.append_items([said("I live in Lisbon now.", "2026-02-01T10:00:00Z")])
    wait_until_distilled(pipeline, DEADLINE_S, lambda *_: None)

    (home,) = memories.list(actor_id="ines", path_prefix="/home/")
    assert (home.content, home.version) == ("I live in Lisbon now.", 2)


def test_the_order_of_import_changes_nothing(client: AgentKitClient, name: str) -> None:
    sessions, memories, pipeline = stores(client, name)
    newer, older = (sessions.add(actor_id="ines") for _ in range(2))

    newer.append_items([said("I live in Lisbon now.", "2026-02-01T10:00:00Z")])
    wait_until_distilled(pipeline, DEADLINE_S, lambda *_: None)
    older.append_items([said("I live in Hamburg.", "2026-01-01T10:00:00+01:00")])
    wait_until_distilled(pipeline, DEADLINE_S, lambda *_: None)

    (home,) = memories.list(actor_id="ines", path_prefix="/home/")
    assert home.content == "I live in Lisbon now."


def test_one_actor_never_sees_anothers_memories(client: AgentKitClient, name: str) -> None:
    sessions, memories, pipeline = stores(client, name)

    sessions.add(actor_id="ines").append_items([said("I have a dog named Biscuit.")])
    sessions.add(actor_id="orla").append_items([said("I play the cello.")])
    wait_until_distilled(pipeline, DEADLINE_S, lambda *_: None)

    assert [hit.memory.content for hit in memories.search(actor_id="orla", query="dog cello Biscuit")] == [
        "I play the cello."
    ]


def test_a_manual_pipeline_distils_when_it_is_run(client: AgentKitClient, name: str) -> None:
    sessions, memories, pipeline = stores(client, name, trigger="MANUAL_ONLY")
    sessions.add(actor_id="ines").append_items([said("I'm allergic to peanuts.")])

    assert list(memories.list(actor_id="ines")) == []
    wait_until_distilled(pipeline, DEADLINE_S, lambda *_: None)

    assert [memory.path for memory in memories.list(actor_id="ines")] == ["/allergies/peanuts.md"]


def test_a_store_that_does_not_exist_is_not_found(client: AgentKitClient, name: str) -> None:
    for get in (client.session_stores.get, client.memory_stores.get):
        with pytest.raises(NotFound, match=name):
            get(name)
