"""A LangGraph store on a memory store; `memstream.langgraph.paths` says where an item stands."""

from __future__ import annotations

from collections.abc import Iterable

from langgraph.store.base import BaseStore, Op, Result

from memstream.aio.langgraph.entries import Entries as AsyncEntries
from memstream.configured import memory_store_name
from memstream.credentials import server_url
from memstream.langgraph.connections import Connected
from memstream.langgraph.entries import Entries


def store(store: str | None = None, *, base_url: str | None = None, token: str | None = None) -> MemstreamStore:
    """The LangGraph store of a memory store, to compile a graph with.

    `store` is its name; without one AGENT_MEMORY_STORE. `base_url` and `token` default to MEMSTREAM_URL and
    MEMSTREAM_TOKEN. Raises `ValueError` when there is no memory store.
    """
    name = memory_store_name(store)
    if name is None:
        raise ValueError("there is no memory store: name one, or set AGENT_MEMORY_STORE")
    return MemstreamStore(name, base_url or server_url(None, None), token)


class MemstreamStore(Connected[Entries, AsyncEntries], BaseStore):
    """Namespaces begin with the actor: `("ana", "likes")`. So do searches and `list_namespaces(prefix=...)`, which go
    through one actor's memories and raise `ValueError` when none is named.

    A search with a query is by relevance, among the best 100; without one it is in order of namespace and key. What was
    distilled for the actor is found, too. Everything is searchable: `index` changes nothing. There is no expiry: a
    `ttl` raises `NotImplementedError`; `history_days` and erasure are the memory store's.
    """

    supports_ttl = False

    def __init__(self, store: str, base_url: str, token: str | None = None) -> None:
        Connected.__init__(
            self,
            base_url,
            token,
            blocking=lambda client: Entries(client, store),
            awaited=lambda client: AsyncEntries(client, store),
        )

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """The answers, in order. What reads is done before what writes; of two writes to one key the last is done."""
        return self.blocking.batch(ops)

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        """`batch`, to await."""
        return await self.awaited.batch(ops)
