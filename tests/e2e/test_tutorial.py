"""The tutorial, walked: an agent that exists gets sessions and memory, whatever its framework.

The agents really run, each with its framework's own runner, on a model that answers from what it is shown and knows
nothing else. The stores are made with the client, the command line and curl.
"""

import asyncio
import json
import subprocess
import uuid
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import httpx
import pytest
from agents import Runner
from langchain.agents import create_agent
from langchain_core.callbacks import CallbackManagerForLLMRun
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from starlette.responses import Response

import memstream.langgraph
import memstream.openai
from libs.chassis.keys import issue_token
from memstream import (
    AgentKitClient,
    AsyncAgentKitClient,
    MemoryStore,
    MemstreamError,
    NotFound,
    PermissionDenied,
    Session,
    SessionStore,
)
from memstream.langgraph import MemstreamSaver
from tests.support.agents import QUIET, scripted_agent
from tests.support.chat import ScriptedChat
from tests.support.cli import BASE, Cli
from tests.support.scripted_model import ScriptedModel, answers, calls, completion, scripted_model, valid
from tests.support.servers import server_directory
from tests.support.service import until
from tests.support.standalone import StandaloneProcess

INSTRUCTIONS = "You are the support agent of a travel shop."
PREFERENCE = "I prefer e-mail over phone, and my time zone is Pacific Time."
OLDEST_FIRST = ("--order-by", "create_time asc", "--page-size", "100")

Shown = Sequence[tuple[str, str]]


def reply(shown: Shown) -> str:
    """A question is answered with everything that the model was told; the rest is only noted."""
    *before, (_, last) = shown
    told = " / ".join(text for _, text in before).replace("<memory>", "").replace("</memory>", "")
    return f"So I was told: {told}" if last.endswith("?") else "Noted."


def instructed(known: Sequence[str]) -> str:
    """The instructions of one request: what is known belongs here, and is never stored with the conversation."""
    return "\n".join([INSTRUCTIONS, *(["<memory>", *known, "</memory>"] if known else [])])


def message(role: str, content: str) -> dict[str, str]:
    return {"type": "message", "role": role, "content": content}


class Agent(Protocol):
    """`transcripts` is the session store that a pipeline reads."""

    transcripts: SessionStore

    async def say(self, conversation: str, user: str, words: str) -> str: ...


@dataclass
class WithAgentsSdk:
    """The wiring is the session and the tools of each run; the base agent stays as it is."""

    transcripts: SessionStore
    facts: MemoryStore
    model: ScriptedModel
    client: AgentKitClient
    awaited: AsyncAgentKitClient

    async def say(self, conversation: str, user: str, words: str) -> str:
        known = [hit.memory.content or "" for hit in self.facts.search(actor_id=user, query=words, limit=5)]
        tools = memstream.openai.memory_tools(user, store=self.facts.id, client=self.client)
        async with scripted_agent(self.model, instructions=INSTRUCTIONS) as base:
            agent = base.clone(tools=[*base.tools, *tools], instructions=instructed(known))
            session = memstream.openai.session_store(
                conversation, actor=user, store=self.transcripts.name, client=self.awaited
            )
            result = await Runner.run(agent, words, session=session, run_config=QUIET)
            assert (base.tools, base.instructions) == ([], INSTRUCTIONS)
        return str(result.final_output)


@dataclass
class WithLangGraph:
    """The state of the graph is in one store; what was said is in another, because a pipeline reads no checkpoints.

    The saver is made once, the agent for each request.
    """

    transcripts: SessionStore
    facts: MemoryStore
    model: ScriptedChat
    saver: MemstreamSaver
    client: AgentKitClient

    async def say(self, conversation: str, user: str, words: str) -> str:
        session = resumed(self.transcripts, conversation, user)
        known = [hit.memory.content or "" for hit in self.facts.search(actor_id=user, query=words, limit=5)]
        agent = create_agent(
            self.model,
            tools=memstream.langgraph.memory_tools(user, store=self.facts.id, client=self.client),
            system_prompt=instructed(known),
            checkpointer=self.saver,
        )
        config = memstream.langgraph.thread_config(conversation, actor=user)
        state = await agent.ainvoke({"messages": [{"role": "user", "content": words}]}, config)
        answer = str(state["messages"][-1].text)
        kept = (await agent.aget_state(config)).values["messages"]
        assert {each.type for each in kept} == {"human", "ai"}  # the prompt of a call is not part of the state
        session.append_items([message("user", words), message("assistant", answer)])
        return answer


@dataclass
class WithoutFramework:
    transcripts: SessionStore
    facts: MemoryStore
    model: ScriptedModel

    async def say(self, conversation: str, user: str, words: str) -> str:
        session = resumed(self.transcripts, conversation, user)
        history = [item.data for item in session.list_items(order_by="create_time asc")]
        known = [hit.memory.content or "" for hit in self.facts.search(actor_id=user, query=words, limit=5)]
        asked = [{"role": "system", "content": instructed(known)}, *history, message("user", words)]
        async with httpx.AsyncClient() as client:
            answer = await client.post(f"{self.model.url}/chat/completions", json={"messages": asked})
        said = str(answer.json()["choices"][0]["message"]["content"])
        session.append_items([message("user", words), message("assistant", said)])
        return said


def resumed(store: SessionStore, conversation: str, user: str) -> Session:
    """The conversation, begun if there is none. It is found whoever's it is, so the actor is compared."""
    try:
        session = store.get(conversation)
    except NotFound:
        return store.add(actor_id=user, session_id=conversation)
    if session.actor_id != user:
        raise PermissionError("the conversation belongs to another user")
    return session


class Speaker(ScriptedChat):
    """`reply` as a model of LangChain."""

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **named: Any,
    ) -> ChatResult:
        self.heard.append(messages)
        said = reply([(each.type, str(each.text)) for each in messages])
        return ChatResult(generations=[ChatGeneration(message=AIMessage(said))])


async def speaks(body: dict[str, Any]) -> Response:
    """`reply` as a model behind HTTP."""
    return completion(reply([(each["role"], each.get("content") or "") for each in body["messages"]]))


@pytest.fixture(autouse=True)
def here(standalone: StandaloneProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment names the server, as in the shell of a developer; the stores are named in code."""
    monkeypatch.setenv("MEMSTREAM_URL", standalone.url)
    monkeypatch.setenv("MEMSTREAM_TOKEN", standalone.token)
    monkeypatch.delenv("AGENT_SESSION_STORE", raising=False)
    monkeypatch.delenv("AGENT_MEMORY_STORE", raising=False)


@pytest.fixture
def client(here: None) -> Iterator[AgentKitClient]:
    with AgentKitClient() as client:
        yield client


@pytest.fixture
async def awaited(here: None) -> AsyncIterator[AsyncAgentKitClient]:
    async with AsyncAgentKitClient() as client:
        yield client


@pytest.fixture
def cli(standalone: StandaloneProcess) -> Cli:
    return Cli(standalone)


@pytest.fixture
async def model() -> AsyncIterator[ScriptedModel]:
    async with scripted_model() as model:
        model.behave(speaks)
        yield model


@pytest.fixture
def chats(client: AgentKitClient, name: str) -> SessionStore:
    return client.session_stores.create(name, description="What was said")


@pytest.fixture
def facts(cli: Cli, client: AgentKitClient, name: str) -> MemoryStore:
    cli.text("memory", "stores", "create", "--display-name", name, "--description", "What is known")
    return client.memory_stores.get(name)


@pytest.fixture
async def saver(client: AgentKitClient, name: str) -> AsyncIterator[MemstreamSaver]:
    saver = memstream.langgraph.checkpointer(store=client.session_stores.create(f"{name}-state").name)
    assert isinstance(saver, MemstreamSaver)
    async with saver:
        yield saver


@pytest.fixture
def agent(
    request: pytest.FixtureRequest,
    client: AgentKitClient,
    awaited: AsyncAgentKitClient,
    chats: SessionStore,
    facts: MemoryStore,
    model: ScriptedModel,
    saver: MemstreamSaver,
) -> Agent:
    made: dict[str, Callable[[], Agent]] = {
        "OpenAI Agents SDK": lambda: WithAgentsSdk(chats, facts, model, client, awaited),
        "LangGraph": lambda: WithLangGraph(chats, facts, Speaker(says=[]), saver, client),
        "no framework": lambda: WithoutFramework(chats, facts, model),
    }
    return made[request.param]()


FRAMEWORKS = ("OpenAI Agents SDK", "LangGraph", "no framework")
with_each_framework = pytest.mark.parametrize("agent", FRAMEWORKS, indirect=True)


def pipeline_between(cli: Cli, chats: SessionStore, facts: MemoryStore, *options: str) -> str:
    """Its id, as the command line tells it."""
    stores = ("--session-store", chats.name, "--memory-store", facts.id)
    made = cli.json("memory", "pipeline", "create", *stores, *options)
    return str(made["name"].removeprefix("memory-pipelines/"))


async def run_of(cli: Cli, pipeline: str) -> dict[str, Any]:
    """A run, started by the command line and asked for over REST until it has ended."""
    begun = cli.json("memory", "pipeline", "run", pipeline)
    run: dict[str, Any] = {}

    def has_ended() -> bool:
        run.update(cli.rest(begun["name"]))
        return run["state"] not in ("PENDING", "RUNNING")

    await until(has_ended, deadline_s=60)
    return run


def known(cli: Cli, facts: MemoryStore, user: str, query: str) -> str:
    found = cli.json("memory", "entries", "search", "--store", facts.id, "--actor-id", user, "--query", query)
    return "\n".join(hit["managed_memory_entry"]["content"] for hit in found["results"])


def said_in(cli: Cli, chats: SessionStore, conversation: str) -> list[tuple[str, str]]:
    """Who said what, as `sessions items list` shows it; any other item fails."""
    page = cli.json("sessions", "items", "list", "--store", chats.name, "--session-id", conversation, *OLDEST_FIRST)
    said = []
    for data in (item["data"] for item in page["session_items"]):
        content = data["content"]
        said.append((data["role"], content if isinstance(content, str) else "".join(part["text"] for part in content)))
    return said


@pytest.mark.slow
@with_each_framework
async def test_an_agent_resumes_a_conversation_and_knows_its_user_in_the_next(
    agent: Agent, cli: Cli, facts: MemoryStore
) -> None:
    scheduled = ("--trigger", "scheduled", "--model", "builtin.extractive", "--instructions", "Contact preferences.")
    pipeline = pipeline_between(cli, agent.transcripts, facts, *scheduled)

    # A follow-up in the same conversation has the earlier context.
    assert await agent.say("monday", "nadia", PREFERENCE) == "Noted."
    assert PREFERENCE in await agent.say("monday", "nadia", "What did I tell you?")

    # The conversation is stored: what was said, in order, and no word of the instructions.
    stored = said_in(cli, agent.transcripts, "monday")
    assert [role for role, _ in stored] == ["user", "assistant"] * 2
    assert (stored[0][1], stored[1][1], stored[2][1]) == (PREFERENCE, "Noted.", "What did I tell you?")
    assert agent.transcripts.get("monday").actor_id == "nadia"

    # A run distils what is stored already, and then a search in other words finds it.
    assert (await run_of(cli, pipeline))["state"] == "SUCCEEDED"
    assert "e-mail over phone" in known(cli, facts, "nadia", "contact preferences")
    assert "Pacific" in known(cli, facts, "nadia", "Which time zone?")

    # A new conversation of the same user is answered from memory, which is not stored with it.
    assert "e-mail over phone" in await agent.say("friday", "nadia", "Do I prefer e-mail or phone?")
    assert [role for role, _ in said_in(cli, agent.transcripts, "friday")] == ["user", "assistant"]
    assert (await run_of(cli, pipeline))["state"] == "SUCCEEDED"
    assert "told" not in known(cli, facts, "nadia", "told")

    # Another user is known nothing of, and does not get at the conversation.
    assert "e-mail over phone" not in await agent.say("saturday", "emil", "Do I prefer e-mail or phone?")
    with pytest.raises((PermissionError, PermissionDenied)):
        await agent.say("monday", "emil", "What did I tell you?")


def test_stores_are_made_by_client_command_line_and_curl(
    client: AgentKitClient, cli: Cli, standalone: StandaloneProcess, name: str
) -> None:
    one, two, three = (f"{name}-{number}" for number in range(3))
    client.session_stores.create(one, description="by the client")
    client.memory_stores.create(one, description="by the client")
    cli.text("sessions", "stores", "create", "--name", two, "--description", "by the command line")
    cli.text("memory", "stores", "create", "--display-name", two, "--description", "by the command line")
    header = f"Authorization: Bearer {standalone.token}"
    for path, body in (
        (f"session-stores?session_store_name={three}", {"description": "by curl"}),
        ("memory-stores", {"display_name": three, "description": "by curl"}),
    ):
        command = ["curl", "-sS", "--fail-with-body", "-H", header, "-H", "Content-Type: application/json"]
        url = f"{standalone.url}{BASE}/{path}"
        subprocess.run([*command, url, "-d", json.dumps(body)], check=True, capture_output=True, timeout=60)

    for store, how in ((one, "by the client"), (two, "by the command line"), (three, "by curl")):
        assert client.session_stores.get(store).description == how
        assert client.memory_stores.get(store).description == how
        assert "ALREADY_EXISTS" in cli.refused("sessions", "stores", "create", "--name", store)
        assert "ALREADY_EXISTS" in cli.refused("memory", "stores", "create", "--display-name", store)


@pytest.mark.parametrize(
    ("store", "session_store_is_legal", "memory_store_is_legal"),
    [
        ("ab", False, False),
        ("a{unique}", True, True),
        ("a{unique:a<54}z", True, True),
        ("a{unique:a<61}z", True, False),
        ("a{unique:a<62}z", False, False),
        ("1{unique}", False, False),
        ("a{unique}-", False, False),
        ("A{unique}", False, False),
        ("a_{unique}", False, False),
    ],
)
def test_names_of_stores_have_rules(
    cli: Cli, store: str, session_store_is_legal: bool, memory_store_is_legal: bool
) -> None:
    name = store.format(unique=uuid.uuid4().hex[:12])

    made = cli.run("sessions", "stores", "create", "--name", name)
    made_too = cli.run("memory", "stores", "create", "--display-name", name)

    assert (made.exit_code == 0, made_too.exit_code == 0) == (session_store_is_legal, memory_store_is_legal)
    for refused in (each for each in (made, made_too) if each.exit_code):
        assert refused.stderr.startswith("error[INVALID_PARAMETER_VALUE]: ")


async def test_an_agent_remembers_and_recalls_by_its_tools_alone(
    client: AgentKitClient, facts: MemoryStore, model: ScriptedModel
) -> None:
    async def ask(user: str, words: str) -> str:
        tools = memstream.openai.memory_tools(user, store=facts.id, client=client)
        async with scripted_agent(model, *tools) as agent:
            return str((await Runner.run(agent, words, run_config=QUIET)).final_output)

    model.behave(calls(("remember", {"fact": "Travels with a cello.", "topic": "luggage"})), answers("I will."))
    assert await ask("nadia", "Remember that I travel with a cello.") == "I will."
    for user, recalled in (("nadia", "Travels with a cello."), ("emil", "No memories match.")):
        model.behave(calls(("recall", {"query": "cello", "session_id": None})), speaks)
        await ask(user, "What do you know?")
        assert recalled in model.requests[-1]["messages"][-1]["content"]

    offered = {tool["function"]["name"]: tool["function"]["parameters"] for tool in model.requests[-1]["tools"]}
    assert list(offered) == ["remember", "recall", "forget", "list_memories"]
    assert not any("actor" in parameters["properties"] for parameters in offered.values())


def test_an_agents_principal_needs_a_grant_on_each_store(
    client: AgentKitClient, standalone: StandaloneProcess, chats: SessionStore, facts: MemoryStore, name: str
) -> None:
    token = issue_token(
        standalone.data_dir / "keys",
        principal=f"app-{name}",
        principal_type="SERVICE_PRINCIPAL",
        workspace_id=1,
        ttl_s=600,
    )
    transcripts = client.session_stores.create(f"{name}-transcripts")
    with AgentKitClient(token=token) as deployed:
        for denied in (
            lambda: deployed.session_stores.get(chats.name),
            lambda: deployed.memory_stores.get(facts.id),
        ):
            with pytest.raises(PermissionDenied) as refused:
                denied()
            assert (refused.value.error_code, refused.value.status) == ("PERMISSION_DENIED", 403)
            assert refused.value.hint

        chats.grant_permission(f"app-{name}")
        facts.grant_permission(f"app-{name}", permission="READ")

        deployed.session_stores.get(chats.name).add(actor_id="nadia").append_items([message("user", "Hello.")])
        granted = deployed.memory_stores.get(facts.id)
        assert list(granted.search(actor_id="nadia", query="anything")) == []
        with pytest.raises(PermissionDenied):
            granted.add(actor_id="nadia", path="/a.md", content="x")
        facts.grant_permission(f"app-{name}")
        granted.add(actor_id="nadia", path="/a.md", content="x")
        with pytest.raises(PermissionDenied):
            deployed.session_stores.get(transcripts.name)


async def test_a_pipeline_runs_for_whom_made_it_whatever_the_agent_may(
    cli: Cli, chats: SessionStore, facts: MemoryStore, name: str
) -> None:
    pipeline = pipeline_between(cli, chats, facts)
    for store in (chats, facts):
        store.grant_permission(f"app-{name}")
        store.revoke_permission(f"app-{name}")
    chats.add(actor_id="nadia").append_items([message("user", PREFERENCE)])

    assert (await run_of(cli, pipeline))["state"] == "SUCCEEDED"
    assert "e-mail over phone" in known(cli, facts, "nadia", "contact preferences")


async def test_a_run_without_anything_readable_succeeds_and_writes_nothing(
    cli: Cli, client: AgentKitClient, facts: MemoryStore, chats: SessionStore, saver: MemstreamSaver, name: str
) -> None:
    checkpoints = client.session_stores.get(f"{name}-state")
    await WithLangGraph(chats, facts, Speaker(says=[]), saver, client).say("monday", "nadia", PREFERENCE)
    checkpoints.add(actor_id="nadia").append_items([{"type": "function_call", "name": "f", "arguments": PREFERENCE}])

    run = await run_of(cli, pipeline_between(cli, checkpoints, facts))

    assert run["state"] == "SUCCEEDED"
    assert list(facts.list(actor_id="nadia")) == []


async def test_a_run_reads_what_came_since_the_last_one_and_leaves_other_actors_alone(
    cli: Cli, chats: SessionStore, facts: MemoryStore
) -> None:
    pipeline = pipeline_between(cli, chats, facts)
    old = [message("user", "I live in Lisbon."), message("assistant", "A fine city.")]
    # A conversation from elsewhere is moved by appending its items to a new session.
    chats.add(actor_id="nadia", session_id="moved").append_items(old)
    facts.add(actor_id="emil", path="/pets.md", content="Has a parrot.")
    await run_of(cli, pipeline)
    before = {memory.path: memory for memory in facts.list(actor_id="nadia")}
    assert "I live in Lisbon." in {memory.content for memory in before.values()}

    chats.add(actor_id="nadia").append_items(
        [{"role": "user", "content": [{"type": "input_text", "text": PREFERENCE}]}]
    )
    await run_of(cli, pipeline)

    after = {memory.path: memory for memory in facts.list(actor_id="nadia")}
    assert {path: (memory.version, memory.update_time) for path, memory in after.items() if path in before} == {
        path: (memory.version, memory.update_time) for path, memory in before.items()
    }
    assert "e-mail over phone" in known(cli, facts, "nadia", "contact preferences")
    (theirs,) = facts.list(actor_id="emil")
    assert (theirs.content, theirs.version) == ("Has a parrot.", 1)
    assert known(cli, facts, "nadia.", "contact preferences") == ""


@pytest.mark.slow
async def test_while_a_run_is_active_another_is_refused_and_afterwards_it_starts(model: ScriptedModel) -> None:
    goes_on = asyncio.Event()

    async def held(body: dict[str, Any]) -> Response:
        await goes_on.wait()
        return await valid(body)

    model.behave(held)
    endpoint = {"OPENAI_BASE_URL": model.url, "OPENAI_API_KEY": "key", "MODEL": "scripted"}
    with server_directory() as directory:
        process = StandaloneProcess(directory / "data", variables=endpoint)
        process.start()
        try:
            with process.client() as client:
                await asyncio.to_thread(a_run_is_held, Cli(process), client, model, goes_on, asyncio.get_running_loop())
        finally:
            goes_on.set()
            await asyncio.to_thread(process.stop)


def a_run_is_held(
    cli: Cli, client: AgentKitClient, model: ScriptedModel, goes_on: asyncio.Event, loop: asyncio.AbstractEventLoop
) -> None:
    chats, facts = client.session_stores.create("chats"), client.memory_stores.create("facts")
    chats.add(actor_id="nadia").append_items([message("user", PREFERENCE)])
    pipeline = pipeline_between(cli, chats, facts, "--model", "scripted", "--instructions", "Only contact preferences.")

    active = cli.json("memory", "pipeline", "run", pipeline)["name"]
    refused = cli.refused("memory", "pipeline", "run", pipeline)
    loop.call_soon_threadsafe(goes_on.set)
    ended = cli.text("memory", "pipeline", "run", pipeline, "--wait") if wait_for_end(cli, active) else ""

    assert refused.startswith("error[ABORTED]: ")
    assert active in refused.splitlines()[1]
    assert "SUCCEEDED" in ended
    assert "Only contact preferences." in str(model.requests[0]["messages"])
    assert known(cli, facts, "nadia", "contact preferences e-mail") == PREFERENCE


def wait_for_end(cli: Cli, run: str) -> bool:
    async def has_ended() -> None:
        await until(lambda: cli.rest(run)["state"] == "SUCCEEDED", deadline_s=60)

    asyncio.run(has_ended())
    return True


def test_everything_is_deleted_and_its_names_are_free_again(
    cli: Cli, client: AgentKitClient, chats: SessionStore, facts: MemoryStore
) -> None:
    pipeline = pipeline_between(cli, chats, facts)
    chats.add(actor_id="nadia", session_id="monday").append_items([message("user", PREFERENCE)])
    entry = facts.add(actor_id="nadia", path="/a.md", content="x")

    for words in (("memory", "pipeline"), ("sessions", "stores"), ("memory", "stores")):
        target = pipeline if words[-1] == "pipeline" else chats.name
        assert "nothing was done" in cli.refused(*words, "delete", target, input="n\n")
        assert "Deleted" in cli.text(*words, "delete", target, input="y\n")

    for gone in (
        lambda: client.pipelines.get(pipeline),
        lambda: chats.get("monday"),
        lambda: facts.get(entry.id),
    ):
        with pytest.raises(NotFound):
            gone()
    assert list(client.session_stores.create(chats.name).list()) == []
    assert list(client.memory_stores.create(facts.id).list(actor_id="nadia")) == []


def test_a_server_that_is_away_is_a_line_that_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEMSTREAM_URL", "http://127.0.0.1:9")

    with AgentKitClient() as client, pytest.raises(MemstreamError) as away:
        client.session_stores.get("chats")

    assert "MEMSTREAM_URL" in (away.value.hint or "")
