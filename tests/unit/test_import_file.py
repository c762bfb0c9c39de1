"""Conversation files: what is wrong with a line is said with file and line number."""

import json
from pathlib import Path
from typing import Any

import pytest

from memstream.conversations import check_file
from memstream.errors import MemstreamError

GOOD: dict[str, Any] = {"actor_id": "ines", "session_id": "s", "item": {"content": "Hello"}}


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
        ("[" * 100_000, "is not JSON"),
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
