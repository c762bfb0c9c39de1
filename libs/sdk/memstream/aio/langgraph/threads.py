"""Checkpoints of threads in a session store: what the checkpointer does, for one kind of client."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    DeltaChannelHistory,
    get_serializable_checkpoint_metadata,
)
from langgraph.checkpoint.serde.base import SerializerProtocol

from memstream.aio.client import AsyncAgentKitClient
from memstream.aio.fenced import Fenced
from memstream.aio.langgraph.appends import append, store_checkpoint
from memstream.aio.langgraph.tails import PAGE_ITEMS, Tail
from memstream.aio.langgraph.upkeep import Upkeep
from memstream.aio.sessions import Session, SessionStore
from memstream.errors import AlreadyExists, NotFound, PermissionDenied
from memstream.langgraph.addresses import (
    NAMESPACE_KEY,
    THREAD_KEY,
    Address,
    sessions_filter,
)
from memstream.langgraph.items import (
    Data,
    Owned,
    Refs,
    absolute,
    channel_items,
    checkpoint_item,
    is_checkpoint,
    located,
    unpacked,
    writes_items,
)
from memstream.langgraph.recent import Recent
from memstream.langgraph.transcripts import CHANNEL as MESSAGES
from memstream.langgraph.transcripts import messages_of, new_items, reached

KNOWN_THREADS = 10_000
KNOWN_CHECKPOINTS = 64  # of one thread


@dataclass
class Head:
    """What the next checkpoint must know of the one before: where its channels stand, and which messages it had."""

    channels: Refs
    messages: list[str]


@dataclass
class Thread:
    """One namespace of a thread, as this process knows it. Its appends take turns, so that it is known which writes
    were stored before their checkpoint."""

    session: Fenced
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    heads: Recent[str, Head] = field(default_factory=lambda: Recent(KNOWN_CHECKPOINTS))
    early_writes: Recent[str, list[int]] = field(default_factory=lambda: Recent(KNOWN_CHECKPOINTS))


class Threads:
    def __init__(self, client: AsyncAgentKitClient, store: str, *, transcript: bool) -> None:
        self._client = client
        self._store_name = store
        self._store: SessionStore | None = None
        self._has_transcript = transcript
        self._known: Recent[str, Thread] = Recent(KNOWN_THREADS)
        self.upkeep = Upkeep(self._opened_store, self._known.pop)

    async def get_tuple(self, serde: SerializerProtocol, config: RunnableConfig) -> CheckpointTuple | None:
        address = Address.of(config)
        try:
            return await self._get_tuple(serde, address)
        except NotFound:  # the session was deleted by somebody else, and perhaps made again
            if self._known.pop(address.session_id) is None:
                raise
            return await self._get_tuple(serde, address)

    async def put(
        self,
        serde: SerializerProtocol,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        address = Address.of(config)
        item = checkpoint_item(
            serde, checkpoint, get_serializable_checkpoint_metadata(config, metadata), address.checkpoint_id
        )
        values = checkpoint["channel_values"]
        new: dict[str, list[Owned]] = {
            channel: channel_items(serde, channel, version, values[channel]) if channel in values else []
            for channel, version in new_versions.items()
        }
        try:
            await self._put(address, checkpoint, item, new)
        except NotFound:
            if self._known.pop(address.session_id) is None:
                raise
            await self._put(address, checkpoint, item, new)
        return address.config(checkpoint["id"])

    async def put_writes(
        self,
        serde: SerializerProtocol,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str,
    ) -> None:
        address = Address.of(config)
        if address.checkpoint_id is None:
            raise ValueError("writes belong to a checkpoint: the configuration has no checkpoint_id")
        items = writes_items(serde, address.checkpoint_id, writes, task_id, task_path)
        try:
            await self._put_writes(address, address.checkpoint_id, items)
        except NotFound:
            if self._known.pop(address.session_id) is None:
                raise
            await self._put_writes(address, address.checkpoint_id, items)

    async def tuples(
        self,
        serde: SerializerProtocol,
        config: RunnableConfig | None,
        *,
        filter: Mapping[str, Any] | None,
        before: RunnableConfig | None,
        limit: int | None,
    ) -> AsyncIterator[CheckpointTuple]:
        """The checkpoints, the newest first, namespace by namespace."""
        wanted = (config or {}).get("configurable", {}).get("checkpoint_id")
        bound = (before or {}).get("configurable", {}).get("checkpoint_id")
        left = limit
        async for address, session in self._sessions(config):
            seen = set()
            tail = Tail(session, PAGE_ITEMS if limit is None else min(PAGE_ITEMS, max(1, limit * 4)))
            async for position, data in tail.backwards():
                if left is not None and left <= 0:
                    return
                if not is_checkpoint(data, wanted) or data["checkpoint_id"] in seen:
                    continue
                seen.add(data["checkpoint_id"])
                if bound is not None and data["checkpoint_id"] >= bound:
                    continue
                said = unpacked(serde, data["metadata"])
                if any(said.get(name) != value for name, value in (filter or {}).items()):
                    continue
                read, _ = await _read(serde, address, tail, position, data)
                yield read
                left = left if left is None else left - 1

    async def delta_history(
        self, serde: SerializerProtocol, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """Each channel's writes since the nearest older checkpoint that has its value, and that value, in one walk."""
        address = Address.of(config)
        try:
            return await self._delta_history(serde, address, channels)
        except NotFound:
            if self._known.pop(address.session_id) is None:
                raise
            return await self._delta_history(serde, address, channels)

    async def _delta_history(
        self, serde: SerializerProtocol, address: Address, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        history = {channel: DeltaChannelHistory(writes=[]) for channel in channels}
        thread = await self._find(address)
        if thread is None:
            return history
        open_channels = set(channels)
        tail = Tail(thread.session, PAGE_ITEMS)
        cursor, is_target = address.checkpoint_id, True
        async for position, data in tail.backwards():
            if not open_channels or not is_checkpoint(data, cursor):
                continue
            if not is_target:
                found, _ = await _read(serde, address, tail, position, data, only=open_channels)
                for write in reversed(found.pending_writes or ()):
                    if write[1] in open_channels:
                        history[write[1]]["writes"].insert(0, write)
                for channel in open_channels & set(found.checkpoint["channel_values"]):
                    history[channel]["seed"] = found.checkpoint["channel_values"][channel]
                    open_channels.discard(channel)
            cursor, is_target = data["parent_checkpoint_id"], False
            if cursor is None:
                break
        return history

    async def _get_tuple(self, serde: SerializerProtocol, address: Address) -> CheckpointTuple | None:
        thread = await self._find(address)
        if thread is None:
            return None
        tail = Tail(thread.session)
        async for position, data in tail.backwards():
            if is_checkpoint(data, address.checkpoint_id):
                read, refs = await _read(serde, address, tail, position, data)
                thread.heads.put(data["checkpoint_id"], Head(refs, data.get("messages", [])))
                return read
        return None

    async def _put(self, address: Address, checkpoint: Checkpoint, item: Data, new: dict[str, list[Owned]]) -> None:
        thread = await self._open(address)
        async with thread.turn:
            head = await self._head_of(thread, address.checkpoint_id)
            refs = {
                channel: positions
                for channel, positions in head.channels.items()
                if channel in checkpoint["channel_versions"] and channel not in new
            }
            items = [owned for items in new.values() for owned in items]
            messages = head.messages
            if self._has_transcript and not address.namespace and MESSAGES in new:
                said = messages_of(checkpoint["channel_values"])
                items += map(Owned, new_items(said, messages))
                messages = reached(said)
            early = thread.early_writes.pop(checkpoint["id"])
            item |= {"early_writes": early} if early else {}
            item |= {"messages": messages} if messages else {}
            refs |= {channel: [] for channel in new}
            refs = await store_checkpoint(thread.session, items, item, refs)
            thread.heads.put(checkpoint["id"], Head(refs, messages))

    async def _put_writes(self, address: Address, checkpoint_id: str, items: Iterable[Owned]) -> None:
        thread = await self._open(address)
        async with thread.turn:
            positions = await append(thread.session, items)
            if thread.heads.get(checkpoint_id) is None:
                thread.early_writes.put(checkpoint_id, (thread.early_writes.get(checkpoint_id) or []) + positions)

    async def _head_of(self, thread: Thread, checkpoint_id: str | None) -> Head:
        """Nothing, where the checkpoint is the first or gone."""
        known = checkpoint_id and thread.heads.get(checkpoint_id)
        if checkpoint_id and not known:
            async for position, data in Tail(thread.session).backwards():
                if is_checkpoint(data, checkpoint_id):
                    return Head(absolute(data["channels"], position), data.get("messages", []))
        return known or Head({}, [])

    async def _find(self, address: Address, *, is_asked: bool = False) -> Thread | None:
        """The thread, if there is one; raises `PermissionDenied` when it is another actor's.

        With `is_asked` the server says so, also where this process knows the thread.
        """
        known = self._known.get(address.session_id)
        if known is None or is_asked or not known.session.is_sure:
            try:
                record = await (await self._opened_store()).get(address.session_id)
            except NotFound:
                self._known.pop(address.session_id)
                return None
            if known is not None and known.session.record.create_time != record.create_time:
                self._known.pop(address.session_id)
            known = self._known.settle(address.session_id, Thread(Fenced(record)))
        if known.session.actor_id != address.actor_id:
            raise PermissionDenied(
                f"thread '{address.thread_id}' does not belong to actor '{address.actor_id}'",
                hint="thread_config(session_id, actor) names the actor; without one it is the thread id",
            )
        return known

    async def _open(self, address: Address) -> Thread:
        """The thread, made where there is none."""
        found = await self._find(address)
        if found is None:
            store = await self._opened_store()
            with suppress(AlreadyExists):  # by somebody else, just now
                made = await store.add(
                    actor_id=address.actor_id, session_id=address.session_id, metadata=address.metadata
                )
                return self._known.settle(address.session_id, Thread(Fenced(made)))
            found = await self._find(address)
        if found is None:
            raise NotFound(f"thread '{address.thread_id}' was deleted while it was being made")
        return found

    async def _opened_store(self) -> SessionStore:
        if self._store is None:
            self._store = await self._client.session_stores.get(self._store_name)
        return self._store

    async def _sessions(self, config: RunnableConfig | None) -> AsyncIterator[tuple[Address, Session | Fenced]]:
        """Those that the configuration means: a namespace of a thread, all of a thread's, or all threads'."""
        if config is not None and NAMESPACE_KEY in config.get("configurable", {}):
            address = Address.of(config)
            thread = await self._find(address, is_asked=True)
            if thread is not None:
                yield address, thread.session
            return
        asked = None if config is None else Address.of(config)
        sessions = (await self._opened_store()).list(filter=sessions_filter(asked.thread_id if asked else None))
        async for session in sessions:
            found = Address(session.metadata[THREAD_KEY], session.actor_id, session.metadata.get(NAMESPACE_KEY, ""))
            if asked is None or asked.actor_id == session.actor_id:
                yield found, session


async def _read(
    serde: SerializerProtocol,
    address: Address,
    tail: Tail,
    position: int,
    data: Data,
    *,
    only: Collection[str] | None = None,
) -> tuple[CheckpointTuple, Refs]:
    """The checkpoint that stands at `position`, with the values of all channels or `only` of these, and where they are.

    Raises `MemstreamError` when a value is not there any more.
    """
    found, checkpoint_id, parent_id = tail.found, data["checkpoint_id"], data["parent_checkpoint_id"]
    checkpoint = unpacked(serde, data["checkpoint_data"])
    versions = checkpoint["channel_versions"]
    refs = absolute(data["channels"], position)
    wanted = {channel: places for channel, places in refs.items() if places and (only is None or channel in only)}
    early = data.get("early_writes", [])
    await tail.read([*early, *(place for places in wanted.values() for place in places)])
    values = {}
    for channel, places in wanted.items():
        locate = partial(found.locate, channel, versions[channel], places)
        await tail.read_until(locate)
        refs[channel] = located(locate(), channel)
        values[channel] = found.loaded(serde, found.items[refs[channel][-1]]["value"])
    await tail.read_until(partial(found.has_writes, checkpoint_id, early))
    read = CheckpointTuple(
        config=address.config(checkpoint_id),
        checkpoint=checkpoint | {"channel_values": values},
        metadata=unpacked(serde, data["metadata"]),
        parent_config=address.config(parent_id) if parent_id else None,
        pending_writes=found.pending_writes(serde, checkpoint_id),
    )
    return read, refs
