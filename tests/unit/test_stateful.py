"""Which thread a request goes on, whose it is, and what it is answered with."""

import subprocess
import sys
import uuid
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from memstream import optional
from memstream.client import AgentKitClient
from memstream.errors import MemstreamError
from memstream.keyed import path_of
from memstream.stateful import LongTermMemory, resolve_thread_id, resolve_user_id, unavailable, with_thread_id

DEADLINE_S = 60.0


@pytest.mark.parametrize(
    ("custom_inputs", "conversation_id", "thread_id"),
    [
        ({"thread_id": "t"}, "c", "t"),
        ({"thread_id": ""}, "c", "c"),
        ({"thread_id": None}, "c", "c"),
        ({}, "c", "c"),
        (None, "c", "c"),
        ({"thread_id": 7}, None, "7"),
    ],
)
def test_a_thread_is_the_one_asked_for_then_the_conversation(
    custom_inputs: Any, conversation_id: str | None, thread_id: str
) -> None:
    assert resolve_thread_id(custom_inputs, conversation_id) == thread_id


@pytest.mark.parametrize("conversation_id", [None, ""])
def test_else_each_request_begins_a_thread_of_its_own(conversation_id: str | None) -> None:
    first, second = (resolve_thread_id({"thread_id": ""}, conversation_id) for _ in range(2))

    assert first != second
    assert str(uuid.UUID(first)) == first


@pytest.mark.parametrize(
    ("context", "custom_inputs", "user_id"),
    [
        pytest.param(SimpleNamespace(user_id="ines"), {"user_id": "emil"}, "ines", id="context"),
        pytest.param({"user_id": "ines"}, {"user_id": "emil"}, "ines", id="context-of-keys"),
        pytest.param(SimpleNamespace(user_id=None), {"user_id": "emil"}, "emil", id="inputs"),
        pytest.param(None, {"user_id": ""}, "unknown", id="empty"),
        pytest.param(None, None, "unknown", id="nothing"),
    ],
)
def test_a_user_is_the_contexts_then_the_requests_then_unknown(context: Any, custom_inputs: Any, user_id: str) -> None:
    assert resolve_user_id(context, custom_inputs) == user_id


@dataclass
class Response:
    output: list[Any]
    custom_outputs: dict[str, Any] | None = None
    other: dict[str, Any] = field(default_factory=dict)


@pytest.mark.parametrize(
    "response",
    [
        pytest.param({"output": [{"type": "message"}]}, id="output"),
        pytest.param({"choices": [{"message": {"content": "hi"}}], "custom_outputs": {"a": 1}}, id="choices"),
    ],
)
def test_a_response_names_its_thread_and_keeps_the_rest(response: dict[str, Any]) -> None:
    before = {**response}

    named = with_thread_id(response, "t")

    assert named == {**before, "custom_outputs": {**before.get("custom_outputs", {}), "thread_id": "t"}}
    assert response == before


def test_a_response_that_is_an_object_is_copied_too() -> None:
    response = Response(["hi"], {"a": 1})

    assert with_thread_id(response, "t") == Response(["hi"], {"a": 1, "thread_id": "t"})
    assert response.custom_outputs == {"a": 1}


@pytest.mark.parametrize(
    ("key", "path"),
    [
        ("tea", "/user_memories/tea.json"),
        ("a/b", "/user_memories/a%2Fb.json"),
        ("a%2Fb", "/user_memories/a%252Fb.json"),
        ("..", "/user_memories/%2E%2E.json"),
        ("Vorlieben für Tee", "/user_memories/Vorlieben für Tee.json"),
        ("/allergies/peanuts.md", "/allergies/peanuts.md"),
    ],
)
def test_each_key_has_a_path_of_its_own(key: str, path: str) -> None:
    assert path_of(key) == path


def client(answer: httpx.Response | Exception) -> AgentKitClient:
    def handle(_: httpx.Request) -> httpx.Response:
        if isinstance(answer, Exception):
            raise answer
        return answer

    return AgentKitClient(base_url="http://memstream", token="t", http_transport=httpx.MockTransport(handle))


GONE = httpx.Response(404, json={"error_code": "NOT_FOUND", "message": "There is no such store."})


@pytest.fixture
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing has been warned of or counted yet."""
    monkeypatch.setattr(optional, "_warned", set())
    unavailable.clear()


@pytest.mark.parametrize(
    ("answer", "cause"),
    [
        pytest.param(GONE, "NOT_FOUND", id="no-store"),
        pytest.param(
            httpx.Response(403, json={"error_code": "PERMISSION_DENIED", "message": "No."}),
            "PERMISSION_DENIED",
            id="no-permission",
        ),
        pytest.param(httpx.Response(401, json={}), "Unauthenticated", id="no-token"),
        pytest.param(httpx.LocalProtocolError("no"), "Unreachable", id="no-server"),
    ],
)
def test_a_request_is_answered_without_memory_with_one_warning_and_a_count(
    answer: httpx.Response | Exception, cause: str, quiet: None, caplog: pytest.LogCaptureFixture
) -> None:
    memory = LongTermMemory("facts", client=client(answer))

    for _ in range(2):
        memory.setup()
        assert memory.search_memories("ines", "tea") == []
        assert memory.get_memory("ines", "tea") is None
        assert memory.list_memories("ines") == []
        assert memory.delete_memory("ines", "tea") is False
        assert memory.save_memory("ines", "tea", {"kind": "green"}) == "Nothing is saved: memory is not available."

    operations = ("setup", "search_memories", "get_memory", "list_memories", "delete_memory", "save_memory")
    assert unavailable == dict.fromkeys(operations, 2)
    (warning,) = caplog.records
    assert warning.getMessage().startswith(f"memory is not available, going on without: {cause}")


def test_it_is_raised_when_asked(quiet: None) -> None:
    with pytest.raises(MemstreamError):
        LongTermMemory("facts", client=client(GONE), on_unavailable="raise").search_memories("ines", "tea")
    with pytest.raises(ValueError, match="on_unavailable"):
        LongTermMemory("facts", client=client(GONE), on_unavailable="loudly")  # type: ignore[arg-type]

    assert unavailable == {}


def test_without_a_store_or_a_token_a_handler_is_built_and_answers(
    quiet: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in ("AGENT_MEMORY_STORE", "LAKEBASE_INSTANCE_NAME", "MEMSTREAM_TOKEN"):
        monkeypatch.delenv(variable, raising=False)

    assert LongTermMemory().search_memories("ines", "tea") == []
    assert LongTermMemory("facts").search_memories("ines", "tea") == []
    assert unavailable["search_memories"] == 2
    with pytest.raises(MemstreamError, match="no memory store"):
        LongTermMemory(on_unavailable="raise").list_memories("ines")


@pytest.mark.parametrize("user_id", ["unknown", " unknown ", "", " ", None])
def test_a_user_that_is_not_known_has_no_memory(user_id: Any, quiet: None) -> None:
    memory = LongTermMemory("facts", client=client(AssertionError("it was asked")))

    assert memory.save_memory(user_id, "tea", {"kind": "green"}) == "Nothing is saved: the user is not known."
    assert memory.search_memories(user_id, "tea") == []
    assert memory.get_memory(user_id, "tea") is None
    assert memory.list_memories(user_id) == []
    assert memory.delete_memory(user_id, "tea") is False
    assert unavailable == {}


@pytest.mark.parametrize(
    "store",
    [
        pytest.param({"embedding_model": "another"}, id="model"),
        pytest.param({"embedding_model": "gte", "embedding": {"model": "gte", "dimensions": 768}}, id="dimensions"),
    ],
)
def test_setup_says_when_the_vectors_are_not_those_asked_for(store: dict[str, Any], quiet: None) -> None:
    answer = httpx.Response(200, json={"name": "memory-stores/facts", "display_name": "facts", **store})

    with pytest.raises(ValueError, match=r"embedding model is another|768 dimensions"):
        LongTermMemory("facts", "gte", 1024, client=client(answer)).setup()


def test_setup_says_when_the_server_has_no_such_embedding_model(quiet: None) -> None:
    refusal = httpx.Response(400, json={"error_code": "INVALID_PARAMETER_VALUE", "message": "embedding_model: none"})

    with pytest.raises(ValueError, match="embedding_model"):
        LongTermMemory("facts", "gte", 1024, client=client(refusal)).setup()


def test_dimensions_need_a_model() -> None:
    with pytest.raises(ValueError, match="embedding_dims"):
        LongTermMemory("facts", embedding_dims=1024)


def test_no_framework_is_loaded_before_it_is_used() -> None:
    code = (
        "import sys, memstream.stateful, memstream.tools, memstream.commands.mcp, memstream.aio\n"
        "print([name for name in ('agents', 'mcp', 'openai', 'langgraph', 'langchain_core') if name in sys.modules])"
    )

    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=DEADLINE_S)

    assert answer.stdout.strip() == "[]", answer.stderr
