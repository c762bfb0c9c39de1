"""The client's README names every method, and says of each whether it is sent again when its answer is lost."""

import inspect
import re
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from memstream.client import AgentKitClient
from memstream.errors import Unreachable
from memstream.memories import Memory, MemoryStore
from memstream.pipelines import Pipeline
from memstream.sessions import Session, SessionStore
from tests.support.sdk import public_methods
from tests.support.standalone import ROOT

README = (ROOT / "libs/sdk/README.md").read_text()
ROW = re.compile(r"^\| (?:`(\w+)`|both stores) \| (.+?) \| .*\|$", re.MULTILINE)
METHOD = re.compile(r"`([a-z]\w*)`([¹²]?)")
OF_BOTH_STORES = ("SessionStore", "MemoryStore")
LOCAL = ("AgentKitClient.close", "Session.up_to")
GIVEN = {
    "actor_id": "ines",
    "content": "green",
    "description": "tea",
    "display_name": "tea",
    "erasure_id": "e",
    "items": [1],
    "memory_id": "m",
    "memory_store": "facts",
    "metadata": {"a": "b"},
    "name": "talks",
    "path": "/tea.md",
    "position": 1,
    "principal_id": "an-agent",
    "query": "tea",
    "replay_id": "r",
    "run_id": "1",
    "session_id": "s",
    "session_store": "talks",
    "store_id": "facts",
    "version": 1,
}


def told() -> dict[str, bool]:
    """`Class.method` of every method in the table, and whether its footnote says that it is sent once."""
    return {
        f"{name}.{method}": bool(mark)
        for row in ROW.finditer(README)
        for name in ([row[1]] if row[1] else OF_BOTH_STORES)
        for method, mark in METHOD.findall(row[2])
    }


def test_the_table_names_every_method() -> None:
    assert told().keys() == public_methods("blocking")


@pytest.mark.parametrize("method", sorted(public_methods("blocking") - set(LOCAL)))
def test_a_method_is_sent_once_where_the_table_says_so(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("memstream.transport.sleep", lambda _: None)
    asked: list[httpx.Request] = []

    def lose(request: httpx.Request) -> httpx.Response:
        asked.append(request)
        raise httpx.ReadError("cut")

    client = AgentKitClient(base_url="http://service", token="t", http_transport=httpx.MockTransport(lose))
    with client, pytest.raises(Unreachable):
        call(bound(client, method))

    assert len(asked) == (1 if told()[method] else 4)


def bound(client: AgentKitClient, method: str) -> Callable[..., Any]:
    """The method of an object that was read without asking the server."""
    transport = client.session_stores._transport
    talks = {"name": "session-stores/talks"}
    objects = {
        "SessionStores": client.session_stores,
        "SessionStore": SessionStore.of(talks, transport),
        "Session": Session.of({"session_id": "s", "actor_id": "ines"}, "talks", transport),
        "MemoryStores": client.memory_stores,
        "MemoryStore": MemoryStore.of({"name": "memory-stores/facts"}, transport),
        "Memory": Memory.of({"name": "memory-stores/facts/entries/m", "actor_id": "ines", "path": "/m"}, transport),
        "Pipelines": client.pipelines,
        "Pipeline": Pipeline.of({"name": "memory-pipelines/p", "session_store": "s", "memory_store": "m"}, transport),
    }
    name, _, called = method.partition(".")
    found: Callable[..., Any] = getattr(objects[name], called)
    return found


def call(method: Callable[..., Any]) -> None:
    """With everything that is given by name; a list is read."""
    answer = method(**{name: GIVEN[name] for name in inspect.signature(method).parameters if name in GIVEN})
    if isinstance(answer, Iterator):
        next(answer)
