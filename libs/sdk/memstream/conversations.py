"""Conversation files: JSON Lines, a turn a line, in the order of each conversation.

    {"actor_id": "ana", "session_id": "ana-1", "turn_id": "1", "time": "2026-03-01T09:00:00Z", "speaker": "Ana",
     "item": {"type": "message", "role": "user", "content": "Hello"}}

`actor_id`, `session_id` and `item` are required. The conversations of a file may be interleaved. A file is read twice:
checked whole for all that a server would refuse, then a conversation at a time, so that its size does not matter.
"""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import tempfile
import weakref
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timezone
from itertools import accumulate
from pathlib import Path
from typing import Any, NoReturn

from memstream.errors import MemstreamError
from memstream.values import dumps

REQUIRED = ("actor_id", "session_id", "item")
OPTIONAL = ("turn_id", "time", "speaker")
# What a server takes as it is shipped; one with other limits says no by itself.
SESSION_ID = re.compile(r"[A-Za-z0-9._~:@+-]{1,255}", re.ASCII)
TIME = re.compile(r"(\d{4}-\d\d-\d\d)[Tt ](\d\d:\d\d:\d\d)(?:\.\d{1,9})?([Zz]|[+-]\d\d:\d\d)", re.ASCII)
ACTOR_CHARS = 256
ITEM_BYTES = 4 * 1024 * 1024
BODY_DEPTH, AROUND_ITEM = 500, 3  # {"items": [{"data": …}]}
ITEM_DEPTH = BODY_DEPTH - AROUND_ITEM
MAX_GROWTH = 8  # an item is at most so much longer when it is sent than in the file: 1e15, half a surrogate
NOT_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
STEPS = {ord("["): 1, ord("{"): 1, ord("]"): -1, ord("}"): -1}


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
    """One session's turns, by number, place and checksum of their lines."""

    actor_id: str
    session_id: str
    lines: list[tuple[int, int, int]] = field(default_factory=list)
    turn_ids: set[str] = field(default_factory=set)

    def __len__(self) -> int:
        return len(self.lines)


@dataclass(frozen=True)
class ConversationFile:
    """A checked file; `conversations` are in the order of their first turns.

    `source` is what is read: a stream's copy lives as long as this object.
    """

    path: Path
    conversations: list[Conversation]
    source: Path

    @property
    def turns(self) -> int:
        return sum(len(conversation) for conversation in self.conversations)

    def turns_of(self, conversation: Conversation) -> list[Turn]:
        """Raises `FileChanged` when it does not say what was checked."""
        try:
            with self.source.open("rb") as file:
                return list(self._turns(file, conversation))
        except OSError as error:
            raise FileChanged(f"{self.path} can no longer be read: {error.strerror}") from error

    def _turns(self, file: Any, conversation: Conversation) -> Iterator[Turn]:
        for number, offset, checksum in conversation.lines:
            file.seek(offset)
            line = file.readline()
            if zlib.crc32(line) != checksum:
                raise FileChanged(f"{self.path}:{number} has changed since the file was checked")
            yield parse_turn(self.path, number, line)


class FileChanged(MemstreamError):
    """The file is not what was checked; some of it may have been sent."""


def check_file(path: Path) -> ConversationFile:
    """Checks every line before anything is sent; raises `MemstreamError` naming file and line."""
    try:
        with path.open("rb") as file:
            if file.seekable():
                return ConversationFile(path, _checked(path, file), path)
            return _check_stream(path, file)
    except OSError as error:
        raise MemstreamError(f"cannot read {path}: {error.strerror}") from error


def _check_stream(path: Path, stream: Any) -> ConversationFile:
    """A pipe is read once, into a file that goes away with the answer."""
    descriptor, name = tempfile.mkstemp(prefix="memstream-", suffix=".jsonl")
    try:
        with os.fdopen(descriptor, "w+b") as copy:
            shutil.copyfileobj(stream, copy)
            copy.seek(0)
            checked = ConversationFile(path, _checked(path, copy), Path(name))
    except BaseException:
        Path(name).unlink()
        raise
    weakref.finalize(checked, checked.source.unlink)
    return checked


def _checked(path: Path, file: Any) -> list[Conversation]:
    found: dict[str, Conversation] = {}
    offset = 0
    for number, line in enumerate(file, 1):
        if line.strip():
            _add(found, path, parse_turn(path, number, line), (number, offset, zlib.crc32(line)))
        offset += len(line)
    if not found:
        raise MemstreamError(f"{path} holds no turns")
    return list(found.values())


def parse_turn(path: Path, number: int, line: bytes) -> Turn:
    """One line; raises `MemstreamError` saying what is wrong with it."""
    if _is_deeper(line, ITEM_DEPTH + 1):
        _refuse(path, number, f"is nested too deep: an item may have {ITEM_DEPTH} levels")
    try:
        text = line.decode("utf-8-sig" if number == 1 else "utf-8")
        raw = json.loads(text, parse_constant=_no_constant, parse_float=_finite)
    except (ValueError, RecursionError) as error:
        _refuse(path, number, f"is not JSON: {error}")
    if not isinstance(raw, dict):
        _refuse(path, number, "is not a JSON object")
    for name in REQUIRED:
        if name not in raw:
            _refuse(path, number, f"lacks '{name}'")
    for name in raw:
        if name not in (*REQUIRED, *OPTIONAL):
            _refuse(path, number, f"has an unknown field {name!a}; known are {', '.join((*REQUIRED, *OPTIONAL))}")
    for name in ("actor_id", "session_id"):
        if not isinstance(raw[name], str) or not raw[name].strip():
            _refuse(path, number, f"'{name}' must be a text that is not empty")
    if len(raw["actor_id"]) > ACTOR_CHARS or not raw["actor_id"].isprintable():
        _refuse(path, number, f"'actor_id' must be 1 to {ACTOR_CHARS} printable characters")
    if SESSION_ID.fullmatch(raw["session_id"]) is None or raw["session_id"] in (".", ".."):
        _refuse(path, number, "'session_id' must be 1 to 255 characters of A-Z a-z 0-9 . _ ~ : @ + -, not '.' or '..'")
    for name in OPTIONAL:
        if raw.get(name) is not None and not isinstance(raw[name], str):
            _refuse(path, number, f"'{name}' must be a text")
    time = raw.get("time")
    if time is not None and not _is_time(time):
        _refuse(
            path,
            number,
            f"'time' must be RFC 3339 with seconds and an offset, such as 2026-03-01T09:00:00Z, not {time!a}",
        )
    if len(line) * MAX_GROWTH > ITEM_BYTES and (size := len(dumps(raw["item"]))) > ITEM_BYTES:
        _refuse(path, number, f"'item' has {size} bytes, at most {ITEM_BYTES} are taken")
    return Turn(number, raw["actor_id"], raw["session_id"], raw["item"], time, raw.get("turn_id"))


def _add(found: dict[str, Conversation], path: Path, turn: Turn, place: tuple[int, int, int]) -> None:
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
            _refuse(path, turn.line, f"repeats turn {turn.turn_id!a} of session '{turn.session_id}'")
        conversation.turn_ids.add(turn.turn_id)
    conversation.lines.append(place)


def _is_time(text: str) -> bool:
    match = TIME.fullmatch(text)
    if match is None:
        return False
    day, clock, zone = match.groups()
    try:
        # Without the fraction, of which Python 3.10 reads only some lengths.
        datetime.fromisoformat(f"{day}T{clock}{zone.upper().replace('Z', '+00:00')}").astimezone(timezone.utc)
    except (ValueError, OverflowError):
        return False
    return True


def _is_deeper(line: bytes, limit: int) -> bool:
    """Whether brackets outside strings nest deeper than `limit`."""
    if line.count(b"[") + line.count(b"{") <= limit:
        return False
    outside = line.replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"')[::2]
    brackets = b"".join(outside).translate(None, NOT_BRACKETS)
    return max(accumulate(map(STEPS.__getitem__, brackets)), default=0) > limit


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text[:40]} is too large a number")
    return number


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")


def _refuse(path: Path, number: int, what: str) -> NoReturn:
    raise MemstreamError(f"{path}:{number} {what}", hint="nothing of this file was sent")
