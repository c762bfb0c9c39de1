"""Writes a session store as a conversation file, which `memstream import` reads: streaming, whole or not at all.

Sessions go in the order of their making. What is deleted meanwhile is left out.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from memstream.errors import MemstreamError, NotFound
from memstream.records import SessionItem
from memstream.sessions import Session, SessionStore
from memstream.values import dumps

PAGE = 100

Advance = Callable[[int], None]


@dataclass(frozen=True)
class Exported:
    """How much was written; `sessions` counts those that hold items."""

    sessions: int
    turns: int


def check_destination(path: Path) -> Path:
    """Where the file will be; raises `MemstreamError` before anything is asked of the server."""
    destination = path.resolve()
    if destination.exists() and not destination.is_file():
        raise MemstreamError(f"{path} is not a regular file")
    if not destination.parent.is_dir():
        raise MemstreamError(f"cannot write {path}: there is no directory {destination.parent}")
    return destination


def export_file(store: SessionStore, path: Path, advance: Advance) -> Exported:
    """Writes beside `path` and renames at the end; the file is the owner's alone. `advance` hears of written turns."""
    destination = check_destination(path)
    try:
        descriptor, name = tempfile.mkstemp(dir=destination.parent, prefix=f".{destination.name}.", suffix=".part")
        draft = Path(name)
        try:
            with os.fdopen(descriptor, "wb") as file:
                exported = _write(store, file, advance)
                file.flush()
                os.fsync(file.fileno())
            draft.replace(destination)
        except BaseException:
            with suppress(OSError):
                draft.unlink()
            raise
    except OSError as error:
        raise MemstreamError(f"cannot write {path}: {error.strerror}") from error
    return exported


def _write(store: SessionStore, file: IO[bytes], advance: Advance) -> Exported:
    sessions = turns = 0
    for session in store.list(page_size=PAGE, order_by="create_time asc"):
        start, count = file.tell(), 0
        try:
            for item in session.list_items(page_size=PAGE, order_by="create_time asc"):
                file.write(dumps(_turn(session, item)) + b"\n")
                count += 1
                if count % PAGE == 0:
                    advance(PAGE)
        except NotFound:
            advance(count % PAGE - count)
            file.seek(start)
            file.truncate()
            continue
        except ValueError as error:
            raise MemstreamError(
                f"session '{session.session_id}' holds at position {item.position} what the file cannot: {error}"
            ) from error
        advance(count % PAGE)
        sessions, turns = sessions + bool(count), turns + count
    return Exported(sessions, turns)


def _turn(session: Session, item: SessionItem) -> dict[str, Any]:
    time = item.occurred_at or (item.create_time and item.create_time.isoformat().replace("+00:00", "Z"))
    return {
        "actor_id": session.actor_id,
        "session_id": session.session_id,
        "turn_id": str(item.position),
        "time": time,
        "item": item.data,
    }
