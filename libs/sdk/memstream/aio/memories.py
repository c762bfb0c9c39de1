"""Memory stores, their entries and search."""

from __future__ import annotations

import builtins
import warnings
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from datetime import date, datetime
from typing import Any, ClassVar

from memstream.aio.stores import Bound, Store
from memstream.aio.transport import Transport
from memstream.records import AnalysisProgress, EmbeddingProgress, Evidence, MemoryChange, MemoryVersion, WaitFor
from memstream.values import (
    PAGE_MAX,
    bare,
    changes,
    check_page_size,
    given,
    last_segment,
    moment,
    one_of,
    segment,
    snapshot,
)

COLLECTION = "memory-stores"
MAX_WAIT_MS = 30_000
WRITE_MODE = "MANAGED_MEMORY_ENTRY_WRITE_MODE_"
WRITE_MODES = ("EXCLUSIVE", "OVERWRITE", "APPEND")

Time = datetime | str


@dataclass(frozen=True)
class Memory(Bound):
    """A snapshot of one entry as it is now, or as it was when `as_of` or `known_at` was asked.

    `kind` is `state` (one value at a time), `item` (one of many) or `event` (it happened at `event_date`). `valid_from`
    is when it became true as told. A write answers without `evidence`.
    """

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
    event_date: date | None = None
    said_by: str | None = None
    evidence: tuple[Evidence, ...] = ()

    @classmethod
    def of(cls, raw: Mapping[str, Any], transport: Transport) -> Memory:
        return snapshot(cls, raw, evidence=Evidence.all_of(raw), _transport=transport)

    @property
    def id(self) -> str:
        return last_segment(self.name)

    @property
    def _path(self) -> str:
        store_id, _, entry_id = self.name.removeprefix(f"{COLLECTION}/").partition("/entries/")
        return f"/{COLLECTION}/{segment(store_id)}/entries/{segment(entry_id)}"

    async def update(self, *, content: str | None = None, description: str | None = None) -> Memory:
        """Changes what is given, as a new version; returns the new snapshot."""
        mask, body = changes(content=content, description=description)
        return Memory.of(await self._transport.send("PATCH", self._path, params=mask, body=body), self._transport)

    async def delete(self) -> None:
        """With all of its versions."""
        await self._transport.send("DELETE", self._path)

    async def versions(self, *, page_size: int | None = None) -> AsyncIterator[MemoryVersion]:
        """What the entry has said, the current version first; `page_size` (1 to 100) a request."""
        async for raw in self._transport.pages(f"{self._path}/versions", "versions", page_size=page_size):
            yield MemoryVersion.of(raw)

    async def restore(self, version: int) -> Memory:
        """Says again what a version said, as a new version; returns the new snapshot."""
        raw = await self._transport.create(f"{self._path}:restore", body={"version": version})
        return Memory.of(raw, self._transport)


@dataclass(frozen=True)
class MemorySearchResult:
    """A hit; a greater score is more relevant."""

    memory: Memory
    score: float | None = None


class SearchResults(builtins.list[MemorySearchResult]):
    """The hits, best first. After `wait_for` also whether all was distilled in time, how many items not, and why."""

    settled: bool | None = None
    behind: int | None = None
    reason: str | None = None

    @classmethod
    def of(cls, answer: Mapping[str, Any], transport: Transport) -> SearchResults:
        if "results" in answer:
            found = [(hit["managed_memory_entry"], hit.get("score")) for hit in answer["results"]]
        else:
            found = [(raw, None) for raw in answer.get("managed_memory_entries") or ()]
        results = cls(MemorySearchResult(Memory.of(raw, transport), score) for raw, score in found)
        results.settled, results.behind, results.reason = map(answer.get, ("settled", "behind", "reason"))
        return results


@dataclass(frozen=True)
class MemoryStore(Store):
    """A snapshot of a store's record. Superseded versions are kept for `history_days`; None keeps them.

    Lists leave out `analysis` and `embedding`.
    """

    _permissions: ClassVar[str] = "memory_store_permissions"

    name: str
    display_name: str
    workspace_id: int | None = None
    storage_backend: dict[str, Any] = field(default_factory=dict, hash=False)
    owner_user_id: str | None = None
    create_time: datetime | None = None
    update_time: datetime | None = None
    description: str | None = None
    metadata: dict[str, str] = field(default_factory=dict, hash=False)
    language: str | None = None
    embedding_model: str | None = None
    history_days: int | None = None
    analysis: AnalysisProgress | None = None
    embedding: EmbeddingProgress | None = None

    @classmethod
    def of(cls, raw: Mapping[str, Any], transport: Transport) -> MemoryStore:
        return snapshot(
            cls,
            raw,
            display_name=raw.get("display_name") or bare(COLLECTION, raw["name"]),
            owner_user_id=raw.get("creator_user_id") or raw.get("owner_user_id"),
            analysis=snapshot(AnalysisProgress, raw["analysis"]) if raw.get("analysis") else None,
            embedding=snapshot(EmbeddingProgress, raw["embedding"]) if raw.get("embedding") else None,
            _transport=transport,
        )

    @property
    def id(self) -> str:
        return last_segment(self.name)

    @property
    def _path(self) -> str:
        return f"/{COLLECTION}/{segment(self.id)}"

    async def update(
        self,
        *,
        display_name: str | None = None,
        description: str | None = None,
        metadata: Mapping[str, str] | None = None,
        language: str | None = None,
        embedding_model: str | None = None,
        history_days: int | None = None,
        clear: Sequence[str] = (),
    ) -> MemoryStore:
        """Changes what is given and empties the fields named in `clear`; returns the new snapshot.

        `display_name` is the store's id and cannot become another. For the store's creator or an admin.
        """
        mask, body = changes(
            clear,
            display_name=display_name,
            description=description,
            metadata=metadata,
            language=language,
            embedding_model=embedding_model,
            history_days=history_days,
        )
        raw = await self._transport.send("PATCH", self._path, params=mask, body=body)
        return MemoryStore.of(raw, self._transport)

    async def delete(self) -> None:
        """With everything in it. For the store's creator or an admin."""
        await self._transport.send("DELETE", self._path)

    async def add(
        self,
        *,
        actor_id: str,
        path: str,
        content: str,
        session_id: str | None = None,
        description: str | None = None,
        source_type: str | None = None,
        write_mode: str | None = None,
        memory_id: str | None = None,
    ) -> Memory:
        """A new entry; raises `AlreadyExists` when the actor has one at that path (and session).

        `path` is such as `/preferences/tea.md`, at most 1 KiB; `content` is at most 1 MiB. `write_mode` is deprecated:
        `put` overwrites or appends.
        """
        if write_mode is not None:
            warnings.warn("write_mode is deprecated: use put", DeprecationWarning, stacklevel=2)
            mode = one_of("write_mode", write_mode.removeprefix(WRITE_MODE), WRITE_MODES)
            if mode != "EXCLUSIVE":
                return await self.put(
                    actor_id=actor_id,
                    path=path,
                    content=content,
                    description=description,
                    session_id=session_id,
                    append=mode == "APPEND",
                )
        if memory_id is not None:
            segment(memory_id)
        raw = await self._transport.create(
            f"{self._path}/entries",
            params={"managed_memory_entry_id": memory_id},
            body=given(
                actor_id=actor_id,
                path=path,
                content=content,
                session_id=session_id,
                description=description,
                source_type=source_type,
            ),
        )
        return Memory.of(raw, self._transport)

    async def put(
        self,
        *,
        actor_id: str,
        path: str,
        content: str,
        description: str | None = None,
        session_id: str | None = None,
        append: bool = False,
        expected_version: int | None = None,
    ) -> Memory:
        """Creates the entry at that path (and session) or gives it a new version, in one step.

        With `append` the lines are added, unless they stand there already. Without a description the old one stays.
        With `expected_version` it raises `Aborted` unless that is the entry's version (0 when there is none).
        """
        raw = await self._transport.create(
            f"{self._path}/entries:put",
            body=given(
                actor_id=actor_id,
                path=path,
                content=content,
                description=description,
                session_id=session_id,
                append=append or None,
                expected_version=expected_version,
            ),
        )
        return Memory.of(raw, self._transport)

    async def get(
        self,
        memory_id: str,
        *,
        read_mask: str | Sequence[str] | None = None,
        as_of: Time | None = None,
        known_at: Time | None = None,
    ) -> Memory:
        """An entry by its id or name; `as_of` as it was true then, `known_at` as it was known then."""
        entry_id = segment(bare(f"{self.name}/entries", memory_id))
        params = {"read_mask": _mask(read_mask), "as_of": moment(as_of), "known_at": moment(known_at)}
        return Memory.of(await self._transport.get(f"{self._path}/entries/{entry_id}", params), self._transport)

    async def list(
        self,
        *,
        actor_id: str,
        path_prefix: str | None = None,
        path: str | None = None,
        session_id: str | None = None,
        page_size: int | None = None,
        read_mask: str | Sequence[str] | None = None,
        as_of: Time | None = None,
        known_at: Time | None = None,
        wait_for: WaitFor | None = None,
        max_wait_ms: int | None = None,
    ) -> AsyncIterator[Memory]:
        """The actor's entries by path; `page_size` (1 to 100) a request.

        `path` is one exact path, in every session; `path_prefix` is how paths begin; `session_id` leaves out what
        belongs to no session. `read_mask` names the fields to read. `as_of` and `known_at` as for `get`, `wait_for`
        and `max_wait_ms` as for `search`.
        """
        params = {
            "actor_id": actor_id,
            "path_prefix": path_prefix,
            "path": path,
            "session_id": session_id,
            "read_mask": _mask(read_mask),
            "as_of": moment(as_of),
            "known_at": moment(known_at),
        }
        waiting = {f"wait_for_{name}": value for name, value in wait_for.body().items()} if wait_for else {}
        raws = self._transport.pages(
            f"{self._path}/entries",
            "managed_memory_entries",
            page_size=page_size,
            params=params,
            first={**waiting, "max_wait_ms": max_wait_ms},
            wait_s=_wait_s(wait_for, max_wait_ms),
        )
        async for raw in raws:
            yield Memory.of(raw, self._transport)

    async def search(
        self,
        *,
        actor_id: str,
        query: str,
        limit: int | None = None,
        path_prefix: str | None = None,
        session_id: str | None = None,
        read_mask: str | Sequence[str] | None = None,
        min_score: float | None = None,
        as_of: Time | None = None,
        known_at: Time | None = None,
        wait_for: WaitFor | None = None,
        max_wait_ms: int | None = None,
    ) -> SearchResults:
        """The actor's entries that answer the query, best first; `limit` is 1 to 100, 100 when absent.

        The query may be the user's own words. `min_score` is 0 to 1. With `wait_for` it answers when that position is
        distilled, or after `max_wait_ms` (at most 30,000) with what there is and `settled` False.
        """
        check_page_size(limit, "limit")
        answer = await self._transport.send(
            "POST",
            f"{self._path}/entries:search",
            body=given(
                actor_id=actor_id,
                query=query,
                page_size=limit or PAGE_MAX,
                path_prefix=path_prefix,
                session_id=session_id,
                read_mask=_mask(read_mask),
                min_score=min_score,
                as_of=moment(as_of),
                known_at=moment(known_at),
                wait_for=wait_for.body() if wait_for else None,
                max_wait_ms=max_wait_ms,
            ),
            is_safe=True,
            wait_s=_wait_s(wait_for, max_wait_ms),
        )
        return SearchResults.of(answer, self._transport)

    async def watch(
        self, *, actor_id: str | None = None, last_event_id: str | None = None
    ) -> AsyncGenerator[MemoryChange, None]:
        """What happens to the entries, of one actor or of all, as it happens and for ever; close it to end.

        The first event is `ready`, or after `last_event_id` (the `id` of an event of the last 7 days) `reset` when
        changes since then are lost. A cut connection is made again and goes on after the last event.
        """
        path, params = f"{self._path}/entries:watch", {"actor_id": actor_id}
        is_ready = False
        async with aclosing(self._transport.events(path, params=params, after=last_event_id)) as events:
            async for event in events:
                if event.name != "ready" or not is_ready:
                    yield snapshot(MemoryChange, event.data, id=event.id, change=event.name)
                is_ready = True


class MemoryStores:
    """`AgentKitClient.memory_stores`."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def create(
        self,
        display_name: str,
        *,
        description: str | None = None,
        metadata: Mapping[str, str] | None = None,
        language: str | None = None,
        embedding_model: str | None = None,
        history_days: int | None = None,
    ) -> MemoryStore:
        """A new store; raises `AlreadyExists` when the name is taken in this workspace.

        A name has 3 to 56 of a-z, 0-9 and `-`, begins with a letter and does not end with `-`. `language` is that of
        its search, such as `english`.
        """
        raw = await self._transport.create(
            f"/{COLLECTION}",
            params={"managed_memory_store_id": display_name},
            body=given(
                display_name=display_name,
                description=description,
                metadata=metadata,
                language=language,
                embedding_model=embedding_model,
                history_days=history_days,
            ),
        )
        return MemoryStore.of(raw, self._transport)

    async def list(self, *, page_size: int | None = None) -> AsyncIterator[MemoryStore]:
        """The stores that the caller may see; `page_size` (1 to 100) a request."""
        async for raw in self._transport.pages(f"/{COLLECTION}", "managed_memory_stores", page_size=page_size):
            yield MemoryStore.of(raw, self._transport)

    async def get(self, store_id: str) -> MemoryStore:
        """By its id, or as `memory-stores/<id>`."""
        raw = await self._transport.get(f"/{COLLECTION}/{segment(bare(COLLECTION, store_id))}")
        return MemoryStore.of(raw, self._transport)


def _wait_s(wait_for: WaitFor | None, max_wait_ms: int | None) -> float:
    """How much longer than usual the server may take; it has a default of its own for how long it waits."""
    if max_wait_ms is None:
        max_wait_ms = MAX_WAIT_MS if wait_for else 0
    return max_wait_ms / 1000


def _mask(fields: str | Sequence[str] | None) -> str | None:
    return fields if fields is None or isinstance(fields, str) else ",".join(fields)
