"""A session that is kept open: its id may have come to stand for another one meanwhile."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Any

from memstream.aio.sessions import Session
from memstream.errors import NotFound
from memstream.records import SessionItem

UID_LENGTH = 32  # of an item's id: that of its session comes first


class Replaced(NotFound):
    """The session was deleted, and another one has its id."""


class Fenced:
    """`record` and the items of that session alone.

    `is_sure` is false while no item has told the session's uid: then ask for the record again before trusting it.
    Raises `Replaced` for items of another session; what was appended then stands in that one.
    """

    def __init__(self, record: Session) -> None:
        self.record = record
        self._uid: str | None = None

    @property
    def actor_id(self) -> str:
        return self.record.actor_id

    @property
    def is_sure(self) -> bool:
        return self._uid is not None

    async def list_items(
        self,
        *,
        page_size: int | None = None,
        order_by: str | None = None,
        after: int | None = None,
        positions: Iterable[int] | None = None,
    ) -> AsyncIterator[SessionItem]:
        is_empty = after is None and positions is None
        items = self.record.list_items(page_size=page_size, order_by=order_by, after=after, positions=positions)
        async for item in items:
            is_empty = False
            yield self._own(item)
        if is_empty:
            self._uid = None

    async def append_items(self, items: Sequence[Any], *, expected_position: int | None = None) -> list[SessionItem]:
        return [self._own(item) for item in await self.record.append_items(items, expected_position=expected_position)]

    async def pop_item(self) -> SessionItem | None:
        item = await self.record.pop_item()
        return item and self._own(item)

    async def clear_items(self) -> None:
        await self.record.clear_items()
        self._uid = None

    def _own(self, item: SessionItem) -> SessionItem:
        uid = item.item_id[:UID_LENGTH]
        if self._uid is None:
            self._uid = uid
        if self._uid != uid:
            raise Replaced(f"session '{self.record.session_id}' was deleted and made again", error_code="NOT_FOUND")
        return item
