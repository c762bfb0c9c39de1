# Made by libs/sdk/generate.py from aio/langgraph/entries.py; change that one.
"""Operations of a LangGraph store as those of a memory store; `memstream.langgraph.paths` says how they correspond."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from itertools import islice

from langgraph.store.base import (
    GetOp,
    Item,
    ListNamespacesOp,
    Op,
    PutOp,
    Result,
    SearchItem,
    SearchOp,
    validate_op_namespace,
)

from memstream.client import AgentKitClient
from memstream.langgraph.paths import (
    actor_of,
    item_of,
    matches,
    meets,
    namespace_of,
    path_of,
    prefix_of,
    search_item_of,
)
from memstream.memories import Memory, MemoryStore
from memstream.values import PAGE_MAX

IDENTITY = ("name", "actor_id", "path", "session_id")


class Entries:
    def __init__(self, client: AgentKitClient, store: str) -> None:
        self._client = client
        self._store_name = store
        self._store: MemoryStore | None = None

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """The answers, in order. What reads is done before what writes; of two writes to one key the last is done."""
        results: list[Result] = []
        puts: dict[tuple[tuple[str, ...], str], PutOp] = {}
        for op in ops:
            validate_op_namespace(op)
            if isinstance(op, PutOp):
                puts[op.namespace, op.key] = op
                results.append(None)
            elif isinstance(op, GetOp):
                results.append(self._get(op))
            elif isinstance(op, SearchOp):
                results.append(self._search(op))
            else:
                results.append(self._namespaces(op))
        for put in puts.values():
            self._put(put)
        return results

    def _opened(self) -> MemoryStore:
        if self._store is None:
            self._store = self._client.memory_stores.get(self._store_name)
        return self._store

    def _entry(self, namespace: tuple[str, ...], key: str) -> Memory | None:
        entries = (self._opened()).list(actor_id=actor_of(namespace), path=path_of(namespace, key))
        for memory in entries:
            if memory.session_id is None:
                return memory
        return None

    def _get(self, op: GetOp) -> Item | None:
        found = self._entry(op.namespace, op.key)
        return None if found is None else item_of(found)

    def _put(self, op: PutOp) -> None:
        if op.value is None:
            found = self._entry(op.namespace, op.key)
            if found is not None:
                found.delete()
            return
        (self._opened()).put(
            actor_id=actor_of(op.namespace),
            path=path_of(op.namespace, op.key),
            content=json.dumps(op.value, ensure_ascii=False),
        )

    def _search(self, op: SearchOp) -> list[SearchItem]:
        found: list[SearchItem] = []
        left = op.offset
        for memory, score in self._candidates(op):
            if memory.session_id is not None or namespace_of(memory)[: len(op.namespace_prefix)] != op.namespace_prefix:
                continue
            item = search_item_of(memory, score)
            if not matches(item.value, op.filter):
                continue
            if left:
                left -= 1
                continue
            if len(found) == op.limit:
                break
            found.append(item)
        return found

    def _candidates(self, op: SearchOp) -> Iterator[tuple[Memory, float | None]]:
        """By relevance to the query, the best 100, or by path."""
        store, actor, prefix = self._opened(), actor_of(op.namespace_prefix), prefix_of(op.namespace_prefix)
        if op.query and op.query.strip():
            for hit in store.search(actor_id=actor, query=op.query, path_prefix=prefix):
                yield hit.memory, hit.score
        else:
            for memory in store.list(actor_id=actor, path_prefix=prefix, page_size=min(op.limit + op.offset + 1, 100)):
                yield memory, None

    def _namespaces(self, op: ListNamespacesOp) -> list[tuple[str, ...]]:
        conditions = op.match_conditions or ()
        prefix = next((each.path for each in conditions if each.match_type == "prefix"), ())
        found: set[tuple[str, ...]] = set()
        entries = (self._opened()).list(actor_id=actor_of(prefix), read_mask=IDENTITY, page_size=PAGE_MAX)
        for memory in entries:
            namespace = namespace_of(memory)
            if memory.session_id is None and all(meets(namespace, each) for each in conditions):
                found.add(namespace[: op.max_depth])
        return list(islice(sorted(found), op.offset, op.offset + op.limit))
