"""Conversation files: what is wrong with a line is said with file and line number."""

import gc
import json
import os
from pathlib import Path
from typing import Any

import httpx
import pytest

from memstream.client import AgentKitClient
from memstream.conversations import FileChanged, check_file
from memstream.errors import MemstreamError
from memstream.importing import Target, import_file
from memstream.memories import MemoryStore

GOOD: dict[str, Any] = {"actor_id": "ines", "session_id": "s", "item": {"content": "Hello"}}


def nested(levels: int) -> Any:
    value: Any = "]"
    for _ in range(levels):
        value = [value]
    return value


def write(path: Path, *lines: dict[str, Any] | str) -> Path:
    file = path / "talk.jsonl"
    file.write_text("\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines))
    return file


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("{", "is not JSON"),
        ("[1]", "is not a JSON object"),
        ('{"actor_id": "ines", "session_id": "s", "item": NaN}', "NaN is not a JSON number"),
        ("[" * 100_000, "is nested too deep"),
        ('{"actor_id": "ines", "session_id": "s", "item": -Infinity}', "-Infinity is not a JSON number"),
        ('{"actor_id": "ines", "session_id": "s", "item": [1e400]}', "1e400 is too large a number"),
        ('{"actor_id": "ines", "session_id": "s", "item": "\x00"}', "is not JSON"),
        ({**GOOD, "session_id": ".."}, "'session_id' must be 1 to 255 characters"),
        ({**GOOD, "session_id": "."}, "'session_id' must be 1 to 255 characters"),
        ({**GOOD, "session_id": "a/b"}, "'session_id' must be 1 to 255 characters"),
        ({**GOOD, "session_id": "s" * 256}, "'session_id' must be 1 to 255 characters"),
        ({**GOOD, "session_id": "s\n"}, "'session_id' must be 1 to 255 characters"),
        ({**GOOD, "actor_id": "a" * 257}, "'actor_id' must be 1 to 256 printable characters"),
        ({**GOOD, "actor_id": "a\x00"}, "'actor_id' must be 1 to 256 printable characters"),
        ({**GOOD, "actor_id": "a\ud800"}, "'actor_id' must be 1 to 256 printable characters"),
        ({**GOOD, "item": nested(498)}, "is nested too deep: an item may have 497 levels"),
        ({**GOOD, "item": "x" * (4 * 1024 * 1024)}, "'item' has 4194306 bytes, at most 4194304 are taken"),
        ({**GOOD, "item": "é" * (2 * 1024 * 1024)}, "'item' has 4194306 bytes, at most 4194304 are taken"),
        ({**GOOD, "time": "2026-03-01T09:00Z"}, "'time' must be RFC 3339 with seconds"),
        ({**GOOD, "time": "2026-03-01T09:00:00+0100"}, "'time' must be RFC 3339 with seconds"),
        ({**GOOD, "time": "2026-02-30T09:00:00Z"}, "'time' must be RFC 3339 with seconds"),
        ({**GOOD, "time": "0001-01-01T00:00:00+10:00"}, "'time' must be RFC 3339 with seconds"),
        ({**GOOD, "time": "2026-03-01T09:00:00Z\x00"}, "'time' must be RFC 3339 with seconds"),
        ({"session_id": "s", "item": 1}, "lacks 'actor_id'"),
        ({"actor_id": "ines", "session_id": "s"}, "lacks 'item'"),
        ({**GOOD, "actor_id": " "}, "'actor_id' must be a text that is not empty"),
        ({**GOOD, "session_id": 7}, "'session_id' must be a text that is not empty"),
        ({**GOOD, "tiem": "2026-03-01T09:00:00Z"}, "unknown field 'tiem'"),
        ({**GOOD, "time": "yesterday"}, "'time' must be RFC 3339"),
        ({**GOOD, "time": "2026-03-01T09:00:00"}, "'time' must be RFC 3339"),
        ({**GOOD, "time": "2026-03-01"}, "'time' must be RFC 3339"),
        ({**GOOD, "turn_id": 7}, "'turn_id' must be a text"),
        ({**GOOD, "actor_id": "orla"}, "gives session 's' to actor 'orla', an earlier line to 'ines'"),
        ({**GOOD, "turn_id": "1"}, "repeats turn '1' of session 's'"),
    ],
)
def test_a_wrong_line_is_named(tmp_path: Path, line: dict[str, Any] | str, what: str) -> None:
    file = write(tmp_path, {**GOOD, "turn_id": "1"}, line)

    with pytest.raises(MemstreamError) as refused:
        check_file(file)

    assert refused.value.message.startswith(f"{file}:2 ")
    assert what in refused.value.message


@pytest.mark.parametrize(
    "more",
    [
        {"session_id": "A-z0.9_~:@+-"},
        {"session_id": "s" * 255, "actor_id": "é" * 256},
        {"time": "2026-03-01T09:00:00.123456789+14:00"},
        {"time": "2026-03-01 09:00:00z"},
        {"item": nested(497)},
        {"item": "x" * (4 * 1024 * 1024 - 2)},
        {"item": "half \ud83d and \x00"},
        {"item": ["[" * 1000, '\\"[' * 1000]},
        {"item": 10**300},
    ],
)
def test_what_a_server_takes_is_taken(tmp_path: Path, more: dict[str, Any]) -> None:
    checked = check_file(write(tmp_path, {**GOOD, **more}))

    (turn,) = checked.turns_of(checked.conversations[0])
    assert turn.item == more.get("item", GOOD["item"])


@pytest.mark.parametrize("change", ["other words", "shorter", "gone"])
def test_a_file_that_changes_after_its_check_is_not_taken_for_what_it_was(tmp_path: Path, change: str) -> None:
    file = write(tmp_path, GOOD, {**GOOD, "item": "Hello"})
    checked = check_file(file)

    match change:
        case "other words":
            file.write_text(file.read_text().replace('"Hello"', '"Howdy"'))
        case "shorter":
            file.write_text(file.read_text().splitlines(keepends=True)[0])
        case "gone":
            file.unlink()

    with pytest.raises(FileChanged, match=r":[12] has changed since|can no longer be read") as changed:
        checked.turns_of(checked.conversations[0])
    assert changed.value.hint is None


def test_of_a_file_that_changed_it_is_said_how_much_was_sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = write(tmp_path, GOOD, {**GOOD, "session_id": "t"}, {**GOOD, "session_id": "t", "item": 3})
    checked = check_file(file)

    def answer(request: httpx.Request) -> httpx.Response:
        if request.method == "GET":
            return httpx.Response(200, json={"name": "session-stores/s", "session_id": "s", "actor_id": "ines"})
        file.write_text(file.read_text().replace("3", "4"))
        return httpx.Response(200, json={"session_items": [{"item_id": "i", "position": 1}]})

    monkeypatch.setattr("memstream.importing.WORKERS", 1)
    client = AgentKitClient(base_url="http://server", token="x", http_transport=httpx.MockTransport(answer))
    store = client.session_stores.get("s")
    memories = MemoryStore.of({"name": "memory-stores/m"}, client.memory_stores._transport)
    target = Target(client, store, memories, pipeline=None)  # type: ignore[arg-type]

    with pytest.raises(FileChanged, match=":3 has changed") as changed, client:
        import_file(target, checked, lambda _: None)

    assert changed.value.hint is not None
    assert changed.value.hint.startswith("1 of 3 turns are in session-stores/s; ")


def test_a_pipe_is_read_once_and_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    ends = os.pipe()
    os.write(ends[1], (json.dumps(GOOD) + "\n").encode() * 2)
    os.close(ends[1])

    checked = check_file(Path(f"/dev/fd/{ends[0]}"))
    os.close(ends[0])

    assert [turn.item for turn in checked.turns_of(checked.conversations[0])] == [GOOD["item"]] * 2
    assert len(list(tmp_path.iterdir())) == 1
    del checked
    gc.collect()
    assert list(tmp_path.iterdir()) == []


def test_a_wrong_line_of_a_pipe_is_named_and_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    ends = os.pipe()
    os.write(ends[1], b"{")
    os.close(ends[1])

    with pytest.raises(MemstreamError, match=rf"^/dev/fd/{ends[0]}:1 is not JSON"):
        check_file(Path(f"/dev/fd/{ends[0]}"))

    os.close(ends[0])
    assert list(tmp_path.iterdir()) == []


def test_interleaved_conversations_keep_their_own_order(tmp_path: Path) -> None:
    lines = [{**GOOD, "session_id": session, "item": number} for number, session in enumerate("abab")]

    checked = check_file(write(tmp_path, *lines))

    turns = {conversation.session_id: checked.turns_of(conversation) for conversation in checked.conversations}
    assert {session: [turn.item for turn in found] for session, found in turns.items()} == {"a": [0, 2], "b": [1, 3]}
    assert checked.turns == 4


def test_blank_lines_and_a_byte_order_mark_do_not_matter(tmp_path: Path) -> None:
    file = write(tmp_path, "\ufeff" + json.dumps(GOOD), "", json.dumps({**GOOD, "item": "é"}), "")

    checked = check_file(file)

    assert [turn.item for turn in checked.turns_of(checked.conversations[0])] == [GOOD["item"], "é"]


def test_an_empty_file_is_said_to_be_one(tmp_path: Path) -> None:
    with pytest.raises(MemstreamError, match="holds no turns"):
        check_file(write(tmp_path, ""))


def test_text_that_is_not_utf_8_is_named(tmp_path: Path) -> None:
    file = tmp_path / "talk.jsonl"
    file.write_bytes(b'{"actor_id": "\xff"}')

    with pytest.raises(MemstreamError, match=":1 is not JSON"):
        check_file(file)


@pytest.mark.parametrize(
    ("sample", "turns"),
    [("libs/sdk/memstream/samples/conversations.jsonl", 5), ("services/standalone/samples/demo.jsonl", 22)],
)
def test_the_samples_are_valid(sample: str, turns: int) -> None:
    assert check_file(Path(__file__).parents[2] / sample).turns == turns
