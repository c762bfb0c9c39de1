"""Conversations of this process alone, for an agent that has no session store yet."""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field
from typing import Any

from memstream.errors import NotFound
from memstream.records import SessionItem

logger = logging.getLogger("memstream")
_sessions: dict[str, LocalSession] = {}


@dataclass
class LocalSession:
    """As much of a `memstream.aio.Session` as the adapter uses; it is gone when the process ends."""

    session_id: str
    actor_id: str
    _items: list[SessionItem] = field(default_factory=list)
    _last_position: int = 0

    async def list_items(
        self, *, page_size: int | None = None, order_by: str | None = None
    ) -> AsyncGenerator[SessionItem, None]:
        del page_size
        for item in list(self._items) if order_by else self._items[::-1]:
            yield SessionItem(item.item_id, json.loads(item.data), position=item.position)

    async def append_items(self, items: Sequence[Any]) -> None:
        for data in [json.dumps(item) for item in items]:
            self._last_position += 1
            self._items.append(SessionItem(str(self._last_position), data, position=self._last_position))

    async def pop_item(self) -> SessionItem | None:
        if not self._items:
            return None
        item = self._items.pop()
        return SessionItem(item.item_id, json.loads(item.data), position=item.position)

    async def clear_items(self) -> None:
        self._items.clear()


def found_here(session_id: str) -> LocalSession:
    """The conversation, whoever's it is; raises `NotFound`."""
    if session_id not in _sessions:
        raise NotFound("there is no such session in this process", error_code="NOT_FOUND")
    return _sessions[session_id]


def begun_here(session_id: str, actor_id: str) -> LocalSession:
    if not _sessions:
        logger.warning("no session store is configured: conversations last as long as this process")
    return _sessions.setdefault(session_id, LocalSession(session_id, actor_id))
