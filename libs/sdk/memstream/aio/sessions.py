"""Session stores, sessions and their items."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, ClassVar

from memstream.aio.stores import Bound, Store
from memstream.aio.transport import Transport
from memstream.records import ExtractedMemory, NewItem, SessionItem, WaitFor
from memstream.values import bare, changes, check_page_size, given, segment, snapshot

COLLECTION = "session-stores"
MEMORY_STORES = "memory-stores"
POSITIONS_MAX = 100
EXTRACTION_WAIT_S = 300.0


@dataclass(frozen=True)
class Session(Bound):
    """A snapshot of one conversation's record. `last_position` is 0 until something is appended."""

    store_name: str
    session_id: str
    actor_id: str
    parent_session_id: str | None = None
    root_session_id: str | None = None
    metadata: dict[str, str] = field(default_factory=dict, hash=False)
    create_time: datetime | None = None
    update_time: datetime | None = None
    last_activity_time: datetime | None = None
    last_position: int = 0
    forked_from_session_id: str | None = None

    @classmethod
    def of(cls, raw: Mapping[str, Any], store_name: str, transport: Transport) -> Session:
        return snapshot(cls, raw, store_name=store_name, _transport=transport)

    @property
    def _sessions(self) -> str:
        return f"/{COLLECTION}/{segment(self.store_name)}/sessions"

    @property
    def _path(self) -> str:
        return f"{self._sessions}/{segment(self.session_id)}"

    def up_to(self, position: int) -> WaitFor:
        """For a search: wait until this position is distilled, such as `session.up_to(items[-1].position)`."""
        return WaitFor(self.store_name, self.session_id, position)

    async def update(self, *, metadata: Mapping[str, str]) -> Session:
        """Replaces the whole of the metadata; returns the new snapshot."""
        raw = await self._transport.send(
            "PATCH", self._path, params={"update_mask": "metadata"}, body={"metadata": dict(metadata)}
        )
        return Session.of(raw, self.store_name, self._transport)

    async def delete(self, *, force: bool = False) -> None:
        """With its items; memories are kept. Raises `FailedPrecondition` when it has children, unless `force`."""
        await self._transport.send("DELETE", self._path, params={"force": "true" if force else "false"})

    async def fork(
        self,
        *,
        actor_id: str,
        up_to_item_id: str | None = None,
        session_id: str | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> Session:
        """An independent session that begins with a copy of this one's items, the last of them `up_to_item_id`.

        The copies have new ids and positions from 1; they are context for distillation, never evidence.
        """
        raw = await self._transport.create(
            f"{self._sessions}:fork",
            body=given(
                source_session_id=self.session_id,
                actor_id=actor_id,
                up_to_item_id=up_to_item_id,
                session_id=session_id,
                metadata=metadata,
            ),
        )
        return Session.of(raw.get("session") or raw, self.store_name, self._transport)

    async def list_items(
        self,
        *,
        page_size: int | None = None,
        order_by: str | None = None,
        after: int | None = None,
        positions: Iterable[int] | None = None,
    ) -> AsyncIterator[SessionItem]:
        """Every item, the newest first unless `order_by` is `create_time asc`; `page_size` (1 to 100) a request.

        `after` gives only those beyond that position in the asked direction; `positions` only those there are at these
        (100 a request, any number in all).
        """
        check_page_size(page_size)
        if positions is not None and after is not None:
            raise ValueError("positions cannot be combined with after")
        asked: list[Mapping[str, Any]] = [{"after": after}]
        if positions is not None:
            asked = [{"positions": numbers} for numbers in _hundreds(positions, order_by)]
        for params in asked:
            raws = self._transport.pages(
                f"{self._path}/items",
                "session_items",
                page_size=page_size if positions is None else None,
                params={"order_by": order_by, **params},
            )
            async for raw in raws:
                yield SessionItem.of(raw)

    async def append_items(
        self,
        items: Sequence[Any],
        *,
        expected_position: int | None = None,
        idempotency_key: str | None = None,
    ) -> list[SessionItem]:
        """Appends all or none, in this order; each element is one item's data, any JSON, or a `NewItem`.

        At most 1,000 items and 16 MiB, 4 MiB each. With `expected_position` it raises `Aborted` unless that is the
        session's last position (0 for a new one). It is done once however often it is sent; your own
        `idempotency_key` makes that so for your own repeats too, within 24 hours.
        """
        if not items:
            raise ValueError("there must be at least one item")
        if isinstance(items, (str, bytes, Mapping)):
            raise ValueError("items is a list: put a single item into one")
        entries = [item if isinstance(item, NewItem) else NewItem(item) for item in items]
        answer = await self._transport.send(
            "POST",
            f"{self._path}/items:append",
            body={"items": [entry.body() for entry in entries], **given(expected_position=expected_position)},
            key=idempotency_key or str(uuid.uuid4()),
        )
        return [SessionItem.of(raw) for raw in answer.get("session_items") or ()]

    async def pop_item(self) -> SessionItem | None:
        """Removes and returns the newest item; None when there is none. Its position is not given again."""
        answer = await self._transport.create(f"{self._path}/items:pop")
        return SessionItem.of(answer["item"]) if answer.get("item") else None

    async def clear_items(self, *, through: int | None = None) -> None:
        """Removes all items, or those up to that position; the session stays, and so do memories."""
        await self._transport.send(
            "POST", f"{self._path}/items:clear", params={"through": through}, body={}, is_safe=through is not None
        )

    async def extract_memories(
        self, *, memory_store: str, instructions: str | None = None, dry_run: bool = False
    ) -> list[ExtractedMemory]:
        """Distils this session now, without a pipeline; returns what was written, or with `dry_run` would be.

        Calls the model, so it takes seconds. Needs READ on the session store and WRITE on the memory store.
        `Aborted` when not all could be written, and says why; the rest stays, and repeating is safe.
        """
        answer = await self._transport.send(
            "POST",
            f"{self._path}/extractions",
            body=given(
                memory_store=f"{MEMORY_STORES}/{bare(MEMORY_STORES, memory_store)}",
                instructions=instructions,
                dry_run=dry_run or None,
            ),
            wait_s=EXTRACTION_WAIT_S,
        )
        return [snapshot(ExtractedMemory, raw) for raw in answer.get("entries") or ()]


@dataclass(frozen=True)
class SessionStore(Store):
    """A snapshot of a store's record. Sessions are kept for `retention_days`, and `idle_ttl_minutes` after their last
    activity; None keeps them."""

    _permissions: ClassVar[str] = "session_store_permissions"

    name: str
    session_store_id: str
    creator_user_id: str | None = None
    create_time: datetime | None = None
    update_time: datetime | None = None
    description: str | None = None
    metadata: dict[str, str] = field(default_factory=dict, hash=False)
    retention_days: int | None = None
    idle_ttl_minutes: int | None = None

    @classmethod
    def of(cls, raw: Mapping[str, Any], transport: Transport) -> SessionStore:
        store_id = str(raw.get("session_store_id") or bare(COLLECTION, raw["name"]))
        return snapshot(cls, raw, name=store_id, session_store_id=store_id, _transport=transport)

    @property
    def _path(self) -> str:
        return f"/{COLLECTION}/{segment(self.name)}"

    async def update(
        self,
        *,
        description: str | None = None,
        metadata: Mapping[str, str] | None = None,
        retention_days: int | None = None,
        idle_ttl_minutes: int | None = None,
        clear: Sequence[str] = (),
    ) -> SessionStore:
        """Changes what is given and empties the fields named in `clear`; returns the new snapshot.

        Metadata is replaced as a whole. For the store's creator or an admin.
        """
        mask, body = changes(
            clear,
            description=description,
            metadata=metadata,
            retention_days=retention_days,
            idle_ttl_minutes=idle_ttl_minutes,
        )
        raw = await self._transport.send("PATCH", self._path, params=mask, body=body)
        return SessionStore.of(raw, self._transport)

    async def delete(self) -> None:
        """With its sessions and items; memories are kept. For the store's creator or an admin."""
        await self._transport.send("DELETE", self._path)

    async def add(
        self,
        *,
        actor_id: str,
        session_id: str | None = None,
        parent_session_id: str | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> Session:
        """A new session; raises `AlreadyExists` when the id is taken. A child has its parent's actor."""
        if session_id is not None:
            segment(session_id)
        raw = await self._transport.create(
            f"{self._path}/sessions",
            params={"session_id": session_id},
            body=given(actor_id=actor_id, parent_session_id=parent_session_id, metadata=metadata),
        )
        return Session.of(raw, self.name, self._transport)

    async def get(self, session_id: str) -> Session:
        """The session, whoever's it is: compare its `actor_id` before resuming it for a user."""
        raw = await self._transport.get(f"{self._path}/sessions/{segment(session_id)}")
        return Session.of(raw, self.name, self._transport)

    async def list(
        self, *, page_size: int | None = None, filter: str | None = None, order_by: str | None = None
    ) -> AsyncIterator[Session]:
        """The sessions, the newest first; `page_size` (1 to 100) a request.

        `filter` is such as `actor_id = "ines" AND metadata.channel = "web"`; values are JSON strings. `order_by` is
        `create_time` or `last_activity_time` with `asc` or `desc`; by activity, what is touched meanwhile may come
        twice or not at all.
        """
        params = {"filter": filter, "order_by": order_by or "create_time desc"}
        raws = self._transport.pages(f"{self._path}/sessions", "sessions", page_size=page_size, params=params)
        async for raw in raws:
            yield Session.of(raw, self.name, self._transport)


class SessionStores:
    """`AgentKitClient.session_stores`."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def create(
        self,
        name: str,
        *,
        description: str | None = None,
        metadata: Mapping[str, str] | None = None,
        retention_days: int | None = None,
        idle_ttl_minutes: int | None = None,
    ) -> SessionStore:
        """A new store; raises `AlreadyExists` when the name is taken in this workspace.

        A name has 3 to 63 of a-z, 0-9 and `-`, begins with a letter and does not end with `-`.
        """
        raw = await self._transport.create(
            f"/{COLLECTION}",
            params={"session_store_id": name},
            body=given(
                description=description,
                metadata=metadata,
                retention_days=retention_days,
                idle_ttl_minutes=idle_ttl_minutes,
            ),
        )
        return SessionStore.of(raw, self._transport)

    async def list(self, *, page_size: int | None = None) -> AsyncIterator[SessionStore]:
        """The stores that the caller may see; `page_size` (1 to 100) a request."""
        async for raw in self._transport.pages(f"/{COLLECTION}", "session_stores", page_size=page_size):
            yield SessionStore.of(raw, self._transport)

    async def get(self, name: str) -> SessionStore:
        """By its name, or as `session-stores/<name>`."""
        raw = await self._transport.get(f"/{COLLECTION}/{segment(bare(COLLECTION, name))}")
        return SessionStore.of(raw, self._transport)


def _hundreds(positions: Iterable[int], order_by: str | None) -> Iterator[str]:
    """The positions in the asked direction, as many in one text as one request may name."""
    wanted = sorted(set(positions), reverse=order_by != "create_time asc")
    for start in range(0, len(wanted), POSITIONS_MAX):
        yield ",".join(map(str, wanted[start : start + POSITIONS_MAX]))
