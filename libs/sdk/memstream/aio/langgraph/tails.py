"""A session's items from the newest backwards, as far as somebody asks."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable
from itertools import count
from typing import Any

from memstream.aio.fenced import Fenced
from memstream.aio.sessions import Session
from memstream.langgraph.items import Found

FIRST_ITEMS = 4  # a turn begins at the newest checkpoint, which stands at the end or a few writes before it
PAGE_ITEMS = 100


class Tail:
    """`found` is all that has been read; nothing is read twice."""

    def __init__(self, session: Session | Fenced, page_items: int = FIRST_ITEMS) -> None:
        self._session = session
        self._page_items = page_items
        self._order: list[int] = []
        self._is_whole = False
        self.found = Found()

    async def backwards(self) -> AsyncIterator[tuple[int, Any]]:
        """Position and data of each item, the newest first."""
        for place in count():
            if place == len(self._order) and not await self._read_on():
                return
            position = self._order[place]
            yield position, self.found.items[position]

    async def read(self, positions: Iterable[int]) -> None:
        """Also what stands there."""
        missing = [position for position in positions if position not in self.found.items]
        if missing:
            async for item in self._session.list_items(positions=missing):
                self.found.add(item)

    async def read_until(self, is_enough: Callable[[], Any]) -> None:
        """On backwards, until that is true or there is no more."""
        while not is_enough() and await self._read_on():
            pass

    async def _read_on(self) -> bool:
        if self._is_whole:
            return False
        after = self._order[-1] if self._order else None
        read = 0
        async for item in self._session.list_items(page_size=self._page_items, after=after):
            self.found.add(item)
            self._order.append(item.position)
            read += 1
            if read == self._page_items:
                break
        self._is_whole = read < self._page_items
        self._page_items = PAGE_ITEMS
        return read > 0
