"""Sends conversations to a server so that doing it again, at any time and after any interruption, adds nothing twice.

What a session holds decides what is missing: its items must be the conversation's first turns. `expected_position`
keeps two imports at once from doubling, and an Idempotency-Key a repeat whose first answer was lost.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Any

from memstream.client import AgentKitClient
from memstream.conversations import Conversation, ConversationFile, FileChanged, Turn
from memstream.errors import Aborted, AlreadyExists, MemstreamError, NotFound
from memstream.memories import MemoryStore
from memstream.pipelines import Pipeline
from memstream.records import NewItem
from memstream.sessions import Session, SessionStore
from memstream.values import dumps

CONTINUOUS = "CONTINUOUS"
WORKERS = 8
BATCH_ITEMS = 200
BATCH_BYTES = 1024 * 1024
RACES = 5

Advance = Callable[[int], None]


@dataclass(frozen=True)
class Target:
    """Where conversations go and what distils them."""

    client: AgentKitClient
    session_store: SessionStore
    memory_store: MemoryStore
    pipeline: Pipeline


@dataclass(frozen=True)
class Imported:
    """What became of one conversation, and how many of its turns were added now."""

    conversation: Conversation
    added: int


def prepare(client: AgentKitClient, session_store: str, memory_store: str) -> Target:
    """The stores and the pipeline between them, made where they are missing."""
    sessions = _get_or_create(client.session_stores.get, client.session_stores.create, session_store)
    memories = _get_or_create(client.memory_stores.get, client.memory_stores.create, memory_store)
    return Target(client, sessions, memories, _pipeline(client, sessions, memories))


def import_file(target: Target, file: ConversationFile, advance: Advance) -> list[Imported]:
    """Sends what is missing; `advance` hears of turns as they are there. Raises the first failure."""
    stop = threading.Event()
    counting = threading.Lock()
    there = 0

    def count(turns: int) -> None:
        nonlocal there
        with counting:
            there += turns
            advance(turns)

    def work(conversation: Conversation) -> Imported | None:
        if stop.is_set():
            return None
        return _import(target.session_store, conversation, file, count)

    try:
        return _concurrently(work, file.conversations, stop)
    except FileChanged as changed:
        changed.hint = (
            f"{there} of {file.turns} turns are in session-stores/{target.session_store.name}; "
            "import again when the file no longer changes: only what is missing is sent"
        )
        raise


def _concurrently(work: Callable[[Any], Any], items: Sequence[Any], stop: threading.Event) -> list[Any]:
    """The results that are not None, in order; after a failure or Ctrl-C nothing new begins."""
    with ThreadPoolExecutor(WORKERS) as pool:
        futures = [pool.submit(work, item) for item in items]
        try:
            wait(futures, return_when=FIRST_EXCEPTION)
            return [result for future in futures if (result := _result(future)) is not None]
        finally:
            stop.set()
            for future in futures:
                future.cancel()


def _result(future: Any) -> Any:
    return future.result() if future.done() else None


def _get_or_create(get: Callable[[str], Any], create: Callable[..., Any], name: str) -> Any:
    try:
        return get(name)
    except NotFound:
        pass
    try:
        return create(name)
    except AlreadyExists:
        return get(name)


def _pipeline(client: AgentKitClient, sessions: SessionStore, memories: MemoryStore) -> Pipeline:
    pair = (f"session-stores/{sessions.name}", memories.name)
    for _ in range(2):
        for pipeline in client.pipelines.list(page_size=100):
            if (pipeline.session_store, pipeline.memory_store) == pair:
                return pipeline
        try:
            return client.pipelines.create(session_store=pair[0], memory_store=pair[1], trigger=CONTINUOUS)
        except AlreadyExists:
            continue
    raise MemstreamError(f"there is a pipeline from {pair[0]} to {pair[1]}, but you may not see it")


def _import(store: SessionStore, conversation: Conversation, file: ConversationFile, advance: Advance) -> Imported:
    turns = file.turns_of(conversation)
    session = _session(store, conversation)
    present = _present(session, turns, file)
    advance(present)
    added = 0
    for _ in range(RACES):
        try:
            position = session.last_position
            for batch in _batches(turns[present:]):
                items = session.append_items(
                    [NewItem(turn.item, turn.time) for turn in batch],
                    expected_position=position,
                    idempotency_key=_key(session, position, batch),
                )
                position = items[-1].position or position + len(batch)
                present, added = present + len(batch), added + len(batch)
                advance(len(batch))
            return Imported(conversation, added)
        except Aborted:
            session = store.get(session.session_id)
            now = _present(session, turns, file)
            advance(now - present)
            present = now
    raise Aborted(f"session '{session.session_id}' is being written by somebody else", error_code="ABORTED")


def _session(store: SessionStore, conversation: Conversation) -> Session:
    try:
        session = store.get(conversation.session_id)
    except NotFound:
        try:
            return store.add(actor_id=conversation.actor_id, session_id=conversation.session_id)
        except AlreadyExists:
            session = store.get(conversation.session_id)
    if session.actor_id != conversation.actor_id:
        raise MemstreamError(
            f"session '{session.session_id}' belongs to actor '{session.actor_id}', "
            f"the file says '{conversation.actor_id}'"
        )
    return session


def _present(session: Session, turns: Sequence[Turn], file: ConversationFile) -> int:
    """How many of the turns the session holds; raises when it holds something else in their place."""
    if not session.last_position:
        return 0
    count = 0
    for item, turn in zip(session.list_items(page_size=100, order_by="create_time asc"), turns, strict=False):
        if item.data != turn.item:
            raise MemstreamError(
                f"{file.path}:{turn.line} is not what session '{session.session_id}' holds at position {item.position}",
                hint="import into another session store, or delete that session first",
            )
        count += 1
    return count


def _batches(turns: Sequence[Turn]) -> Iterator[list[Turn]]:
    batch: list[Turn] = []
    size = 0
    for turn in turns:
        length = len(dumps(turn.item))
        if batch and (len(batch) == BATCH_ITEMS or size + length > BATCH_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(turn)
        size += length
    if batch:
        yield batch


def _key(session: Session, position: int, batch: Sequence[Turn]) -> str:
    """The same for the same turns at the same place of the same session, which a deleted and remade one is not."""
    parts = [session.session_id, session.create_time and session.create_time.isoformat(), position]
    digest = hashlib.sha256(dumps(parts))
    for turn in batch:
        digest.update(dumps([turn.item, turn.time]))
    return f"import-{digest.hexdigest()}"
