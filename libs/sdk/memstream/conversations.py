"""Conversation files: JSON Lines, a turn a line, in the order of each conversation.

    {"actor_id": "ana", "session_id": "ana-1", "turn_id": "1", "time": "2026-03-01T09:00:00Z", "speaker": "Ana",
     "item": {"type": "message", "role": "user", "content": "Hello"}}

`actor_id`, `session_id` and `item` are required. The conversations of a file may be interleaved. A file is read twice:
checked whole, then a conversation at a time, so that its size does not matter.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, NoReturn

from memstream.errors import MemstreamError

REQUIRED = ("actor_id", "session_id", "item")
OPTIONAL = ("turn_id", "time", "speaker")


@dataclass(frozen=True)
class Turn:
    line: int
    actor_id: str
    session_id: str
    item: Any
    time: str | None = None
    turn_id: str | None = None


@dataclass
class Conversation:
    """One session's turns, by where their lines begin in the file."""

    actor_id: str
    session_id: str
    lines: list[tuple[int, int]] = field(default_factory=list)
    turn_ids: set[str] = field(default_factory=set)

    def __len__(self) -> int:
        return len(self.lines)


@dataclass(frozen=True)
class ConversationFile:
    """A checked file; `conversations` are in the order of their first turns."""

    path: Path
    conversations: list[Conversation]

    @property
    def turns(self) -> int:
        return sum(len(conversation) for conversation in self.conversations)

    def turns_of(self, conversation: Conversation) -> list[Turn]:
        with self.path.open("rb") as file:
            return list(self._turns(file, conversation))

    def _turns(self, file: Any, conversation: Conversation) -> Iterator[Turn]:
        for number, offset in conversation.lines:
            file.seek(offset)
            yield parse_turn(self.path, number, file.readline())


def check_file(path: Path) -> ConversationFile:
    """Checks every line before anything is sent; raises `MemstreamError` naming file and line."""
    found: dict[str, Conversation] = {}
    offset = 0
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, 1):
                if line.strip():
                    _add(found, path, parse_turn(path, number, line), offset)
                offset += len(line)
    except OSError as error:
        raise MemstreamError(f"cannot read {path}: {error.strerror}") from error
    if not found:
        raise MemstreamError(f"{path} holds no turns")
    return ConversationFile(path, list(found.values()))


def parse_turn(path: Path, number: int, line: bytes) -> Turn:
    """One line; raises `MemstreamError` saying what is wrong with it."""
    try:
        raw = json.loads(line.decode("utf-8-sig" if number == 1 else "utf-8"), parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        _refuse(path, number, f"is not JSON: {error}")
    if not isinstance(raw, dict):
        _refuse(path, number, "is not a JSON object")
    for name in REQUIRED:
        if name not in raw:
            _refuse(path, number, f"lacks '{name}'")
    for name in raw:
        if name not in (*REQUIRED, *OPTIONAL):
            _refuse(path, number, f"has an unknown field '{name}'; known are {', '.join((*REQUIRED, *OPTIONAL))}")
    for name in ("actor_id", "session_id"):
        if not isinstance(raw[name], str) or not raw[name].strip():
            _refuse(path, number, f"'{name}' must be a text that is not empty")
    for name in OPTIONAL:
        if raw.get(name) is not None and not isinstance(raw[name], str):
            _refuse(path, number, f"'{name}' must be a text")
    time = raw.get("time")
    if time is not None and not _is_time(time):
        _refuse(path, number, f"'time' must be RFC 3339 with an offset, such as 2026-03-01T09:00:00Z, not '{time}'")
    return Turn(number, raw["actor_id"], raw["session_id"], raw["item"], time, raw.get("turn_id"))


def _add(found: dict[str, Conversation], path: Path, turn: Turn, offset: int) -> None:
    conversation = found.setdefault(turn.session_id, Conversation(turn.actor_id, turn.session_id))
    if conversation.actor_id != turn.actor_id:
        _refuse(
            path,
            turn.line,
            f"gives session '{turn.session_id}' to actor '{turn.actor_id}', "
            f"an earlier line to '{conversation.actor_id}'",
        )
    if turn.turn_id is not None:
        if turn.turn_id in conversation.turn_ids:
            _refuse(path, turn.line, f"repeats turn '{turn.turn_id}' of session '{turn.session_id}'")
        conversation.turn_ids.add(turn.turn_id)
    conversation.lines.append((turn.line, offset))


def _is_time(text: str) -> bool:
    try:
        time = datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        return False
    return time.tzinfo is not None and "T" in text


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")


def _refuse(path: Path, number: int, what: str) -> NoReturn:
    raise MemstreamError(f"{path}:{number} {what}", hint="nothing of this file was sent")
