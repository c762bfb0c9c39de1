"""`memstream export`: what a store holds, in a file that `memstream import` makes the same store of."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from memstream.client import AgentKitClient
from memstream.records import NewItem
from tests.support.standalone import StandaloneProcess

ITEMS: list[Any] = [
    {"type": "message", "role": "user", "content": "I live in Lisbon. 🎻 é"},
    {"type": "function_call", "arguments": '{"a": 1}', "deep": [[[{}]]]},
    "half \ud83d and \x00",
    7,
    None,
    -0.25,
]


class Memstream:
    """The command line as a user has it, against the running server."""

    def __init__(self, standalone: StandaloneProcess) -> None:
        self._variables = {**standalone.variables, "MEMSTREAM_URL": standalone.url, "MEMSTREAM_TOKEN": standalone.token}

    def run(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        command = [str(Path(sys.executable).with_name("memstream")), "-o", "json", *arguments]
        return subprocess.run(command, env=self._variables, capture_output=True, text=True, timeout=120)

    def __call__(self, *arguments: str) -> dict[str, Any]:
        answer = self.run(*arguments)
        assert answer.returncode == 0, answer.stderr
        summary: dict[str, Any] = json.loads(answer.stdout)
        return summary


@pytest.fixture
def memstream(standalone: StandaloneProcess) -> Memstream:
    return Memstream(standalone)


def held(client: AgentKitClient, store: str) -> dict[str, tuple[str, list[Any]]]:
    """Each session's actor and items, in order."""
    return {
        session.session_id: (
            session.actor_id,
            [item.data for item in session.list_items(page_size=100, order_by="create_time asc")],
        )
        for session in client.session_stores.get(store).list(page_size=100)
    }


def test_an_import_of_an_export_gives_an_equal_store(
    memstream: Memstream, client: AgentKitClient, name: str, tmp_path: Path
) -> None:
    store = client.session_stores.create(name)
    first = store.add(actor_id="ines é", session_id="a:1")
    first.append_items([NewItem(ITEMS[0], "2026-03-01T09:00:00.5+02:00"), *ITEMS[1:]])
    long = store.add(actor_id="orla", session_id="b")
    long.append_items([f"turn {number}" for number in range(250)])
    long.pop_item()
    store.add(actor_id="orla", session_id="empty")
    file = tmp_path / "out.jsonl"

    summary = memstream("export", str(file), "--session-store", name)
    imported = memstream("import", str(file), "--session-store", f"{name}-2", "--memory-store", f"{name}-2")

    assert (summary["sessions"], summary["turns"]) == (2, 255)
    assert (imported["sessions"], imported["added"]) == (2, 255)
    before = held(client, name)
    assert before.pop("empty") == ("orla", [])
    assert held(client, f"{name}-2") == before
    assert [path.name for path in tmp_path.iterdir()] == ["out.jsonl"]
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert lines[0] == {
        "actor_id": "ines é",
        "session_id": "a:1",
        "turn_id": "1",
        "time": "2026-03-01T09:00:00.5+02:00",
        "item": ITEMS[0],
    }
    items = {item.position: item for item in long.list_items(page_size=100)}
    assert all(str(items[int(line["turn_id"])].create_time).startswith(line["time"][:10]) for line in lines[6:])


def test_what_cannot_be_exported_leaves_the_file_as_it_was(memstream: Memstream, name: str, tmp_path: Path) -> None:
    file = tmp_path / "out.jsonl"
    file.write_text("yesterday")

    answer = memstream.run("export", str(file), "--session-store", name)

    assert answer.returncode == 1
    assert json.loads(answer.stderr)["error"]["code"] == "NOT_FOUND"
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"out.jsonl": "yesterday"}


def test_an_item_that_the_file_cannot_hold_is_named_and_nothing_is_left(
    memstream: Memstream, standalone: StandaloneProcess, client: AgentKitClient, name: str, tmp_path: Path
) -> None:
    client.session_stores.create(name).add(actor_id="ines", session_id="s").append_items(["fine"])
    curl = ["curl", "-sS", "-H", f"Authorization: Bearer {standalone.token}", "-d", '{"items": [{"data": 1e400}]}']
    url = f"{standalone.url}/api/2.0/agents/session-stores/{name}/sessions/s/items:append"
    subprocess.run([*curl, url], capture_output=True, check=True, timeout=30)

    answer = memstream.run("export", str(tmp_path / "out.jsonl"), "--session-store", name)

    assert answer.returncode == 1
    assert "session 's' holds at position 2 what the file cannot" in answer.stderr.splitlines()[-1]
    assert list(tmp_path.iterdir()) == []
