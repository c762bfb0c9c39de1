# Made by libs/sdk/generate.py from aio/langgraph/tails.py; change that one.
"""A session's items from the newest backwards, as far as somebody asks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import count
from typing import Any

from memstream.fenced import Fenced
from memstream.langgraph.items import Found
from memstream.sessions import Session

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

    def backwards(self) -> Iterator[tuple[int, Any]]:
        """Position and data of each item, the newest first."""
        for place in count():
            if place == len(self._order) and not self._read_on():
                return
            position = self._order[place]
            yield position, self.found.items[position]

    def read(self, positions: Iterable[int]) -> None:
        """Also what stands there."""
        missing = [position for position in positions if position not in self.found.items]
        if missing:
            for item in self._session.list_items(positions=missing):
                self.found.add(item)

    def read_until(self, is_enough: Callable[[], Any]) -> None:
        """On backwards, until that is true or there is no more."""
        while not is_enough() and self._read_on():
            pass

    def _read_on(self) -> bool:
        if self._is_whole:
            return False
        after = self._order[-1] if self._order else None
        read = 0
        for item in self._session.list_items(page_size=self._page_items, after=after):
            self.found.add(item)
            self._order.append(item.position)
            read += 1
            if read == self._page_items:
                break
        self._is_whole = read < self._page_items
        self._page_items = PAGE_ITEMS
        return read > 0
