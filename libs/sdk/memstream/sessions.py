"""Session stores, sessions and their items."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from memstream.transport import Transport, bare, segment
from memstream.values import given, time_of

COLLECTION = "session-stores"


@dataclass(frozen=True)
class NewItem:
    """An item with the time when it was said: RFC 3339 with an offset, or an aware datetime."""

    data: Any
    occurred_at: str | datetime | None = None

    def body(self) -> dict[str, Any]:
        time = self.occurred_at.isoformat() if isinstance(self.occurred_at, datetime) else self.occurred_at
        return {"data": self.data, **given(occurred_at=time)}


@dataclass(frozen=True)
class SessionItem:
    """One stored item. `data` is what was appended; positions grow by one within a session."""

    item_id: str
    data: Any
    create_time: datetime | None = None
    position: int | None = None
    occurred_at: str | None = None

    @classmethod
    def of(cls, raw: Mapping[str, Any]) -> SessionItem:
        return cls(
            item_id=raw["item_id"],
            data=raw.get("data"),
            create_time=time_of(raw.get("create_time")),
            position=raw.get("position"),
            occurred_at=raw.get("occurred_at"),
        )


@dataclass(frozen=True)
class Session:
    """A snapshot of one conversation's record; its methods go to the server."""

    store_name: str
    session_id: str
    actor_id: str
    parent_session_id: str | None = None
    root_session_id: str | None = None
    metadata: dict[str, str] = field(default_factory=dict)
    create_time: datetime | None = None
    update_time: datetime | None = None
    last_activity_time: datetime | None = None
    last_position: int = 0
    _transport: Transport = field(default=None, repr=False, compare=False)  # type: ignore[assignment]

    @classmethod
    def of(cls, raw: Mapping[str, Any], store_name: str, transport: Transport) -> Session:
        return cls(
            store_name=store_name,
            session_id=raw["session_id"],
            actor_id=raw["actor_id"],
            parent_session_id=raw.get("parent_session_id"),
            root_session_id=raw.get("root_session_id"),
            metadata=dict(raw.get("metadata") or {}),
            create_time=time_of(raw.get("create_time")),
            update_time=time_of(raw.get("update_time")),
            last_activity_time=time_of(raw.get("last_activity_time")),
            last_position=int(raw.get("last_position") or 0),
            _transport=transport,
        )

    @property
    def _path(self) -> str:
        return f"/{COLLECTION}/{segment(self.store_name)}/sessions/{segment(self.session_id)}"

    def list_items(self, *, page_size: int | None = None, order_by: str | None = None) -> Iterator[SessionItem]:
        """Every item, the newest first unless `order_by` is `create_time asc`."""
        raws = self._transport.pages(
            f"{self._path}/items", "session_items", page_size=page_size, params={"order_by": order_by}
        )
        return (SessionItem.of(raw) for raw in raws)

    def append_items(
        self,
        items: Sequence[Any],
        *,
        expected_position: int | None = None,
        idempotency_key: str | None = None,
    ) -> list[SessionItem]:
        """Appends all or none, in this order; each element is one item's data, or a `NewItem`.

        With `expected_position` it raises `Aborted` unless that is the session's last position.
        """
        if not items:
            raise ValueError("there must be at least one item")
        entries = [item if isinstance(item, NewItem) else NewItem(item) for item in items]
        answer = self._transport.send(
            "POST",
            f"{self._path}/items:append",
            body={"items": [entry.body() for entry in entries], **given(expected_position=expected_position)},
            key=idempotency_key or str(uuid.uuid4()),
        )
        return [SessionItem.of(raw) for raw in answer.get("session_items") or ()]

    def pop_item(self) -> SessionItem | None:
        """Removes and returns the newest item."""
        answer = self._transport.send("POST", f"{self._path}/items:pop", body={}, key=str(uuid.uuid4()))
        return SessionItem.of(answer["item"]) if answer.get("item") else None

    def clear_items(self) -> None:
        self._transport.send("POST", f"{self._path}/items:clear", body={})


@dataclass(frozen=True)
class SessionStore:
    """A snapshot of a store's record; its methods go to the server."""

    name: str
    session_store_id: str
    creator_user_id: str | None = None
    create_time: datetime | None = None
    update_time: datetime | None = None
    description: str | None = None
    metadata: dict[str, str] = field(default_factory=dict)
    _transport: Transport = field(default=None, repr=False, compare=False)  # type: ignore[assignment]

    @classmethod
    def of(cls, raw: Mapping[str, Any], transport: Transport) -> SessionStore:
        store_id = str(raw.get("session_store_id") or bare(COLLECTION, raw["name"]))
        return cls(
            name=store_id,
            session_store_id=store_id,
            creator_user_id=raw.get("creator_user_id"),
            create_time=time_of(raw.get("create_time")),
            update_time=time_of(raw.get("update_time")),
            description=raw.get("description"),
            metadata=dict(raw.get("metadata") or {}),
            _transport=transport,
        )

    @property
    def _sessions(self) -> str:
        return f"/{COLLECTION}/{segment(self.name)}/sessions"

    def add(
        self,
        *,
        actor_id: str,
        session_id: str | None = None,
        parent_session_id: str | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> Session:
        """A new session; raises `AlreadyExists` when the id is taken."""
        raw = self._transport.send(
            "POST",
            self._sessions,
            params={"session_id": session_id},
            body=given(actor_id=actor_id, parent_session_id=parent_session_id, metadata=metadata),
            key=str(uuid.uuid4()),
        )
        return Session.of(raw, self.name, self._transport)

    def get(self, session_id: str) -> Session:
        """The session, whoever's it is: compare its `actor_id` before resuming it for a user."""
        return Session.of(self._transport.get(f"{self._sessions}/{segment(session_id)}"), self.name, self._transport)

    def list(
        self, *, page_size: int | None = None, filter: str | None = None, order_by: str | None = None
    ) -> Iterator[Session]:
        params = {"filter": filter, "order_by": order_by or "create_time desc"}
        raws = self._transport.pages(self._sessions, "sessions", page_size=page_size, params=params)
        return (Session.of(raw, self.name, self._transport) for raw in raws)


class SessionStores:
    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def create(
        self, name: str, *, description: str | None = None, metadata: Mapping[str, str] | None = None
    ) -> SessionStore:
        """A new store; raises `AlreadyExists` when the name is taken in this workspace."""
        raw = self._transport.send(
            "POST",
            f"/{COLLECTION}",
            params={"session_store_id": name},
            body=given(description=description, metadata=metadata),
            key=str(uuid.uuid4()),
        )
        return SessionStore.of(raw, self._transport)

    def list(self, *, page_size: int | None = None) -> Iterator[SessionStore]:
        raws = self._transport.pages(f"/{COLLECTION}", "session_stores", page_size=page_size)
        return (SessionStore.of(raw, self._transport) for raw in raws)

    def get(self, name: str) -> SessionStore:
        """By its name, or as `session-stores/<name>`."""
        raw = self._transport.get(f"/{COLLECTION}/{segment(bare(COLLECTION, name))}")
        return SessionStore.of(raw, self._transport)
