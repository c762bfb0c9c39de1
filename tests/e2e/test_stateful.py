"""A stateful agent behind stateless requests: threads, users, and going on without either layer."""

import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from memstream import AsyncAgentKitClient
from memstream.client import AgentKitClient
from memstream.errors import NotFound
from memstream.openai import AsyncSession
from memstream.optional import ActorMismatch, unavailable
from memstream.stateful import AsyncLongTermMemory, LongTermMemory, MemoryItem
from tests.support.agents import asked
from tests.support.handler import Handler
from tests.support.scripted_model import ScriptedModel, answers, scripted_model
from tests.support.standalone import StandaloneProcess

MEMSTREAM = str(Path(sys.executable).parent / "memstream")
DEADLINE_S = 60.0


@pytest.fixture
async def model() -> AsyncIterator[ScriptedModel]:
    async with scripted_model() as model:
        model.behave(answers("Certainly."))
        yield model


@pytest.fixture
async def awaited(standalone: StandaloneProcess) -> AsyncIterator[AsyncAgentKitClient]:
    async with AsyncAgentKitClient(base_url=standalone.url, token=standalone.token) as client:
        yield client


@pytest.fixture
def handler(model: ScriptedModel, standalone: StandaloneProcess, client: AgentKitClient, name: str) -> Handler:
    client.session_stores.create(name)
    client.memory_stores.create(name)
    return Handler(model, standalone.url, name, name)


def token_for(standalone: StandaloneProcess, user: str) -> str:
    command = [MEMSTREAM, "tokens", "issue", "--user", user, "--data-dir", str(standalone.data_dir)]
    answer = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, check=True)
    return answer.stdout.strip()


def request(question: str, **more: Any) -> dict[str, Any]:
    return {"input": [{"role": "user", "content": question}], **more}


def of(user_id: str, thread_id: str | None = None) -> dict[str, Any]:
    return {"custom_inputs": {"user_id": user_id, "thread_id": thread_id}}


async def test_a_client_goes_on_with_the_thread_that_it_was_told(
    handler: Handler, standalone: StandaloneProcess, model: ScriptedModel
) -> None:
    first = await handler.predict(request("I am Ines.", **of("ines")), standalone.token)
    thread_id = first["custom_outputs"]["thread_id"]
    second = await handler.predict(request("Who am I?", **of("ines", thread_id)), standalone.token)
    other = await handler.predict(request("And who am I?", **of("ines")), standalone.token)

    assert second["custom_outputs"]["thread_id"] == thread_id
    assert [text for _, text in asked(model.requests[1])][1:] == ["I am Ines.", "Certainly.", "Who am I?"]
    assert other["custom_outputs"]["thread_id"] != thread_id
    assert [text for _, text in asked(model.requests[2])][1:] == ["And who am I?"]


async def test_a_conversation_id_is_a_thread(handler: Handler, standalone: StandaloneProcess) -> None:
    inputs = {"custom_inputs": {"thread_id": "", "user_id": "ines"}}

    answer = await handler.predict(request("Hi.", conversation_id="conversation-1", **inputs), standalone.token)

    assert answer["custom_outputs"] == {"thread_id": "conversation-1"}


async def test_every_event_of_a_stream_names_the_thread(handler: Handler, standalone: StandaloneProcess) -> None:
    events = [event async for event in handler.stream(request("Hi.", **of("ines")), standalone.token)]

    assert len(events) > 2
    assert len({event["custom_outputs"]["thread_id"] for event in events}) == 1


async def test_what_a_user_wished_is_known_in_their_next_thread_and_to_nobody_else(
    handler: Handler, standalone: StandaloneProcess, model: ScriptedModel, client: AgentKitClient
) -> None:
    await handler.predict(request("Remember: window seats, please.", **of("ines")), standalone.token)
    later = await handler.predict(request("Which seats do I like?", **of("ines")), standalone.token)
    await handler.predict(request("Which seats do I like?", **of("emil")), standalone.token)

    told, stranger = (model.requests[number]["messages"][0]["content"] for number in (1, 2))
    assert told == "Be helpful.\n{'wish': 'window seats, please.'}"
    assert stranger == "Be helpful."
    session = client.session_stores.get(handler.sessions or "").get(later["custom_outputs"]["thread_id"])
    assert "window" not in str([item.data for item in session.list_items()])


async def test_users_that_are_not_known_share_nothing(
    handler: Handler, standalone: StandaloneProcess, model: ScriptedModel, client: AgentKitClient
) -> None:
    await handler.predict(request("Remember: window seats, please."), standalone.token)
    await handler.predict(request("Which seats do I like?"), standalone.token)

    assert model.requests[1]["messages"][0]["content"] == "Be helpful."
    assert list(client.memory_stores.get(handler.facts or "").list(actor_id="unknown")) == []


@pytest.mark.parametrize("with_sessions", [True, False])
@pytest.mark.parametrize("with_facts", [True, False])
async def test_each_layer_can_be_left_out(
    handler: Handler, standalone: StandaloneProcess, model: ScriptedModel, with_sessions: bool, with_facts: bool
) -> None:
    handler.sessions = handler.sessions if with_sessions else None
    handler.facts = handler.facts if with_facts else None

    for question in ("Remember: window seats, please.", "Which seats do I like?"):
        await handler.predict(request(question, **of("ines", "t-1")), standalone.token)

    instructions, *messages = asked(model.requests[1])
    assert (len(messages) == 3) is with_sessions
    assert ("window" in instructions[1]) is with_facts


async def test_without_stores_the_agent_still_answers_and_names_the_thread(
    model: ScriptedModel, standalone: StandaloneProcess, name: str
) -> None:
    handler = Handler(model, standalone.url, name, name)
    before = unavailable["add_items"]

    answer = await handler.predict(request("Remember: window seats.", **of("ines", "t-1")), standalone.token)

    assert answer["output"][0]["content"] == "Certainly."
    assert answer["custom_outputs"] == {"thread_id": "t-1"}
    assert unavailable["add_items"] > before


async def test_without_a_server_the_agent_still_answers(model: ScriptedModel, name: str) -> None:
    handler = Handler(model, "http://127.0.0.1:9", name, name)

    answer = await handler.predict(request("Hi.", **of("ines", "t-1")), "a token")

    assert answer["output"][0]["content"] == "Certainly."


async def test_each_request_speaks_for_its_own_user(
    handler: Handler, standalone: StandaloneProcess, model: ScriptedModel, client: AgentKitClient
) -> None:
    client.memory_stores.get(handler.facts or "").grant_permission("ines@example.org")
    tokens = {user: token_for(standalone, user) for user in ("ines@example.org", "emil@example.org")}
    for user, token in tokens.items():
        await handler.predict(request("Remember: window seats, please.", **of(user)), token)

    for user, token in tokens.items():
        await handler.predict(request("Which seats do I like?", **of(user)), token)

    granted, refused = (body["messages"][0]["content"] for body in model.requests[2:])
    assert "window" in granted
    assert refused == "Be helpful."


async def test_setup_makes_what_is_missing_as_often_as_it_is_called(
    awaited: AsyncAgentKitClient, client: AgentKitClient, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AGENT_SESSION_STORE", raising=False)
    monkeypatch.delenv("AGENT_MEMORY_STORE", raising=False)
    monkeypatch.setenv("LAKEBASE_INSTANCE_NAME", name)

    for _ in range(2):
        session = AsyncSession("t-1", actor="ines", client=awaited, on_unavailable="raise")
        await session.setup()
        await AsyncLongTermMemory(client=awaited, on_unavailable="raise").setup()
        LongTermMemory(client=client, on_unavailable="raise").setup()
        await session.add_items([{"role": "user", "content": "hi"}])

    assert len(list(client.session_stores.get(name).get("t-1").list_items())) == 2
    assert client.memory_stores.get(name).id == name


async def test_a_session_that_cannot_be_had_reads_as_empty_unless_it_must_be_there(
    awaited: AsyncAgentKitClient, client: AgentKitClient, name: str
) -> None:
    session = AsyncSession("t-1", name, actor="ines", client=awaited)
    await session.add_items([{"role": "user", "content": "lost"}])
    assert await session.get_items() == []
    assert await session.pop_item() is None
    await session.clear_session()
    with pytest.raises(NotFound):
        await AsyncSession("t-1", name, actor="ines", client=awaited, on_unavailable="raise").get_items()

    await session.setup()
    await session.add_items([{"role": "user", "content": "kept"}])
    assert await session.get_items() == [{"role": "user", "content": "kept"}]
    with pytest.raises(ActorMismatch):
        await AsyncSession("t-1", name, actor="emil", client=awaited).get_items()


@pytest.mark.parametrize("user_id", ["ines", "ines.o'neil@example.org"])
async def test_a_memory_is_kept_by_user_and_key(
    awaited: AsyncAgentKitClient, client: AgentKitClient, name: str, user_id: str
) -> None:
    memory = AsyncLongTermMemory(name, client=awaited, on_unavailable="raise")
    await memory.setup()
    seats = {"seats": "window", "reason": "Aussicht über Städte", "rows": [1, 2]}

    assert await memory.save_memory(user_id, "travel/seats", {"seats": "aisle"}) == "Saved as travel/seats."
    await memory.save_memory(user_id, "travel/seats", seats)
    await memory.save_memory(user_id, "food", {"likes": "noodles"})
    await memory.save_memory("emil", "travel/seats", {"seats": "middle"})

    assert await memory.get_memory(user_id, "travel/seats") == MemoryItem("travel/seats", seats)
    assert [item.key for item in await memory.list_memories(user_id)] == ["food", "travel/seats"]
    assert [item.key for item in await memory.list_memories(user_id, "travel/")] == ["travel/seats"]
    (found,) = await memory.search_memories(user_id, "which window?", limit=5)
    assert (found.key, found.value) == ("travel/seats", seats)
    assert found.score is not None
    assert found.score > 0
    assert await memory.delete_memory(user_id, "travel/seats") is True
    assert await memory.delete_memory(user_id, "travel/seats") is False
    assert await memory.get_memory(user_id, "travel/seats") is None
    assert LongTermMemory(name, client=client).get_memory("emil", "travel/seats") is not None
    client.memory_stores.get(name).erase_actor("emil")
    assert await memory.list_memories("emil") == []


async def test_what_was_distilled_or_noted_by_a_tool_is_found_too(
    awaited: AsyncAgentKitClient, client: AgentKitClient, name: str
) -> None:
    client.memory_stores.create(name).put(actor_id="ines", path="/allergies/peanuts.md", content="Allergic to peanuts.")
    memory = AsyncLongTermMemory(name, client=awaited, on_unavailable="raise")

    (found,) = await memory.search_memories("ines", "which allergies?")

    assert (found.key, found.value) == ("/allergies/peanuts.md", {"content": "Allergic to peanuts."})
    assert await memory.get_memory("ines", found.key) == MemoryItem(found.key, found.value)
