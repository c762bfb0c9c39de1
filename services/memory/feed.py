"""Watching an actor's memory: the change feed as server-sent events.

The table is the truth and any replica can go on from any place in it; news on the bus, or of a write here, only shorten
the wait. The grant is read again with every look, and the token's end is the watch's.
"""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from uuid import UUID

from libs.chassis.auth import Caller
from libs.chassis.errors import ApiError
from services.memory.freshness import Wakers
from services.memory.store.access import Forbidden, StoreGone
from services.memory.store.changes import Changes, FeedChange, Place

LOOK_AGAIN_S = 1.0
COMMENT_INTERVAL_S = 15.0


class Feed:
    def __init__(self, changes: Changes, wakers: Wakers) -> None:
        self._changes = changes
        self._wakers = wakers

    async def start(self, caller: Caller, store_uid: UUID, place: Place | None) -> tuple[Place, bool]:
        """Where to begin, and whether what lies between was lost; refuses whoever may not watch."""
        now = await self._changes.now(caller, store_uid)
        if place is None:
            return now, False
        if await self._changes.after(caller, store_uid, None, place) is None:
            return now, True
        return place, False

    async def events(
        self, caller: Caller, store_id: str, store_uid: UUID, actor_id: str | None, place: Place, *, reset: bool
    ) -> AsyncIterator[str]:
        """Server-sent events until the token expires, the store or the grant is gone, or the database is away."""
        yield _event("reset" if reset else "ready", place, {})
        loop = asyncio.get_running_loop()
        spoken_at = loop.time()
        async with self._wakers.listening(store_uid) as news:
            while time.time() < caller.expires_at:
                news.clear()
                try:
                    changes = await self._changes.after(caller, store_uid, actor_id, place)
                    if changes is None:
                        place = await self._changes.now(caller, store_uid)
                        yield _event("reset", place, {})
                        continue
                except (StoreGone, Forbidden, ApiError):
                    return
                for change in changes:
                    place = change.place
                    yield _event(change.change, place, _body(store_id, change))
                    spoken_at = loop.time()
                if changes:
                    continue
                if loop.time() - spoken_at >= COMMENT_INTERVAL_S:
                    yield ": still here\n\n"
                    spoken_at = loop.time()
                try:
                    async with asyncio.timeout(LOOK_AGAIN_S):
                        await news.wait()
                except TimeoutError:
                    continue


def place_of(event_id: str) -> Place | None:
    """The place that an event id names, or None for no id of ours."""
    tx, _, change_id = event_id.partition("-")
    if not (tx.isascii() and tx.isdigit() and change_id.isascii() and change_id.isdigit()):
        return None
    place = Place(int(tx), int(change_id))
    return place if place.tx < 2**64 and place.change_id < 2**63 else None


def _event(name: str, place: Place, body: dict[str, object]) -> str:
    return f"id: {place.tx}-{place.change_id}\nevent: {name}\ndata: {json.dumps(body)}\n\n"


def _body(store_id: str, change: FeedChange) -> dict[str, object]:
    body: dict[str, object | None] = {
        "name": f"memory-stores/{store_id}/entries/{change.entry_id}" if change.entry_id else None,
        "actor_id": change.actor_id,
        "path": change.path,
        "session_id": change.session_id,
        "kind": change.kind,
        "version": change.version,
    }
    return {field: value for field, value in body.items() if value is not None}
