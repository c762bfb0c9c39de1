"""The four memory tools of an agent, whatever its framework: remember, recall, forget, list_memories.

The actor is bound in code and never a parameter that a model could fill in. A tool answers with text for the model;
what it read from the store stands between `<memory>` marks, so that a distillation never takes it for something newly
said. The docstrings are what the model is told.
"""

from __future__ import annotations

import re
import threading
import unicodedata
from collections.abc import Callable, Iterable
from functools import partial

from memstream.client import AgentKitClient
from memstream.configured import memory_store_name, process_client
from memstream.errors import Aborted, InvalidParameterValue
from memstream.memories import Memory, MemoryStore

RECALLED_MAX = 5
LISTED_MAX = 100
TOPIC_CHARS = 64
MARK = re.compile(r"<(/?memory)>", re.IGNORECASE)

Tool = Callable[..., str]


class MemoryTools:
    """The tools of one actor in one memory store. Nothing is asked of the server before a tool is called."""

    def __init__(self, actor: str, store: str, client: AgentKitClient | None = None) -> None:
        if not actor:
            raise ValueError("actor says whose memories these are: it cannot be empty")
        self._actor = actor
        self._store_name = store
        self._client = client
        self._store: MemoryStore | None = None
        self._opening = threading.Lock()

    def all(self) -> list[Tool]:
        return [self.remember, self.recall, self.forget, self.list_memories]

    def remember(self, fact: str, topic: str) -> str:
        """Remember a durable fact about the user for later conversations.

        Args:
            fact: One short, self-contained statement.
            topic: One or two words that say what the fact is about, such as "food preferences".
        """
        fact = _one_line(fact)
        if not fact:
            return "There is nothing to remember: the fact is empty."
        path = topic_path(topic)
        self._opened().put(actor_id=self._actor, path=path, content=fact, append=True)
        return f"Remembered in {path}."

    def recall(self, query: str, session_id: str | None = None) -> str:
        """Search what is remembered about the user.

        Args:
            query: What to look for; the user's own words serve well.
            session_id: Only what belongs to this conversation; leave it out to search everything.
        """
        if not query.strip():
            return "There is nothing to look for: the query is empty."
        hits = self._opened().search(
            actor_id=self._actor, query=query, limit=RECALLED_MAX, session_id=_session(session_id)
        )
        if not hits:
            return "No memories match."
        return marked(line for hit in hits for line in _shown(hit.memory))

    def forget(self, fact: str, topic: str, session_id: str | None = None) -> str:
        """Forget a fact about the user, when they ask for it or when it is wrong.

        Args:
            fact: The fact exactly as it is remembered.
            topic: Its topic, or the path that recall shows, such as "/food-preferences.md".
            session_id: Only what belongs to this conversation; leave it out for everything at that topic.
        """
        path = topic if topic.startswith("/") else topic_path(topic)
        removing = partial(self._remove, _folded(fact), path, _session(session_id))
        try:
            try:
                return removing()
            except Aborted:  # somebody changed the entry meanwhile: what it says now counts
                return removing()
        except InvalidParameterValue:
            return f"{path} is not the path of a memory."

    def list_memories(self, session_id: str | None = None) -> str:
        """List the topics remembered about the user, without their facts; recall reads those.

        Args:
            session_id: Only what belongs to this conversation; leave it out to list everything.
        """
        entries = sorted(
            self._opened().list(actor_id=self._actor, session_id=_session(session_id), page_size=LISTED_MAX),
            key=lambda memory: (memory.path, memory.session_id or ""),
        )
        if not entries:
            return "Nothing is remembered yet."
        lines = [_summary(memory) for memory in entries[:LISTED_MAX]]
        more = len(entries) - LISTED_MAX
        return marked(lines) + (f"\nand {more} more" if more > 0 else "")

    def _opened(self) -> MemoryStore:
        with self._opening:
            if self._store is None:
                self._store = (self._client or process_client()).memory_stores.get(self._store_name)
            return self._store

    def _remove(self, fact: str, path: str, session_id: str | None) -> str:
        store = self._opened()
        entries = [
            memory
            for memory in store.list(actor_id=self._actor, path=path)
            if memory.path == path and session_id in (None, memory.session_id)
        ]
        if not entries:
            return f"Nothing is remembered in {path}."
        removed = 0
        for memory in entries:
            lines = (memory.content or "").splitlines()
            kept = [line for line in lines if _folded(line) != fact]
            if len(kept) == len(lines):
                continue
            if any(line.strip() for line in kept):
                store.put(
                    actor_id=self._actor,
                    path=path,
                    content="\n".join(kept),
                    session_id=memory.session_id,
                    expected_version=memory.version,
                )
            else:
                memory.delete()
            removed += len(lines) - len(kept)
        if removed:
            return f"Forgot {removed} {'fact' if removed == 1 else 'facts'} in {path}."
        stored = marked(line for memory in entries for line in _shown(memory))
        return f"No fact in {path} reads like that. These do stand there:\n{stored}"


def memory_tools(actor: str, store: str | None = None, client: AgentKitClient | None = None) -> list[Tool]:
    """The four functions, in this order, for a framework to wrap; none when no memory store is configured."""
    name = memory_store_name(store)
    return MemoryTools(actor, name, client).all() if name else []


def topic_path(topic: str) -> str:
    """The path of an agent's own entry: `Food & drink` is `/food-drink.md`."""
    plain = unicodedata.normalize("NFKD", topic).encode("ascii", "ignore").decode().lower()
    slug = re.sub(r"[^a-z0-9_-]+", "-", plain).strip("-_")[:TOPIC_CHARS].rstrip("-_")
    return f"/{slug or 'general'}.md"


def marked(lines: Iterable[str]) -> str:
    """Recalled lines between marks that nothing among them can close."""
    return "\n".join(["<memory>", *(MARK.sub(r"[\1]", line) for line in lines), "</memory>"])


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _folded(text: str) -> str:
    return _one_line(text).casefold()


def _session(session_id: str | None) -> str | None:
    """Models fill in what they were asked to leave out with blanks."""
    return (session_id or "").strip() or None


def _label(memory: Memory) -> str:
    return f"{memory.path} [{memory.session_id}]" if memory.session_id else memory.path


def _shown(memory: Memory) -> list[str]:
    text = memory.content or memory.description or ""
    return [f"{_label(memory)}:", *(f"  {line.strip()}" for line in text.splitlines() if line.strip())]


def _summary(memory: Memory) -> str:
    facts = sum(1 for line in (memory.content or "").splitlines() if line.strip())
    described = f": {_one_line(memory.description)}" if memory.description else ""
    return f"{_label(memory)} ({facts} {'fact' if facts == 1 else 'facts'}){described}"
