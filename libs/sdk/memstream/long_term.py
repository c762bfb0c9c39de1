# Made by libs/sdk/generate.py from aio/long_term.py; change that one.
"""A user's long-term memory by key, for handlers that must answer with or without it; see `memstream.stateful`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from memstream.client import AgentKitClient
from memstream.configured import memory_store_name, process_client
from memstream.errors import AlreadyExists, InvalidParameterValue, MemstreamError
from memstream.keyed import MemoryItem, is_known, path_of, prefix_of
from memstream.memories import COLLECTION, Memory, MemoryStore
from memstream.optional import OnUnavailable, bound_instance, checked, tolerated
from memstream.values import bare

SEARCH_LIMIT = 5


class LongTermMemory:
    """Facts by user and key. Where they cannot be had, reads find nothing and writes keep nothing.

    There is one warning for each cause, and `memstream.stateful.unavailable` counts; with `on_unavailable="raise"` it
    raises `MemstreamError` instead. The user `unknown`, or one whose id is blank, has no memory: nothing is asked.

    `instance_name` is the memory store, else AGENT_MEMORY_STORE, else LAKEBASE_INSTANCE_NAME. Make one in each request,
    with a `client` that has the user's token, so that nobody reads what they may not.
    """

    def __init__(
        self,
        instance_name: str | None = None,
        embedding_endpoint: str | None = None,
        embedding_dims: int | None = None,
        *,
        client: AgentKitClient | None = None,
        on_unavailable: OnUnavailable = "ignore",
    ) -> None:
        if embedding_dims is not None and embedding_endpoint is None:
            raise ValueError("embedding_dims says nothing without embedding_endpoint")
        self._store_name = memory_store_name(instance_name) or bound_instance()
        self._embedding = embedding_endpoint
        self._dims = embedding_dims
        self._client = client
        self._on_unavailable = checked(on_unavailable)

    def setup(self) -> None:
        """Makes the memory store where it is missing; may be called any number of times.

        Raises `ValueError` when the store, or the server, has another embedding model or other dimensions than asked.
        """
        with tolerated("setup", self._on_unavailable):
            stores = self._connected().memory_stores
            name = bare(COLLECTION, self._store_name or "")
            try:
                store = stores.create(name, embedding_model=self._embedding)
            except AlreadyExists:
                store = stores.get(name)
            except InvalidParameterValue as error:
                raise ValueError(error.message) from error
            self._check_embedding(store)

    def save_memory(self, user_id: str, memory_key: str, memory_data: Mapping[str, Any]) -> str:
        """Keeps the data, a JSON object, under the key in place of what was there; says so, or why not."""
        path, content = path_of(memory_key), json.dumps(dict(memory_data), ensure_ascii=False)
        if not is_known(user_id):
            return "Nothing is saved: the user is not known."
        with tolerated("save_memory", self._on_unavailable):
            self._store().put(actor_id=user_id, path=path, content=content)
            return f"Saved as {memory_key}."
        return "Nothing is saved: memory is not available."

    def search_memories(self, user_id: str, query: str, limit: int = SEARCH_LIMIT) -> list[MemoryItem]:
        """What is known of that user and answers the query, best first; also what a pipeline distilled."""
        if not is_known(user_id) or not query.strip():
            return []
        with tolerated("search_memories", self._on_unavailable):
            hits = self._store().search(actor_id=user_id, query=query, limit=limit)
            return [MemoryItem.of(hit.memory.path, hit.memory.content, hit.score) for hit in hits]
        return []

    def get_memory(self, user_id: str, memory_key: str) -> MemoryItem | None:
        path = path_of(memory_key)
        if not is_known(user_id):
            return None
        with tolerated("get_memory", self._on_unavailable):
            found = self._find(user_id, path)
            return MemoryItem.of(found.path, found.content) if found else None
        return None

    def delete_memory(self, user_id: str, memory_key: str) -> bool:
        """Whether there was one."""
        path = path_of(memory_key)
        if not is_known(user_id):
            return False
        with tolerated("delete_memory", self._on_unavailable):
            found = self._find(user_id, path)
            if found:
                found.delete()
            return found is not None
        return False

    def list_memories(self, user_id: str, prefix: str | None = None) -> list[MemoryItem]:
        """Everything that is known of that user, or what has a key that begins so."""
        if not is_known(user_id):
            return []
        with tolerated("list_memories", self._on_unavailable):
            begins = prefix_of(prefix) if prefix else None
            found = self._store().list(actor_id=user_id, path_prefix=begins)
            return [MemoryItem.of(memory.path, memory.content) for memory in found]
        return []

    def _connected(self) -> AgentKitClient:
        if self._store_name is None:
            raise MemstreamError("no memory store is configured", hint="give instance_name or set AGENT_MEMORY_STORE")
        return self._client or process_client()

    def _store(self) -> MemoryStore:
        """By its name alone, without asking for its record."""
        client = self._connected()
        name = f"{COLLECTION}/{bare(COLLECTION, self._store_name or '')}"
        return MemoryStore.of({"name": name}, client._transport)

    def _find(self, user_id: str, path: str) -> Memory | None:
        for memory in self._store().list(actor_id=user_id, path=path):
            if memory.session_id is None:
                return memory
        return None

    def _check_embedding(self, store: MemoryStore) -> None:
        if self._embedding and store.embedding_model != self._embedding:
            raise ValueError(f"the memory store's embedding model is {store.embedding_model}, not {self._embedding}")
        dims = store.embedding.dimensions if store.embedding else None
        if None not in (dims, self._dims) and dims != self._dims:
            raise ValueError(f"{self._embedding} makes vectors of {dims} dimensions, not {self._dims}")
