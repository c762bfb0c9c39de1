"""Memory stores, their entries and search."""

from __future__ import annotations

import builtins
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from memstream.transport import Transport, bare, check_page_size, segment
from memstream.values import given, time_of

COLLECTION = "memory-stores"


@dataclass(frozen=True)
class WaitFor:
    """A session's position that must be distilled before a search answers."""

    session_store: str
    session_id: str
    position: int


@dataclass(frozen=True)
class Memory:
    """A snapshot of one entry."""

    name: str
    actor_id: str
    path: str
    session_id: str | None = None
    content: str | None = None
    description: str | None = None
    source_type: str | None = None
    create_time: datetime | None = None
    update_time: datetime | None = None
    version: int | None = None
    kind: str | None = None
    valid_from: datetime | None = None
    event_date: str | None = None
    said_by: str | None = None
    evidence: tuple[dict[str, Any], ...] = ()

    @property
    def id(self) -> str:
        return self.name.rpartition("/")[2]

    @classmethod
    def of(cls, raw: Mapping[str, Any]) -> Memory:
        return cls(
            name=raw["name"],
            actor_id=raw["actor_id"],
            path=raw["path"],
            session_id=raw.get("session_id"),
            content=raw.get("content"),
            description=raw.get("description"),
            source_type=raw.get("source_type"),
            create_time=time_of(raw.get("create_time")),
            update_time=time_of(raw.get("update_time")),
            version=raw.get("version"),
            kind=raw.get("kind"),
            valid_from=time_of(raw.get("valid_from")),
            event_date=raw.get("event_date"),
            said_by=raw.get("said_by"),
            evidence=tuple(raw.get("evidence") or ()),
        )


@dataclass(frozen=True)
class MemorySearchResult:
    """A hit; a greater score is more relevant."""

    memory: Memory
    score: float | None = None


class SearchResults(builtins.list[MemorySearchResult]):
    """The hits, best first. `settled` is None without `wait_for`, else whether the position was distilled in time."""

    settled: bool | None = None
    behind: int | None = None
    reason: str | None = None


@dataclass(frozen=True)
class MemoryStore:
    """A snapshot of a store's record; its methods go to the server."""

    name: str
    display_name: str
    workspace_id: int | None = None
    owner_user_id: str | None = None
    create_time: datetime | None = None
    update_time: datetime | None = None
    description: str | None = None
    storage_backend: dict[str, Any] = field(default_factory=dict)
    _transport: Transport = field(default=None, repr=False, compare=False)  # type: ignore[assignment]

    @property
    def id(self) -> str:
        return self.name.rpartition("/")[2]

    @classmethod
    def of(cls, raw: Mapping[str, Any], transport: Transport) -> MemoryStore:
        return cls(
            name=raw["name"],
            display_name=raw.get("display_name") or bare(COLLECTION, raw["name"]),
            workspace_id=int(raw["workspace_id"]) if raw.get("workspace_id") is not None else None,
            owner_user_id=raw.get("creator_user_id") or raw.get("owner_user_id"),
            create_time=time_of(raw.get("create_time")),
            update_time=time_of(raw.get("update_time")),
            description=raw.get("description"),
            storage_backend=dict(raw.get("storage_backend") or {}),
            _transport=transport,
        )

    @property
    def _entries(self) -> str:
        return f"/{COLLECTION}/{segment(self.id)}/entries"

    def add(
        self,
        *,
        actor_id: str,
        path: str,
        content: str,
        session_id: str | None = None,
        description: str | None = None,
    ) -> Memory:
        """A new entry; raises `AlreadyExists` when the actor has one at that path."""
        raw = self._transport.send(
            "POST",
            self._entries,
            body=given(actor_id=actor_id, path=path, content=content, session_id=session_id, description=description),
            key=str(uuid.uuid4()),
        )
        return Memory.of(raw)

    def get(self, memory_id: str) -> Memory:
        return Memory.of(self._transport.get(f"{self._entries}/{segment(memory_id.rpartition('/')[2])}"))

    def list(
        self,
        *,
        actor_id: str,
        path_prefix: str | None = None,
        path: str | None = None,
        session_id: str | None = None,
        page_size: int | None = None,
    ) -> Iterator[Memory]:
        params = {"actor_id": actor_id, "path_prefix": path_prefix, "path": path, "session_id": session_id}
        raws = self._transport.pages(self._entries, "managed_memory_entries", page_size=page_size, params=params)
        return (Memory.of(raw) for raw in raws)

    def search(
        self,
        *,
        actor_id: str,
        query: str,
        limit: int | None = None,
        path_prefix: str | None = None,
        session_id: str | None = None,
        min_score: float | None = None,
        wait_for: WaitFor | None = None,
        max_wait_ms: int | None = None,
    ) -> SearchResults:
        """The actor's entries that answer the query, best first. `limit` is 1 to 100, 100 when absent.

        With `wait_for` it waits at most `max_wait_ms` until that session's position has been distilled.
        """
        check_page_size(limit, "limit")
        position = given(**wait_for.__dict__) if wait_for else None
        answer = self._transport.send(
            "POST",
            f"{self._entries}:search",
            body=given(
                actor_id=actor_id,
                query=query,
                page_size=limit or 100,
                path_prefix=path_prefix,
                session_id=session_id,
                min_score=min_score,
                wait_for=position,
                max_wait_ms=max_wait_ms,
            ),
            repeatable=True,
        )
        found = SearchResults(
            MemorySearchResult(Memory.of(hit["managed_memory_entry"]), hit.get("score"))
            for hit in answer.get("results") or ()
        )
        found.settled, found.behind, found.reason = (answer.get(name) for name in ("settled", "behind", "reason"))
        return found


class MemoryStores:
    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def create(self, display_name: str, *, description: str | None = None) -> MemoryStore:
        """A new store; raises `AlreadyExists` when the name is taken in this workspace."""
        raw = self._transport.send(
            "POST",
            f"/{COLLECTION}",
            params={"managed_memory_store_id": display_name},
            body=given(display_name=display_name, description=description),
            key=str(uuid.uuid4()),
        )
        return MemoryStore.of(raw, self._transport)

    def list(self, *, page_size: int | None = None) -> Iterator[MemoryStore]:
        raws = self._transport.pages(f"/{COLLECTION}", "managed_memory_stores", page_size=page_size)
        return (MemoryStore.of(raw, self._transport) for raw in raws)

    def get(self, store_id: str) -> MemoryStore:
        """By its id, or as `memory-stores/<id>`."""
        raw = self._transport.get(f"/{COLLECTION}/{segment(bare(COLLECTION, store_id))}")
        return MemoryStore.of(raw, self._transport)
