"""A LangGraph checkpointer on a session store: a thread is a session."""

from __future__ import annotations

import logging
import random
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from functools import cache
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    DeltaChannelHistory,
)
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.base import SerializerProtocol

from memstream.aio.langgraph.threads import Threads as AsyncThreads
from memstream.configured import session_store_name
from memstream.credentials import server_url
from memstream.langgraph.connections import Connected
from memstream.langgraph.threads import Threads

logger = logging.getLogger(__name__)


def checkpointer(
    store: str | None = None,
    *,
    transcript: bool = False,
    base_url: str | None = None,
    token: str | None = None,
) -> MemstreamSaver | InMemorySaver:
    """The checkpointer of a session store, the same object for the same store and server.

    `store` is its name; without one AGENT_SESSION_STORE, and without that threads are kept in this process alone, with
    a warning. With `transcript` what the user and the assistant say (the channel `messages`) is appended as readable
    items too, each message once, so that a pipeline on the store distils it. `base_url` and `token` default to
    MEMSTREAM_URL and MEMSTREAM_TOKEN; a checkpointer with a token of its own is shared with nobody.

    It serves blocking and asynchronous graphs, from any thread and event loop. `with` or `async with` closes its
    connections at the end; it may be used on, and then makes new ones.
    """
    name = session_store_name(store)
    if name is None:
        return _in_process()
    url = base_url or server_url(None, None)
    return MemstreamSaver(name, url, token, transcript=transcript) if token else _shared(name, url, transcript)


class MemstreamSaver(Connected[Threads, AsyncThreads], BaseCheckpointSaver[str]):
    """Raises `PermissionDenied` when the actor of a configuration is not that of the thread; see `thread_config`.

    `serde` may encrypt the state; a transcript stays readable, because it is there to be distilled.
    """

    def __init__(
        self,
        store: str,
        base_url: str,
        token: str | None = None,
        *,
        transcript: bool = False,
        serde: SerializerProtocol | None = None,
    ) -> None:
        Connected.__init__(
            self,
            base_url,
            token,
            blocking=lambda client: Threads(client, store, transcript=transcript),
            awaited=lambda client: AsyncThreads(client, store, transcript=transcript),
        )
        BaseCheckpointSaver.__init__(self, serde=serde)

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """The checkpoint that the configuration names, or the newest. Its cost does not grow with the thread; that of
        an older one grows with the distance from the end."""
        return self.blocking.get_tuple(self.serde, config)

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """`get_tuple`, to await."""
        return await self.awaited.get_tuple(self.serde, config)

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        """The checkpoints of a namespace, of a thread (no `checkpoint_ns`) or of the store (no configuration)."""
        yield from self.blocking.tuples(self.serde, config, filter=filter, before=before, limit=limit)

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        """`list`, to go through by `async for`."""
        found = self.awaited.tuples(self.serde, config, filter=filter, before=before, limit=limit)
        async for each in found:
            yield each

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Stores a checkpoint and the channels that changed in one append, up to about 11 MiB of them."""
        return self.blocking.put(self.serde, config, checkpoint, metadata, new_versions)

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """`put`, to await."""
        return await self.awaited.put(self.serde, config, checkpoint, metadata, new_versions)

    def put_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """Stores what a task wrote. A repeat counts once."""
        self.blocking.put_writes(self.serde, config, writes, task_id, task_path)

    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """`put_writes`, to await."""
        await self.awaited.put_writes(self.serde, config, writes, task_id, task_path)

    def delete_thread(self, thread_id: str) -> None:
        """Deletes the thread's sessions: every namespace, and the transcript; memories are kept."""
        self.blocking.upkeep.delete(thread_id)

    async def adelete_thread(self, thread_id: str) -> None:
        """`delete_thread`, to await."""
        await self.awaited.upkeep.delete(thread_id)

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Deletes what those runs wrote. It reads every thread of the store; raises `Aborted` for one in use."""
        if run_ids:
            self.blocking.upkeep.delete_for_runs(self.serde, run_ids)

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        """`delete_for_runs`, to await."""
        if run_ids:
            await self.awaited.upkeep.delete_for_runs(self.serde, run_ids)

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """A new thread that begins as a copy; raises `AlreadyExists` when the target is there.

        It belongs to the source's actor, or to itself where the source did. What was said before the copy is not
        distilled again.
        """
        self.blocking.upkeep.copy(source_thread_id, target_thread_id)

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """`copy_thread`, to await."""
        await self.awaited.upkeep.copy(source_thread_id, target_thread_id)

    def prune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Leaves the newest checkpoint of each namespace (and what its delta channels are made of), or nothing.

        Messages of the transcript are kept. Raises `Aborted`, with nothing lost, for a thread in use.
        """
        for thread_id in _prunable(thread_ids, strategy):
            if strategy == "delete":
                self.delete_thread(thread_id)
            else:
                self.blocking.upkeep.keep_latest(self.serde, thread_id)

    async def aprune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """`prune`, to await."""
        for thread_id in _prunable(thread_ids, strategy):
            if strategy == "delete":
                await self.adelete_thread(thread_id)
            else:
                await self.awaited.upkeep.keep_latest(self.serde, thread_id)

    def get_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """What delta channels are made of, in one walk from the end."""
        return self.blocking.delta_history(self.serde, config, channels)

    async def aget_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """`get_delta_channel_history`, to await."""
        return await self.awaited.delta_history(self.serde, config, channels)

    def get_next_version(self, current: str | int | float | None, channel: None) -> str:
        """A counter and a random part, so that two branches never write the same version."""
        number = int(str(current).partition(".")[0]) if current is not None else 0
        return f"{number + 1:032}.{random.random():016}"  # noqa: S311 - not a secret


@cache
def _shared(store: str, base_url: str, transcript: bool) -> MemstreamSaver:
    return MemstreamSaver(store, base_url, transcript=transcript)


@cache
def _in_process() -> InMemorySaver:
    logger.warning("no session store is configured: threads are kept in this process alone (AGENT_SESSION_STORE)")
    return InMemorySaver()


def _prunable(thread_ids: Sequence[str], strategy: str) -> Sequence[str]:
    if strategy not in ("keep_latest", "delete"):
        raise ValueError(f"strategy must be keep_latest or delete, not '{strategy}'")
    return thread_ids
