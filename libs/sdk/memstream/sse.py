"""Server-sent events, line by line, as far as Memstream sends them."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class ServerEvent:
    id: str
    name: str
    data: dict[str, Any] = field(default_factory=dict)


class EventReader:
    def __init__(self) -> None:
        self._fields: dict[str, str] = {}

    def feed(self, line: str) -> ServerEvent | None:
        """The event that this line ends, if it ends one. A comment is a field without a name, and no event."""
        if line:
            name, _, value = line.partition(":")
            self._fields[name] = value.removeprefix(" ")
            return None
        ended, self._fields = self._fields, {}
        if "event" not in ended:
            return None
        return ServerEvent(ended.get("id", ""), ended["event"], json.loads(ended.get("data") or "{}"))
