"""`memstream import` against a running Memstream: everything arrives once, however often and however interrupted."""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from memstream.client import AgentKitClient
from memstream.memories import Memory
from memstream.records import SessionItem
from tests.support.standalone import StandaloneProcess

TURNS = [
    ("ines", "i-1", "My name is Ines Calder.", "2026-03-02T09:00:00+01:00"),
    ("orla", "o-1", "I play the cello.", "2026-03-02T09:00:10Z"),
    ("ines", "i-1", "I'm allergic to peanuts.", "2026-03-02T09:01:00+01:00"),
    ("ines", "i-2", "I live in Lisbon now.", "2026-04-02T09:00:00+01:00"),
    ("orla", "o-1", "I have a dog named Biscuit.", "2026-03-02T09:02:00Z"),
]


def line(actor: str, session: str, text: str, time: str | None = None, **more: Any) -> str:
    item = {"type": "message", "role": "user", "content": text}
    fields = {"actor_id": actor, "session_id": session, "item": item, **({"time": time} if time else {}), **more}
    return json.dumps(fields)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "talk.jsonl"
    path.write_text("\n".join(line(*turn) for turn in TURNS) + "\n")
    return path


class Importer:
    def __init__(self, standalone: StandaloneProcess, store: str) -> None:
        self._standalone, self._store = standalone, store

    def run(self, file: Path, *more: str, stdin: str | None = None) -> "subprocess.CompletedProcess[str]":
        stores = ["--session-store", self._store, "--memory-store", self._store]
        command = [str(Path(sys.executable).with_name("memstream")), "-o", "json", "import", str(file), *stores, *more]
        variables = {**self._standalone.variables, "MEMSTREAM_URL": self._standalone.url}
        variables["MEMSTREAM_TOKEN"] = self._standalone.token
        return subprocess.run(command, env=variables, capture_output=True, text=True, timeout=120, input=stdin)

    def __call__(self, file: Path, *more: str) -> dict[str, Any]:
        answer = self.run(file, *more)
        assert answer.returncode == 0, answer.stderr
        summary: dict[str, Any] = json.loads(answer.stdout)
        return summary


@pytest.fixture
def importer(standalone: StandaloneProcess, name: str) -> Importer:
    return Importer(standalone, name)


def items(client: AgentKitClient, store: str, session: str) -> list[SessionItem]:
    return list(client.session_stores.get(store).get(session).list_items(order_by="create_time asc"))


def memories(client: AgentKitClient, store: str, actors: Sequence[str] = ("ines", "orla")) -> list[Memory]:
    found = client.memory_stores.get(store)
    return [memory for actor in actors for memory in found.list(actor_id=actor)]


def test_every_turn_arrives_in_order_with_its_time(
    importer: Importer, client: AgentKitClient, name: str, file: Path
) -> None:
    summary = importer(file)

    assert (summary["sessions"], summary["turns"], summary["added"], summary["already_there"]) == (3, 5, 5, 0)
    stored = items(client, name, "i-1")
    assert [item.data["content"] for item in stored] == ["My name is Ines Calder.", "I'm allergic to peanuts."]
    assert [item.occurred_at for item in stored] == [TURNS[0][3], TURNS[2][3]]


def test_waiting_ends_when_all_of_it_is_searchable(
    importer: Importer, client: AgentKitClient, name: str, file: Path
) -> None:
    summary = importer(file, "--wait")

    assert summary["parked_actors"] == []
    assert {memory.path for memory in memories(client, name)} == {
        "/identity/name.md",
        "/allergies/peanuts.md",
        "/home/city.md",
        "/hobbies/cello.md",
        "/pets/biscuit.md",
    }


def test_a_second_import_adds_nothing(importer: Importer, client: AgentKitClient, name: str, file: Path) -> None:
    importer(file, "--wait")
    before = memories(client, name)

    summary = importer(file, "--wait")

    assert (summary["added"], summary["already_there"]) == (0, 5)
    assert memories(client, name) == before
    assert len(list(client.pipelines.list())) == len({pipeline.name for pipeline in client.pipelines.list()})


def test_an_interrupted_import_goes_on_where_it_stopped(
    importer: Importer, client: AgentKitClient, name: str, file: Path, tmp_path: Path
) -> None:
    half = tmp_path / "half.jsonl"
    half.write_text("\n".join(file.read_text().splitlines()[:2]))
    importer(half)

    summary = importer(file)

    assert (summary["added"], summary["already_there"]) == (3, 2)
    assert [item.position for item in items(client, name, "i-1")] == [1, 2]


def test_a_session_that_went_on_elsewhere_is_left_alone(
    importer: Importer, client: AgentKitClient, name: str, file: Path
) -> None:
    importer(file)
    client.session_stores.get(name).get("i-1").append_items([{"type": "message", "role": "user", "content": "More."}])

    summary = importer(file)

    assert summary["added"] == 0
    assert len(items(client, name, "i-1")) == 3


def test_a_session_that_holds_something_else_is_refused(
    importer: Importer, client: AgentKitClient, name: str, file: Path, tmp_path: Path
) -> None:
    importer(file)
    other = tmp_path / "other.jsonl"
    other.write_text(line("ines", "i-1", "Something else."))

    answer = importer.run(other)

    assert answer.returncode == 1
    assert (
        f"{other}:1 is not what session 'i-1' holds at position 1"
        in json.loads(answer.stderr.splitlines()[-1])["error"]["message"]
    )
    assert len(items(client, name, "i-1")) == 2


def test_a_cleared_session_is_imported_again(importer: Importer, client: AgentKitClient, name: str, file: Path) -> None:
    importer(file)
    client.session_stores.get(name).get("i-1").clear_items()

    summary = importer(file)

    assert (summary["added"], summary["already_there"]) == (2, 3)


def test_a_session_of_another_actor_is_refused(
    importer: Importer, client: AgentKitClient, name: str, file: Path, tmp_path: Path
) -> None:
    importer(file)
    other = tmp_path / "other.jsonl"
    other.write_text(line("mallory", "i-1", "Hello."))

    answer = importer.run(other)

    assert answer.returncode == 1
    assert "belongs to actor 'ines', the file says 'mallory'" in answer.stderr


def test_a_pipe_is_imported_as_a_file_is(
    importer: Importer, client: AgentKitClient, name: str, file: Path, tmp_path: Path
) -> None:
    answer = importer.run(Path("/dev/stdin"), stdin=file.read_text())

    assert answer.returncode == 0, answer.stderr
    assert json.loads(answer.stdout)["added"] == 5
    assert len(items(client, name, "i-1")) == 2


@pytest.mark.parametrize(
    "wrong",
    [
        line("ines", "..", "Hello."),
        line("ines", "a b", "Hello."),
        line("ines\u0000", "s", "Hello."),
        line("ines", "s", "Hello.", "2026-03-02T09:00Z"),
        line("ines", "s", "x" * 4 * 1024 * 1024),
        line("ines", "s", "Hello.").replace('"Hello."', "1e400"),
        line("ines", "s", "Hello.").replace('"Hello."', "[" * 498 + "]" * 498),
    ],
)
def test_what_the_server_would_refuse_is_refused_before_anything_is_made(
    importer: Importer, client: AgentKitClient, name: str, file: Path, wrong: str
) -> None:
    file.write_text(file.read_text() + wrong + "\n")

    answer = importer.run(file)

    assert answer.returncode == 1
    assert f"{file}:6 " in json.loads(answer.stderr)["error"]["message"]
    assert name not in {store.name for store in client.session_stores.list()}


def test_what_is_just_within_the_limits_is_taken_by_the_server_too(
    importer: Importer, client: AgentKitClient, name: str, tmp_path: Path
) -> None:
    deep: Any = 1
    for _ in range(497):
        deep = [deep]
    values = [deep, "x" * (4 * 1024 * 1024 - 2), "half \ud83d, \x00 and é", -1.5e-7]
    file = tmp_path / "edge.jsonl"
    turns = [{"actor_id": "é" * 256, "session_id": "A~_.:@+-" * 31, "item": value} for value in values]
    times = ["2026-03-01 09:00:00z", "2026-03-01T09:00:00.123456789+14:00", "0001-01-01T23:59:59Z", None]
    file.write_text("\n".join(json.dumps({**turn, "time": time}) for turn, time in zip(turns, times, strict=True)))

    importer(file)

    assert [item.data for item in items(client, name, "A~_.:@+-" * 31)] == values


def test_nothing_is_sent_of_a_file_with_a_broken_line(
    importer: Importer, client: AgentKitClient, name: str, file: Path
) -> None:
    file.write_text(file.read_text() + "{nonsense\n")

    answer = importer.run(file)

    assert answer.returncode == 1
    assert f"{file}:6 is not JSON" in answer.stderr
    assert name not in {store.name for store in client.session_stores.list()}
