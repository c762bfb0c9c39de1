"""Graphs that really run, with their threads in a running Memstream."""

import asyncio
import json
import operator
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Annotated, Any, TypedDict

import httpx
import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.base import CheckpointMetadata, empty_checkpoint
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, Send, interrupt

from memstream.client import AgentKitClient
from memstream.errors import Aborted, AlreadyExists, PermissionDenied
from memstream.langgraph import MemstreamSaver, checkpointer, connections, memory_tools, read_history, thread_config
from memstream.langgraph.addresses import session_id_of
from memstream.records import SessionItem
from tests.support.chat import ScriptedChat, calls
from tests.support.counted import CountedTransport, Traffic
from tests.support.standalone import StandaloneProcess

CHECKPOINTS_A_TURN = 4  # of the counting graph: its input, what comes before the first node, and behind each of two
LENGTHS = (10, 100, 400)  # checkpoints of a thread: in one page of items, at its end, and over many
METADATA: CheckpointMetadata = {"source": "loop", "step": 0, "parents": {}}


@pytest.fixture
def store(client: AgentKitClient, name: str) -> str:
    return client.session_stores.create(name).name


@pytest.fixture
def environment(standalone: StandaloneProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEMSTREAM_URL", standalone.url)
    monkeypatch.setenv("MEMSTREAM_TOKEN", standalone.token)


Made = Callable[..., MemstreamSaver]


@pytest.fixture
def made(standalone: StandaloneProcess, store: str) -> Iterator[Made]:
    """Makes savers of the test's store; each knows nothing of the others, as in a process of its own."""
    savers: list[MemstreamSaver] = []

    def make(**named: Any) -> MemstreamSaver:
        savers.append(MemstreamSaver(store, standalone.url, standalone.token, **named).__enter__())
        return savers[-1]

    yield make
    for saver in savers:
        saver.__exit__(None, None, None)


class Counter(TypedDict):
    count: int
    note: str


def counting_graph(saver: Any) -> Any:
    graph = StateGraph(Counter)
    graph.add_node("add", lambda state: {"count": state["count"] + 1})
    graph.add_node("double", lambda state: {"count": state["count"] * 2})
    graph.add_edge(START, "add")
    graph.add_edge("add", "double")
    graph.add_edge("double", END)
    return graph.compile(checkpointer=saver)


def items_of(client: AgentKitClient, store: str, session_id: str) -> list[SessionItem]:
    return list(client.session_stores.get(store).get(session_id).list_items(order_by="create_time asc", page_size=100))


def checkpoint(values: dict[str, Any], versions: dict[str, Any]) -> Any:
    return empty_checkpoint() | {"channel_values": values, "channel_versions": versions}


OTHER_PROCESS = """
import json, sys
from typing import TypedDict
from langgraph.graph import START, StateGraph
from langgraph.types import Command, interrupt
from memstream.langgraph import checkpointer, thread_config

class Refund(TypedDict):
    amount: int
    answer: str

graph = StateGraph(Refund)
graph.add_node("ask", lambda state: {"answer": interrupt({"refund": state["amount"]})})
graph.add_edge(START, "ask")
with checkpointer() as saver:
    asked = json.loads(sys.argv[1])
    given = Command(resume=asked["resume"]) if "resume" in asked else asked
    print(json.dumps(graph.compile(checkpointer=saver).invoke(given, thread_config("t-1", "ana")), default=str))
"""


@pytest.mark.usefixtures("environment")
def test_an_interrupt_resumes_in_another_process(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENT_SESSION_STORE", store)

    def run(asked: Any) -> Any:
        command = [sys.executable, "-c", OTHER_PROCESS, json.dumps(asked)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    paused = run({"amount": 40})
    history = read_history("t-1", "ana")
    done = run({"resume": "approved"})

    assert "__interrupt__" in paused
    assert [each["value"] for each in history["interrupts"]] == [{"refund": 40}]
    assert done == {"amount": 40, "answer": "approved"}
    assert read_history("t-1", "ana")["interrupts"] == []
    assert dict(read_history("another", "ana")) == {"session_id": "another", "messages": [], "interrupts": []}


@pytest.mark.slow
def test_what_a_turn_costs_does_not_grow_with_the_thread(
    standalone: StandaloneProcess, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lengths = [checkpoints // CHECKPOINTS_A_TURN for checkpoints in LENGTHS]
    wire = CountedTransport()
    monkeypatch.setattr(connections, "AgentKitClient", partial(AgentKitClient, http_transport=wire))
    warm: dict[int, Traffic] = {}
    cold: dict[int, Traffic] = {}

    def turn(saver: MemstreamSaver, number: int) -> None:
        state = counting_graph(saver).invoke({"count": number, "note": "n" * 200}, thread_config("t-1"))
        assert state["count"] == (number + 1) * 2

    with MemstreamSaver(store, standalone.url, standalone.token) as saver:
        for number in range(lengths[-1] + 1):
            turn(saver, number)
            taken = wire.take()
            if number in lengths:
                warm[number] = taken
                with MemstreamSaver(store, standalone.url, standalone.token) as other:
                    turn(other, number)
                cold[number] = wire.take()

    for costs in (warm, cold):
        assert len({(cost.requests, cost.items_read, cost.items_appended) for cost in costs.values()}) == 1, costs
        assert max(cost.bytes for cost in costs.values()) <= 1.05 * min(cost.bytes for cost in costs.values())
    print(f"a turn of {CHECKPOINTS_A_TURN} checkpoints: warm {warm[lengths[-1]]}, in a new process {cold[lengths[-1]]}")


def test_twenty_mebibytes_of_state_are_kept_in_pieces(client: AgentKitClient, store: str, made: Made) -> None:
    large = {"blob": uuid.uuid4().bytes * (20 * 1024 * 1024 // 16), "small": "s"}
    config = thread_config("t-1")

    first = made().put(config, checkpoint(large, {"blob": "1", "small": "1"}), METADATA, {"blob": "1", "small": "1"})
    second = made().put(
        first, checkpoint({**large, "small": "x"}, {"blob": "1", "small": "2"}), METADATA, {"small": "2"}
    )
    made().put_writes(second, [("blob", large["blob"]), ("small", "y")], "task")
    found = made().get_tuple(config)

    assert found is not None
    assert found.checkpoint["channel_values"] == {**large, "small": "x"}
    assert found.pending_writes == [("task", "blob", large["blob"]), ("task", "small", "y")]
    sizes = [len(json.dumps(item.data)) for item in items_of(client, store, "t-1")]
    assert max(sizes) < 1.5 * 1024 * 1024
    assert sum(sizes) < 2.1 * 4 / 3 * 20 * 1024 * 1024


def test_a_thread_is_its_actors_alone(client: AgentKitClient, store: str, made: Made) -> None:
    saver = made()
    counting_graph(saver).invoke({"count": 1}, thread_config("t-1", "ana"))

    for config in (thread_config("t-1", "bo"), thread_config("t-1")):
        for other in (saver, made()):
            with pytest.raises(PermissionDenied, match="does not belong to actor"):
                other.get_tuple(config)
            with pytest.raises(PermissionDenied):
                counting_graph(other).invoke({"count": 1}, config)
    assert client.session_stores.get(store).get("t-1").actor_id == "ana"
    state = counting_graph(saver).get_state(thread_config("t-1", "ana"))
    assert counting_graph(made()).get_state(state.config).values == {"count": 4}
    with pytest.raises(ValueError, match="thread_id"):
        saver.get_tuple({"configurable": {}})


def test_a_thread_made_again_for_another_actor_is_the_others_alone(
    client: AgentKitClient, store: str, made: Made
) -> None:
    saver, other, cleared = made(), made(), made()
    ana, bo = thread_config("t-1", "ana"), thread_config("t-1", "bo")
    for each in (saver, cleared):
        counting_graph(each).invoke({"count": 1}, ana)
    other.delete_thread("t-1")
    session = client.session_stores.get(store).add(
        actor_id="bo", session_id="t-1", metadata={"client": "memstream-langgraph", "langgraph_thread_id": "t-1"}
    )
    with pytest.raises(PermissionDenied):
        counting_graph(cleared).invoke({"count": 1}, ana)
    assert list(session.list_items()) == []
    counting_graph(other).invoke({"count": 2, "note": "bo's"}, bo)
    last = items_of(client, store, "t-1")[-1].position

    graph = counting_graph(saver)
    with pytest.raises(PermissionDenied):
        list(graph.get_state_history(ana))
    with pytest.raises(PermissionDenied):
        graph.invoke({"count": 1, "note": "ana's"}, ana)
    assert items_of(client, store, "t-1")[-1].position == last
    assert graph.get_state(bo).values == {"count": 6, "note": "bo's"}


def test_a_known_thread_made_again_is_read_and_gone_on_with(made: Made) -> None:
    saver, other = made(), made()
    config = thread_config("t-1", "ana")
    counting_graph(saver).invoke({"count": 1}, config)
    other.delete_thread("t-1")
    counting_graph(other).invoke({"count": 2, "note": "new"}, config)

    assert counting_graph(saver).invoke({"count": 3}, config) == {"count": 8, "note": "new"}
    assert counting_graph(made()).get_state(config).values == {"count": 8, "note": "new"}


def test_a_thread_without_an_actor_is_its_own(client: AgentKitClient, store: str, made: Made) -> None:
    counting_graph(made()).invoke({"count": 1}, {"configurable": {"thread_id": "t-1"}})

    session = client.session_stores.get(store).get("t-1")
    assert session.actor_id == "t-1"
    assert session.metadata == {"client": "memstream-langgraph", "langgraph_thread_id": "t-1", "checkpoint_ns": ""}


@pytest.mark.usefixtures("environment")
def test_a_checkpointer_is_one_for_each_store_and_server(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    first = checkpointer(store)

    assert checkpointer(store) is first
    assert checkpointer(store, transcript=True) is not first
    assert checkpointer("another") is not first
    assert checkpointer(store, token="t") is not checkpointer(store, token="t")
    monkeypatch.setenv("AGENT_SESSION_STORE", store)
    assert checkpointer() is first
    monkeypatch.setenv("MEMSTREAM_URL", "http://127.0.0.1:9")
    assert checkpointer() is not first


def test_without_a_store_threads_stay_in_the_process() -> None:
    assert isinstance(checkpointer(), InMemorySaver)
    assert checkpointer() is checkpointer()


def test_a_closed_checkpointer_opens_again_and_closes_when_the_last_leaves(
    standalone: StandaloneProcess, store: str
) -> None:
    saver = MemstreamSaver(store, standalone.url, standalone.token)
    with saver:
        with saver:
            saver.get_tuple(thread_config("t-1"))
            threads = saver.blocking
        assert saver.blocking is threads
        saver.get_tuple(thread_config("t-1"))
    with saver:
        assert saver.blocking is not threads
        assert saver.get_tuple(thread_config("t-1")) is None

    async def story() -> None:
        async with saver:
            assert (await counting_graph(saver).ainvoke({"count": 1}, thread_config("t-1")))["count"] == 4

    for _ in range(2):
        asyncio.run(story())


def test_what_is_said_is_appended_once_and_distilled(client: AgentKitClient, store: str, name: str, made: Made) -> None:
    facts = client.memory_stores.create(name)
    client.pipelines.create(session_store=store, memory_store=facts.id, trigger="CONTINUOUS", quiet_period_s=0)
    tools = memory_tools("ana", facts.id, client)
    model = ScriptedChat(
        says=[AIMessage("Noted."), calls("recall", query="what am I allergic to"), AIMessage("To peanuts.")]
    )
    config = thread_config("t-1", "ana")

    for words in ("I'm allergic to peanuts.", "What am I allergic to?"):
        agent = create_agent(model, tools, checkpointer=made(transcript=True))
        agent.invoke({"messages": [HumanMessage(words)]}, config)
        session = client.session_stores.get(store).get("t-1")
        settled = facts.search(actor_id="ana", query="allergic", wait_for=session.up_to(session.last_position))
        assert settled.settled

    said = [item.data for item in items_of(client, store, "t-1") if "event_type" not in item.data]
    assert [(each["type"], each["role"], each["content"]) for each in said] == [
        ("message", "user", "I'm allergic to peanuts."),
        ("message", "assistant", "Noted."),
        ("message", "user", "What am I allergic to?"),
        ("message", "assistant", "To peanuts."),
    ]
    recalled = next(each for each in model.heard[-1] if each.type == "tool")
    assert str(recalled.content).startswith("<memory>\n/")
    assert "peanuts" in str(recalled.content)
    assert [each.content for each in read_through(made(), config)] == [
        "I'm allergic to peanuts.",
        "Noted.",
        "What am I allergic to?",
        "",
        recalled.content,
        "To peanuts.",
    ]


def read_through(saver: MemstreamSaver, config: Any) -> list[Any]:
    found = saver.get_tuple(config)
    return list(found.checkpoint["channel_values"]["messages"]) if found else []


def test_a_message_stands_once_in_the_transcript_however_the_state_is_rewritten(
    client: AgentKitClient, store: str, made: Made
) -> None:
    config = thread_config("t-1")
    lists = [
        [HumanMessage("a", id="1")],
        [HumanMessage("a", id="1"), AIMessage("b", id="2")],
        [HumanMessage("a, edited", id="1"), AIMessage("b", id="2")],
        [AIMessage("b", id="2"), HumanMessage("c", id="3")],
        [AIMessage("b", id="2"), HumanMessage("c", id="3"), AIMessage("", id="4"), AIMessage("d", id="5")],
    ]

    for version, messages in enumerate(lists):
        values = checkpoint({"messages": messages}, {"messages": version})
        config = made(transcript=True).put(config, values, METADATA, {"messages": version})
    made(transcript=True).prune(["t-1"])

    items = items_of(client, store, "t-1")
    assert [item.data["content"] for item in items if "event_type" not in item.data] == ["a", "b", "c", "d"]
    assert all(item.occurred_at for item in items if "event_type" not in item.data)


def test_repeated_writes_count_once_and_come_in_the_order_of_their_tasks(made: Made) -> None:
    saver = made()
    config = saver.put(thread_config("t-1"), checkpoint({}, {}), METADATA, {})

    for value in ("first", "second"):
        saver.put_writes(config, [("a", value), ("__interrupt__", value)], "task-b", "~2")
    saver.put_writes(config, [("a", "x"), ("a", "y")], "task-c", "~1")
    found = made().get_tuple(thread_config("t-1"))

    assert found is not None
    assert found.pending_writes == [
        ("task-c", "a", "x"),
        ("task-c", "a", "y"),
        ("task-b", "__interrupt__", "second"),
        ("task-b", "a", "first"),
    ]


def test_writes_that_were_stored_before_their_checkpoint_belong_to_it(made: Made) -> None:
    saver, after = made(), checkpoint({}, {})
    before = saver.put(thread_config("t-1"), checkpoint({}, {}), METADATA, {})
    early = thread_config("t-1")
    early["configurable"]["checkpoint_id"] = after["id"]

    saver.put_writes(early, [("a", "early")], "task")
    for number in range(10):
        saver.put_writes(before, [("a", "of the one before")], f"task {number}")
    saver.put(before, after, METADATA, {})
    saver.put_writes(early, [("b", "late")], "other")

    found = made().get_tuple(thread_config("t-1"))
    assert found is not None
    assert {value for _, _, value in found.pending_writes or ()} == {"early", "late"}


def test_history_goes_back_and_forks(made: Made) -> None:
    graph, config = counting_graph(made()), thread_config("t-1", "ana")
    graph.invoke({"count": 1}, config)
    first = next(state for state in graph.get_state_history(config) if state.next == ("double",))

    graph.update_state(first.config, {"count": 10})
    forked = counting_graph(made()).invoke(None, config)

    assert forked["count"] == 20
    assert counting_graph(made()).get_state(first.config).values == {"count": 2}
    states = list(counting_graph(made()).get_state_history(config))
    ours = [state.config["configurable"]["checkpoint_id"] for state in states]
    assert ours == sorted(ours, reverse=True)
    before = list(made().list(config, before=first.config, limit=1))
    assert [each.config["configurable"]["checkpoint_id"] for each in before] == [
        first.parent_config["configurable"]["checkpoint_id"]
    ]


def test_parallel_tasks_and_threads_keep_their_writes_apart(made: Made) -> None:
    class Sum(TypedDict):
        parts: Annotated[list[int], operator.add]

    graph = StateGraph(Sum)
    graph.add_node("part", lambda task: {"parts": [task["number"]]})
    graph.add_conditional_edges(START, lambda state: [Send("part", {"number": number}) for number in range(8)])
    compiled = graph.compile(checkpointer=made())

    with ThreadPoolExecutor(4) as pool:
        done = list(pool.map(lambda n: compiled.invoke({"parts": [100]}, thread_config(f"t-{n}")), range(6)))

    assert [each["parts"] for each in done] == [[100, *range(8)]] * 6


def test_namespaces_are_sessions_of_their_own(client: AgentKitClient, store: str, made: Made) -> None:
    inner = StateGraph(Counter)
    inner.add_node("ask", lambda state: {"note": interrupt("which note?")})
    inner.add_edge(START, "ask")
    outer = StateGraph(Counter)
    outer.add_node("inner", inner.compile())
    outer.add_edge(START, "inner")
    config = thread_config("t-1", "ana")

    outer.compile(checkpointer=made()).invoke({"count": 1, "note": ""}, config)
    sessions = list(client.session_stores.get(store).list())
    done = outer.compile(checkpointer=made()).invoke(Command(resume="this"), config)

    assert done["note"] == "this"
    spaces = {session.metadata["checkpoint_ns"] for session in sessions}
    assert len(spaces) == 2
    assert {session.session_id for session in sessions} == {session_id_of("t-1", space) for space in spaces}
    assert {session.actor_id for session in sessions} == {"ana"}
    assert {each.config["configurable"]["checkpoint_ns"] for each in made().list(config)} == spaces
    assert len(list(made().list(None, limit=1))) == 1
    made().delete_thread("t-1")
    assert list(client.session_stores.get(store).list()) == []


def test_a_thread_deleted_by_somebody_else_begins_anew(client: AgentKitClient, store: str, made: Made) -> None:
    graph, config = counting_graph(made()), thread_config("t-1")
    graph.invoke({"count": 1}, config)

    client.session_stores.get(store).get("t-1").delete()

    assert graph.get_state(config).values == {}
    assert graph.invoke({"count": 2}, config)["count"] == 6
    client.session_stores.get(store).get("t-1").delete()
    assert graph.invoke({"count": 3}, config)["count"] == 8


def test_a_pruned_thread_and_its_copy_go_on(client: AgentKitClient, store: str, made: Made) -> None:
    saver, config = made(), thread_config("t-1", "ana")
    for count in (1, 2):
        counting_graph(saver).invoke({"count": count, "note": "kept"}, config)

    made().prune(["t-1"])
    pruned = items_of(client, store, "t-1")
    counting_graph(made()).invoke({"count": 3}, config)  # refers to the note by its number, which a copy changes
    made().copy_thread("t-1", "t-2")

    assert [item.data["event_type"] for item in pruned].count("checkpoint") == 1
    assert pruned[0].position > 1
    for thread in ("t-1", "t-2"):
        for going_on in (saver, made()):
            graph = counting_graph(going_on)
            assert graph.get_state(thread_config(thread, "ana")).values["note"] == "kept"
            assert graph.invoke({"count": 5}, thread_config(thread, "ana")) == {"count": 12, "note": "kept"}
    with pytest.raises(AlreadyExists):
        made().copy_thread("t-1", "t-2")
    with pytest.raises(ValueError, match="strategy"):
        made().prune(["t-1"], strategy="some")


def test_a_thread_that_is_written_while_it_is_pruned_loses_nothing(
    standalone: StandaloneProcess, store: str, made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = thread_config("t-1")
    graph = counting_graph(made())
    graph.invoke({"count": 1}, config)

    def write_before(request: httpx.Request) -> None:
        if request.url.path.endswith("items:append"):
            graph.invoke({"count": 2}, config)

    pruning = partial(AgentKitClient, http_transport=CountedTransport(write_before))
    with monkeypatch.context() as patched:
        patched.setattr(connections, "AgentKitClient", pruning)
        with MemstreamSaver(store, standalone.url, standalone.token) as saver, pytest.raises(Aborted):
            saver.prune(["t-1"])

    assert counting_graph(made()).get_state(config).values == {"count": 6}
    assert len(list(made().list(config))) == 8


class Log(TypedDict):
    lines: Annotated[list[str], DeltaChannel(lambda lines, new: [*lines, *(each for one in new for each in one)])]


def test_delta_channels_are_made_whole_also_after_pruning(made: Made) -> None:
    graph = StateGraph(Log)
    graph.add_node("say", lambda state: {"lines": [f"line {len(state['lines'])}"]})
    graph.add_edge(START, "say")
    config = thread_config("t-1")
    for number in range(3):
        graph.compile(checkpointer=made()).invoke({"lines": [f"turn {number}"]}, config)
    whole = ["turn 0", "line 1", "turn 1", "line 3", "turn 2", "line 5"]
    assert graph.compile(checkpointer=made()).get_state(config).values["lines"] == whole

    made().prune(["t-1"])

    assert graph.compile(checkpointer=made()).get_state(config).values["lines"] == whole


def test_a_copy_of_a_pruned_thread_reads_little_once_it_went_on(
    standalone: StandaloneProcess, store: str, made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, copied = thread_config("t-1", "ana"), thread_config("t-2", "ana")
    graph = counting_graph(made())
    for count in range(3):
        graph.invoke({"count": count, "note": "kept"}, config)
    made().prune(["t-1"])
    for count in range(10):
        graph.invoke({"count": count}, config)
    made().copy_thread("t-1", "t-2")
    counting_graph(made()).invoke({"count": 1}, copied)
    wire = CountedTransport()
    monkeypatch.setattr(connections, "AgentKitClient", partial(AgentKitClient, http_transport=wire))

    with MemstreamSaver(store, standalone.url, standalone.token) as saver:
        found = saver.get_tuple(copied)

    assert found is not None
    assert found.checkpoint["channel_values"]["note"] == "kept"
    assert wire.traffic.items_read < 10


def test_deleting_a_run_leaves_what_others_share_with_it(made: Made) -> None:
    saver, config = made(), thread_config("t-1")
    values = {"a": 1, "b": 1}
    versions: dict[str, Any] = {"a": "1", "b": "1"}
    first = saver.put(config, checkpoint(values, versions), METADATA | {"run_id": "one"}, versions)
    changed = checkpoint(values | {"b": 2}, versions | {"b": "2"})
    second = saver.put(first, changed, METADATA | {"run_id": "two"}, {"b": "2"})
    saver.put_writes(second, [("c", "pending")], "task")
    third = checkpoint(values | {"b": 2}, versions | {"b": "2"})
    saver.put(second, third, METADATA | {"run_id": "three"}, {})

    saver.delete_for_runs(["one", "unknown"])

    assert saver.get_tuple(first) is None
    for other in (saver, made()):
        kept = list(other.list(config))
        assert [each.checkpoint["channel_values"] for each in kept] == [{"a": 1, "b": 2}] * 2
        assert [each.pending_writes for each in kept] == [[], [("task", "c", "pending")]]
    saver.delete_for_runs(["two", "three"])
    assert made().get_tuple(config) is None
