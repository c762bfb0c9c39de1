"""Agents of the OpenAI Agents SDK that really run, on a scripted model, with their sessions and memory in Memstream."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from agents import Runner, SQLiteSession, Tool, TResponseInputItem, function_tool
from agents.memory import Session, SessionSettings
from agents.run_internal.session_persistence import rewind_session_items

from memstream import AsyncAgentKitClient
from memstream.client import AgentKitClient
from memstream.errors import NotFound
from memstream.openai import memory_tools, read_history, session_store
from memstream.optional import ActorMismatch
from tests.support.agents import QUIET, asked, scripted_agent
from tests.support.scripted_model import ScriptedModel, answers, calls, scripted_model, status
from tests.support.standalone import StandaloneProcess

DEADLINE_S = 60.0
TURN = """
import asyncio, sys
from agents import Runner
from memstream.openai import session_store
from tests.support.agents import QUIET, scripted_agent
from tests.support.scripted_model import ScriptedModel

async def main():
    store, message, url = sys.argv[1:]
    async with scripted_agent(ScriptedModel(url)) as agent:
        answer = await Runner.run(agent, message, session=session_store("c-1", "ines", store), run_config=QUIET)
        print(answer.final_output)

asyncio.run(main())
"""


class Wire(httpx.AsyncHTTPTransport):
    """Notes what is sent."""

    def __init__(self) -> None:
        super().__init__()
        self.sent: list[str] = []

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        self.sent.append(f"{request.method} {request.url.path.rpartition('/session-stores/')[2]}?{request.url.params}")
        return await super().handle_async_request(request)


@function_tool
def weather(city: str) -> str:
    """The weather in a city."""
    return f"sunny in {city}"


@pytest.fixture
async def model() -> AsyncIterator[ScriptedModel]:
    async with scripted_model() as model:
        yield model


@pytest.fixture
def wire() -> Wire:
    return Wire()


@pytest.fixture
async def awaited(standalone: StandaloneProcess, wire: Wire) -> AsyncIterator[AsyncAgentKitClient]:
    async with AsyncAgentKitClient(base_url=standalone.url, token=standalone.token, http_transport=wire) as client:
        yield client


@pytest.fixture
def chats(client: AgentKitClient, name: str) -> str:
    return client.session_stores.create(name).name


@pytest.fixture
def here(standalone: StandaloneProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment names the running Memstream."""
    monkeypatch.setenv("MEMSTREAM_URL", standalone.url)
    monkeypatch.setenv("MEMSTREAM_TOKEN", standalone.token)


def datas(client: AgentKitClient, store: str, session_id: str) -> list[Any]:
    session = client.session_stores.get(store).get(session_id)
    return [item.data for item in session.list_items(order_by="create_time asc")]


async def run(model: ScriptedModel, message: str, session: Session, *tools: Tool, **settings: Any) -> str:
    async with scripted_agent(model, *tools, **settings) as agent:
        answer = await Runner.run(agent, message, session=session, run_config=QUIET)
        return str(answer.final_output)


async def test_a_conversation_goes_on_in_another_process(
    model: ScriptedModel, standalone: StandaloneProcess, client: AgentKitClient, chats: str
) -> None:
    model.behave(answers("Hello Ines."), answers("You said that you are Ines."))
    variables = {**os.environ, "MEMSTREAM_URL": standalone.url, "MEMSTREAM_TOKEN": standalone.token}

    said = []
    for message in ("I am Ines.", "Who am I?"):
        turn = await asyncio.create_subprocess_exec(
            sys.executable, "-c", TURN, chats, message, model.url, env=variables, stdout=asyncio.subprocess.PIPE
        )
        out, _ = await asyncio.wait_for(turn.communicate(), DEADLINE_S)
        said.append(out.decode().strip())

    assert said == ["Hello Ines.", "You said that you are Ines."]
    assert asked(model.requests[1])[-3:] == [
        ("user", "I am Ines."),
        ("assistant", "Hello Ines."),
        ("user", "Who am I?"),
    ]
    session = client.session_stores.get(chats).get("c-1")
    assert (session.actor_id, session.metadata) == ("ines", {"client": "memstream-openai"})
    assert datas(client, chats, "c-1")[0] == {"content": "I am Ines.", "role": "user"}


async def test_tool_calls_and_outputs_are_stored_as_they_are_and_replayed(
    model: ScriptedModel, awaited: AsyncAgentKitClient, client: AgentKitClient, chats: str
) -> None:
    model.behave(calls(("weather", {"city": "Lisbon"})), answers("Sunny."), answers("Lisbon."))
    session = session_store("c-1", "ines", chats, client=awaited)
    theirs = SQLiteSession("c-1")

    assert await run(model, "Weather?", session, weather) == "Sunny."
    assert await run(model, "Where?", session_store("c-1", "ines", chats, client=awaited), weather) == "Lisbon."

    assert [role for role, _ in asked(model.requests[-1])] == ["user", "assistant", "tool", "assistant", "user"]
    stored = datas(client, chats, "c-1")
    assert [item.get("type", item.get("role")) for item in stored] == [
        "user",
        "function_call",
        "function_call_output",
        "message",
        "user",
        "message",
    ]
    await theirs.add_items(stored)
    assert await session.get_items() == await theirs.get_items() == stored


async def test_a_streamed_run_is_stored_too(
    model: ScriptedModel, awaited: AsyncAgentKitClient, client: AgentKitClient, chats: str
) -> None:
    model.behave(answers("Hello."))
    async with scripted_agent(model) as agent:
        streamed = Runner.run_streamed(
            agent, "Hi.", session=session_store("c-1", "ines", chats, client=awaited), run_config=QUIET
        )
        async for _ in streamed.stream_events():
            pass

    assert streamed.final_output == "Hello."
    assert [item["role"] for item in datas(client, chats, "c-1")] == ["user", "assistant"]


async def test_a_limit_never_shows_the_model_an_output_without_its_call(
    model: ScriptedModel, awaited: AsyncAgentKitClient, chats: str
) -> None:
    both = calls(("weather", {"city": "Lisbon"}), ("weather", {"city": "Porto"}))
    model.behave(both, answers("Sunny in both."))
    await run(model, "Weather?", session_store("c-1", "ines", chats, client=awaited), weather)

    for limit in range(1, 8):
        model.behave(answers("Nice."))
        session = session_store("c-1", "ines", chats, client=awaited, session_settings=SessionSettings(limit=limit))
        newest = await session.get_items()
        assert len(newest) <= limit
        await run(model, "And now?", session, weather)
        messages = model.requests[-1]["messages"]
        called = {call["id"] for message in messages for call in message.get("tool_calls") or ()}
        assert {message["tool_call_id"] for message in messages if message["role"] == "tool"} == called
        await session.pop_item()
        await session.pop_item()


async def test_a_limit_reads_from_the_end_and_no_more_than_it_needs(
    awaited: AsyncAgentKitClient, client: AgentKitClient, chats: str, wire: Wire
) -> None:
    items: list[Any] = [{"role": "user", "content": f"line {number}"} for number in range(250)]
    await session_store("c-1", "ines", chats, client=awaited).add_items(items)
    session = session_store("c-1", "ines", chats, client=awaited)

    wire.sent.clear()
    assert await session.get_items(limit=3) == items[-3:]
    assert wire.sent == [f"GET {chats}/sessions/c-1?", f"GET {chats}/sessions/c-1/items?page_size=4"]
    wire.sent.clear()
    assert await session.get_items(limit=120) == items[-120:]
    assert len(wire.sent) == 2
    assert await session.get_items(limit=0) == []
    assert await session.get_items() == items


async def test_a_turn_costs_one_request_to_open_one_to_read_and_one_for_each_append(
    model: ScriptedModel, awaited: AsyncAgentKitClient, chats: str, wire: Wire
) -> None:
    model.behave(answers("Hello."))
    await run(model, "Hi.", session_store("c-1", "ines", chats, client=awaited))
    wire.sent.clear()

    await run(model, "Hi again.", session_store("c-1", "ines", chats, client=awaited))

    session = f"{chats}/sessions/c-1"
    assert [line.partition("?")[0] for line in wire.sent] == [
        f"GET {session}",
        f"GET {session}/items",
        f"POST {session}/items:append",
        f"POST {session}/items:append",
    ]


async def test_an_empty_append_makes_no_call(awaited: AsyncAgentKitClient, chats: str, wire: Wire) -> None:
    await session_store("c-1", "ines", chats, client=awaited).add_items([])

    assert wire.sent == []


async def test_a_run_that_fails_keeps_what_was_said_and_can_be_tried_again(
    model: ScriptedModel, awaited: AsyncAgentKitClient, client: AgentKitClient, chats: str
) -> None:
    session = session_store("c-1", "ines", chats, client=awaited)
    model.behave(status(500))
    with pytest.raises(Exception, match="scripted"):
        await run(model, "Hi.", session)
    assert await session.get_items() == [{"role": "user", "content": "Hi."}]

    assert await session.pop_item() == {"role": "user", "content": "Hi."}
    model.behave(answers("Hello."))
    await run(model, "Hi.", session)

    assert [item["role"] for item in datas(client, chats, "c-1")] == ["user", "assistant"]


async def test_a_rewind_takes_back_exactly_what_the_attempt_wrote(awaited: AsyncAgentKitClient, chats: str) -> None:
    session = session_store("c-1", "ines", chats, client=awaited)
    first: list[Any] = [{"role": "user", "content": "one"}, {"role": "assistant", "content": "two"}]
    attempt: list[Any] = [{"role": "user", "content": "three"}, {"role": "user", "content": "four"}]
    await session.add_items(first)
    await session.add_items(attempt)

    await rewind_session_items(session, attempt)
    assert await session.get_items() == first
    await rewind_session_items(session, attempt)
    assert await session.get_items() == first


async def test_a_run_that_waits_for_approval_is_resumed(
    model: ScriptedModel, awaited: AsyncAgentKitClient, client: AgentKitClient, chats: str
) -> None:
    paid: list[int] = []

    @function_tool(needs_approval=True)
    def pay(amount: int) -> str:
        """Pay an amount."""
        paid.append(amount)
        return "paid"

    model.behave(calls(("pay", {"amount": 5})), answers("Done."))
    async with scripted_agent(model, pay) as agent:
        session = session_store("c-1", "ines", chats, client=awaited)
        waiting = await Runner.run(agent, "Pay 5.", session=session, run_config=QUIET)
        state = waiting.to_state()
        state.approve(waiting.interruptions[0])
        resumed = session_store("c-1", "ines", chats, client=awaited)
        answer = await Runner.run(agent, state, session=resumed, run_config=QUIET)

    assert (answer.final_output, paid) == ("Done.", [5])
    types = [item.get("type", item.get("role")) for item in datas(client, chats, "c-1")]
    assert types == ["user", "function_call", "function_call_output", "message"]


async def test_pop_removes_the_newest_and_clear_everything(awaited: AsyncAgentKitClient, chats: str) -> None:
    session = session_store("c-1", "ines", chats, client=awaited)
    await session.add_items([{"role": "user", "content": "one"}, {"role": "user", "content": "two"}])

    assert await session.pop_item() == {"role": "user", "content": "two"}
    assert await session.get_items() == [{"role": "user", "content": "one"}]
    await session.clear_session()
    assert await session.get_items() == []
    assert await session.pop_item() is None


async def test_another_actor_is_refused_before_anything_is_read(
    model: ScriptedModel, awaited: AsyncAgentKitClient, client: AgentKitClient, chats: str
) -> None:
    await session_store("c-1", "ines", chats, client=awaited).add_items([{"role": "user", "content": "mine"}])

    for other in ("emil", None):
        theirs = session_store("c-1", other, chats, client=awaited)
        with pytest.raises(ActorMismatch):
            await run(model, "What did she say?", theirs)
        with pytest.raises(ActorMismatch):
            await read_history("c-1", other, chats, client=awaited)

    assert model.calls == 0
    assert datas(client, chats, "c-1") == [{"role": "user", "content": "mine"}]


async def test_two_at_once_begin_one_conversation(
    awaited: AsyncAgentKitClient, client: AgentKitClient, chats: str
) -> None:
    many = [session_store("c-1", "ines", chats, client=awaited) for _ in range(8)]

    await asyncio.gather(
        *(session.add_items([{"role": "user", "content": str(number)}]) for number, session in enumerate(many))
    )

    assert sorted(item["content"] for item in datas(client, chats, "c-1")) == [str(number) for number in range(8)]


async def test_the_store_is_the_argument_then_the_environment(
    client: AgentKitClient, chats: str, here: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AGENT_SESSION_STORE", chats)
    await session_store("c-1").add_items([{"role": "user", "content": "by environment"}])
    assert client.session_stores.get(chats).get("c-1").actor_id == "c-1"

    monkeypatch.setenv("AGENT_SESSION_STORE", "no-such-store")
    await session_store("c-2", "ines", f"session-stores/{chats}").add_items([{"role": "user", "content": "by name"}])
    assert datas(client, chats, "c-2") == [{"role": "user", "content": "by name"}]
    with pytest.raises(NotFound):
        await session_store("c-3", "ines").get_items()


async def test_without_a_store_a_conversation_lasts_as_long_as_the_process(
    model: ScriptedModel, name: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for variable in ("AGENT_SESSION_STORE", "MEMSTREAM_URL", "MEMSTREAM_TOKEN"):
        monkeypatch.delenv(variable, raising=False)
    model.behave(calls(("weather", {"city": "Lisbon"})), answers("Sunny."), answers("Lisbon."))

    assert await read_history(name, "ines") == {"session_id": name, "session_items": [], "interrupts": []}
    await run(model, "Weather?", session_store(name, "ines"), weather)
    await run(model, "Where?", session_store(name, "ines"), weather)

    assert [role for role, _ in asked(model.requests[-1])] == ["user", "assistant", "tool", "assistant", "user"]
    session = session_store(name, "ines")
    assert await session.get_items(limit=4) == (await session.get_items())[-3:]
    newest = (await session.get_items())[-1]
    assert await session.pop_item() == newest
    with pytest.raises(ActorMismatch):
        await session_store(name, "emil").get_items()
    await session.clear_session()
    assert await session.pop_item() is None


@pytest.mark.parametrize("call", ["get_items", "add_items", "pop_item", "clear_session"])
async def test_a_conversation_made_again_for_another_actor_is_the_others_alone(
    call: str, awaited: AsyncAgentKitClient, client: AgentKitClient, chats: str
) -> None:
    kept = session_store("c-1", "ines", chats, client=awaited)
    await kept.add_items([{"role": "user", "content": "Ines's"}])
    client.session_stores.get(chats).get("c-1").delete()
    await session_store("c-1", "emil", chats, client=awaited).add_items([{"role": "user", "content": "Emil's"}])

    arguments = [[{"role": "user", "content": "late"}]] if call == "add_items" else []
    with pytest.raises(ActorMismatch):
        await getattr(kept, call)(*arguments)
    with pytest.raises(ActorMismatch):
        await kept.get_items()
    assert datas(client, chats, "c-1")[0] == {"role": "user", "content": "Emil's"}


async def test_a_conversation_that_was_deleted_begins_anew(
    awaited: AsyncAgentKitClient, client: AgentKitClient, chats: str
) -> None:
    kept = session_store("c-1", "ines", chats, client=awaited)
    first: TResponseInputItem = {"role": "user", "content": "one"}
    second: TResponseInputItem = {"role": "user", "content": "two"}
    await kept.add_items([first])
    client.session_stores.get(chats).get("c-1").delete()
    assert await kept.get_items() == []
    client.session_stores.get(chats).get("c-1").delete()
    await kept.add_items([second])
    client.session_stores.get(chats).get("c-1").delete()
    await session_store("c-1", "ines", chats, client=awaited).add_items([first])
    await kept.add_items([second])

    assert datas(client, chats, "c-1") == [first, second]


async def test_a_history_is_read_without_beginning_a_conversation(
    awaited: AsyncAgentKitClient, client: AgentKitClient, chats: str
) -> None:
    nothing = await read_history("c-1", "ines", chats, client=awaited)
    assert nothing == {"session_id": "c-1", "session_items": [], "interrupts": []}
    assert list(client.session_stores.get(chats).list()) == []

    await session_store("c-1", "ines", chats, client=awaited).add_items([{"role": "user", "content": "one"}])
    (shown,) = (await read_history("c-1", "ines", chats, client=awaited))["session_items"]
    (item,) = client.session_stores.get(chats).get("c-1").list_items()
    assert shown == {"item_id": item.item_id, "data": {"role": "user", "content": "one"}}


async def test_an_agent_remembers_across_conversations_and_for_its_actor_alone(
    model: ScriptedModel, client: AgentKitClient, awaited: AsyncAgentKitClient, chats: str
) -> None:
    facts = client.memory_stores.create(chats)
    tea = {"fact": "Prefers  green tea.", "topic": "Drinks"}
    model.behave(
        calls(("remember", tea)),
        answers("Noted."),
        calls(("recall", {"query": "tea", "session_id": None})),
        answers("Green."),
    )
    tools = memory_tools("ines", facts.id, client=client)

    await run(model, "I prefer green tea.", session_store("c-1", "ines", chats, client=awaited), *tools)
    await run(model, "Which tea?", session_store("c-2", "ines", chats, client=awaited), *tools)

    assert [tool.name for tool in tools] == ["remember", "recall", "forget", "list_memories"]
    assert [entry.path for entry in facts.list(actor_id="ines")] == ["/drinks.md"]
    recalled = model.requests[-1]["messages"][-1]["content"]
    assert recalled == "<memory>\n/drinks.md:\n  Prefers green tea.\n</memory>"
    model.behave(calls(("recall", {"query": "tea", "session_id": " "})), answers("I do not know."))
    stranger = session_store("c-3", "emil", chats, client=awaited)
    await run(model, "Which tea?", stranger, *memory_tools("emil", facts.id, client=client))
    assert model.requests[-1]["messages"][-1]["content"] == "No memories match."


async def test_no_tool_has_a_parameter_that_names_an_actor(client: AgentKitClient, name: str) -> None:
    for tool in memory_tools("ines", name, client=client):
        assert "actor" not in json.dumps(tool.params_json_schema)


async def test_a_memory_that_cannot_be_had_is_told_to_the_model(
    model: ScriptedModel, client: AgentKitClient, awaited: AsyncAgentKitClient, chats: str
) -> None:
    model.behave(calls(("recall", {"query": "tea", "session_id": None})), answers("I cannot say."))

    answer = await run(
        model,
        "Which tea?",
        session_store("c-1", "ines", chats, client=awaited),
        *memory_tools("ines", "no-such-store", client=client),
    )

    assert answer == "I cannot say."
    told = model.requests[-1]["messages"][-1]["content"]
    assert told.startswith("This did not work: ")
    assert "no-such-store" in told


async def test_without_a_memory_store_there_are_no_tools(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AGENT_MEMORY_STORE", raising=False)
    assert memory_tools("ines") == []
    monkeypatch.setenv("AGENT_MEMORY_STORE", "facts")
    assert len(memory_tools("ines")) == 4
