"""Checkpoints of threads in a session store: what the checkpointer does, for one kind of client."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
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
from memstream.aio.langgraph.tails import PAGE_ITEMS, Tail
from memstream.aio.sessions import Session, SessionStore
from memstream.errors import AlreadyExists, NotFound, PermissionDenied
from memstream.langgraph.addresses import (
    NAMESPACE_KEY,
    THREAD_KEY,
    Address,
    metadata_of,
    session_id_of,
    sessions_filter,
)
from memstream.langgraph.items import (
    Data,
    Found,
    Owned,
    Refs,
    absolute,
    appends,
    channel_items,
    checkpoint_item,
    is_checkpoint,
    unpacked,
    writes_items,
)
from memstream.langgraph.recent import Recent
from memstream.langgraph.transcripts import CHANNEL as MESSAGES
from memstream.langgraph.transcripts import messages_of, new_items, reached
from memstream.records import NewItem, SessionItem

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

    session: Session
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

    async def get_tuple(self, serde: SerializerProtocol, config: RunnableConfig) -> CheckpointTuple | None:
        address = Address.of(config)
        try:
            return await self._get_tuple(serde, address)
        except NotFound:  # the session was deleted by somebody else
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
                yield await _tuple(serde, address, tail, position, data)
                left = left if left is None else left - 1

    async def delta_history(
        self, serde: SerializerProtocol, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """Each channel's writes since the nearest older checkpoint that has its value, and that value, in one walk."""
        history = {channel: DeltaChannelHistory(writes=[]) for channel in channels}
        address = Address.of(config)
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
                found = await _tuple(serde, address, tail, position, data, only=open_channels)
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

    async def delete_thread(self, thread_id: str) -> None:
        async for session in (await self._opened_store()).list(filter=sessions_filter(thread_id)):
            await self._delete(session)

    async def copy_thread(self, source_id: str, target_id: str) -> None:
        """Raises `AlreadyExists` where the target is a thread already."""
        async for session in (await self._opened_store()).list(filter=sessions_filter(source_id)):
            namespace = session.metadata.get(NAMESPACE_KEY, "")
            await session.fork(
                actor_id=target_id if session.actor_id == source_id else session.actor_id,
                session_id=session_id_of(target_id, namespace),
                metadata=metadata_of(target_id, namespace),
            )

    async def delete_for_runs(self, serde: SerializerProtocol, run_ids: Collection[str]) -> None:
        """Reads every thread of the store: which run wrote a checkpoint is known to the checkpoint alone."""
        if run_ids:
            async for session in (await self._opened_store()).list(filter=sessions_filter(None)):
                tail = Tail(session, PAGE_ITEMS)
                kept = [
                    (position, data)
                    async for position, data in tail.backwards()
                    if is_checkpoint(data) and unpacked(serde, data["metadata"]).get("run_id") not in run_ids
                ]
                await self._keep(serde, session, tail, kept)

    async def keep_latest(self, serde: SerializerProtocol, thread_id: str) -> None:
        """Of each namespace the newest checkpoint, with the older ones that its delta channels are made of."""
        async for session in (await self._opened_store()).list(filter=sessions_filter(thread_id)):
            tail = Tail(session, PAGE_ITEMS)
            kept: list[tuple[int, Data]] = []
            cursor: str | None = None
            open_channels: set[str] = set()
            async for position, data in tail.backwards():
                if not is_checkpoint(data, cursor) or (kept and not open_channels):
                    continue
                if not kept:
                    counters = unpacked(serde, data["metadata"]).get("counters_since_delta_snapshot")
                    open_channels = set(counters or ())
                kept.append((position, data))
                open_channels -= {channel for channel, refs in data["channels"].items() if refs}
                cursor = data["parent_checkpoint_id"]
                if cursor is None:
                    open_channels = set()
            await self._keep(serde, session, tail, kept)

    async def _get_tuple(self, serde: SerializerProtocol, address: Address) -> CheckpointTuple | None:
        thread = await self._find(address)
        if thread is None:
            return None
        tail = Tail(thread.session)
        async for position, data in tail.backwards():
            if is_checkpoint(data, address.checkpoint_id):
                thread.heads.put(data["checkpoint_id"], _head(position, data))
                return await _tuple(serde, address, tail, position, data)
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
            refs = await _store(thread.session, items, item, refs)
            thread.heads.put(checkpoint["id"], Head(refs, messages))

    async def _put_writes(self, address: Address, checkpoint_id: str, items: Iterable[Owned]) -> None:
        thread = await self._open(address)
        async with thread.turn:
            positions = await _append(thread.session, items)
            if thread.heads.get(checkpoint_id) is None:
                thread.early_writes.put(checkpoint_id, (thread.early_writes.get(checkpoint_id) or []) + positions)

    async def _head_of(self, thread: Thread, checkpoint_id: str | None) -> Head:
        """Nothing, where the checkpoint is the first or gone."""
        known = checkpoint_id and thread.heads.get(checkpoint_id)
        if checkpoint_id and not known:
            async for position, data in Tail(thread.session).backwards():
                if is_checkpoint(data, checkpoint_id):
                    return _head(position, data)
        return known or Head({}, [])

    async def _keep(
        self, serde: SerializerProtocol, session: Session, tail: Tail, kept: Iterable[tuple[int, Data]]
    ) -> None:
        """Leaves these checkpoints, their writes and the messages: appends them anew, then clears what stands before.

        Raises `Aborted`, with nothing lost, when somebody else appended meanwhile.
        """
        await tail.read_until(lambda: False)
        found = tail.found
        wanted = sorted(kept)
        if len(wanted) == sum(map(is_checkpoint, found.items.values())):
            return
        if not wanted:
            await self._delete(session)
            return
        last = max(found.items)
        expected: int | None = last
        items = [Owned(each.data, occurred_at=said_at) for each, said_at in _own_messages(session, found)]
        placed: dict[tuple[str, Any], list[int]] = {}
        for position, data in wanted:
            versions = unpacked(serde, data["checkpoint_data"])["channel_versions"]
            refs: Refs = {}
            for channel, positions in absolute(data["channels"], position).items():
                refs[channel] = placed.get((channel, versions[channel]), [])
                value = found.channel(channel, versions[channel], positions) if positions else None
                if value and not refs[channel]:
                    items += [Owned(piece, channel) for piece in found.pieces(value)]
            again = {name: value for name, value in data.items() if name != "early_writes"}
            refs = await _store(session, items, again, refs, expected_position=expected)
            placed |= {(channel, versions[channel]): positions for channel, positions in refs.items()}
            writes = found.writes.get(data["checkpoint_id"], {})
            await _append(session, [Owned(each) for _, item in sorted(writes.items()) for each in found.pieces(item)])
            items, expected = [], None
        await session.clear_items(through=last)
        self._known.pop(session.session_id)

    async def _delete(self, session: Session) -> None:
        self._known.pop(session.session_id)
        with suppress(NotFound):
            await session.delete(force=True)

    async def _find(self, address: Address) -> Thread | None:
        """The thread, if there is one; raises `PermissionDenied` when it is another actor's."""
        known = self._known.get(address.session_id)
        if known is None:
            try:
                session = await (await self._opened_store()).get(address.session_id)
            except NotFound:
                return None
            known = self._known.settle(address.session_id, Thread(session))
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
                return self._known.settle(address.session_id, Thread(made))
            found = await self._find(address)
        if found is None:
            raise NotFound(f"thread '{address.thread_id}' was deleted while it was being made")
        return found

    async def _opened_store(self) -> SessionStore:
        if self._store is None:
            self._store = await self._client.session_stores.get(self._store_name)
        return self._store

    async def _sessions(self, config: RunnableConfig | None) -> AsyncIterator[tuple[Address, Session]]:
        """Those that the configuration means: a namespace of a thread, all of a thread's, or all threads'."""
        if config is not None and NAMESPACE_KEY in config["configurable"]:
            address = Address.of(config)
            thread = await self._find(address)
            if thread is not None:
                yield address, thread.session
            return
        asked = None if config is None else Address.of(config)
        sessions = (await self._opened_store()).list(filter=sessions_filter(asked.thread_id if asked else None))
        async for session in sessions:
            found = Address(session.metadata[THREAD_KEY], session.actor_id, session.metadata.get(NAMESPACE_KEY, ""))
            if asked is None or asked.actor_id == session.actor_id:
                yield found, session


def _head(position: int, data: Data) -> Head:
    return Head(absolute(data["channels"], position), data.get("messages", []))


async def _tuple(
    serde: SerializerProtocol,
    address: Address,
    tail: Tail,
    position: int,
    data: Data,
    *,
    only: Collection[str] | None = None,
) -> CheckpointTuple:
    """The checkpoint that stands at `position`, with the values of all channels or `only` of these."""
    found, checkpoint_id, parent_id = tail.found, data["checkpoint_id"], data["parent_checkpoint_id"]
    checkpoint = unpacked(serde, data["checkpoint_data"])
    versions = checkpoint["channel_versions"]
    refs = {
        channel: positions
        for channel, positions in absolute(data["channels"], position).items()
        if positions and (only is None or channel in only)
    }
    early = data.get("early_writes", [])
    await tail.read([*early, *(each for positions in refs.values() for each in positions)])
    values = {}
    for channel, positions in refs.items():
        holds = partial(found.channel, channel, versions[channel], positions)
        await tail.read_until(holds)
        values[channel] = found.loaded(serde, (holds() or {})["value"])
    await tail.read_until(partial(found.has_writes, checkpoint_id, early))
    return CheckpointTuple(
        config=address.config(checkpoint_id),
        checkpoint=checkpoint | {"channel_values": values},
        metadata=unpacked(serde, data["metadata"]),
        parent_config=address.config(parent_id) if parent_id else None,
        pending_writes=found.pending_writes(serde, checkpoint_id),
    )


async def _store(
    session: Session, items: Iterable[Owned], checkpoint: Data, refs: Refs, *, expected_position: int | None = None
) -> Refs:
    """Appends the items and then the checkpoint, which refers to them besides `refs`; returns all it refers to."""
    *portions, last = appends(items)
    refs = {channel: list(positions) for channel, positions in refs.items()}
    for portion in portions:
        stored = await session.append_items([each.new() for each in portion], expected_position=expected_position)
        expected_position = None
        for owned, item in zip(portion, stored, strict=True):
            if owned.channel is not None:
                refs.setdefault(owned.channel, []).append(item.position)
    for place, owned in enumerate(last):
        if owned.channel is not None:
            refs.setdefault(owned.channel, []).append(place - len(last))
    stored = await session.append_items(
        [*(each.new() for each in last), NewItem({**checkpoint, "channels": refs})],
        expected_position=expected_position,
    )
    return absolute(refs, stored[-1].position)


async def _append(session: Session, items: Iterable[Owned]) -> list[int]:
    """Their positions."""
    return [
        stored.position
        for portion in appends(items)
        if portion
        for stored in await session.append_items([each.new() for each in portion])
    ]


def _own_messages(session: Session, found: Found) -> list[tuple[SessionItem, datetime | str | None]]:
    """The messages and when they were said, without those that a copied thread brought along."""
    messages = [item for _, item in sorted(found.messages.items())]
    made = session.create_time
    return [
        (item, item.occurred_at or item.create_time)
        for item in messages
        if not (session.forked_from_session_id and made and item.create_time and item.create_time < made)
    ]
