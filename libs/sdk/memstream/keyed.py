"""A user's memories by key: the entry of a key, and what an entry says."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

UNKNOWN_USER = "unknown"
FOLDER, ENDING = "/user_memories/", ".json"
SPECIAL = re.compile(r"[%/.]")


@dataclass(frozen=True)
class MemoryItem:
    """`value` is what was saved; of an entry that something else wrote, `{"content": text}`.

    `key` is then its path, which begins with `/`. `score` is that of a search, 0 to 1.
    """

    key: str
    value: dict[str, Any]
    score: float | None = None

    @classmethod
    def of(cls, path: str, content: str | None, score: float | None = None) -> MemoryItem:
        text = content or ""
        if not path.startswith(FOLDER):
            return cls(path, {"content": text}, score)
        try:
            value = json.loads(text)
        except ValueError:
            value = None
        key = unquote(path.removeprefix(FOLDER).removesuffix(ENDING))
        return cls(key, value if isinstance(value, dict) else {"content": text}, score)


def is_known(user_id: str | None) -> bool:
    """Whether the id is anybody's: those that are not known would share one memory."""
    return (user_id or "").strip() not in ("", UNKNOWN_USER)


def path_of(key: str) -> str:
    """The entry of a key; a key that begins with `/` is a path itself."""
    if not key:
        raise ValueError("a memory's key cannot be empty")
    return key if key.startswith("/") else f"{FOLDER}{SPECIAL.sub(_escaped, key)}{ENDING}"


def prefix_of(key: str) -> str:
    """How the paths of all keys begin that begin so."""
    return path_of(key).removesuffix(ENDING) if not key.startswith("/") else key


def _escaped(special: re.Match[str]) -> str:
    return f"%{ord(special[0]):02X}"
