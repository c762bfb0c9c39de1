"""Which session a LangGraph configuration means.

A thread's default namespace is the session of the thread's own id; any other is a session whose id is the SHA-256 of
thread id and namespace. An absent actor means the thread id.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from langchain_core.runnables import RunnableConfig

CLIENT = "memstream-langgraph"
CLIENT_KEY, THREAD_KEY, NAMESPACE_KEY = "client", "langgraph_thread_id", "checkpoint_ns"
BETWEEN = "\x1f"


def thread_config(session_id: str, actor: str | None = None) -> RunnableConfig:
    """The configuration to invoke a graph with: `session_id` is the thread, `actor` whose it is.

    A thread's id is a session's: 1 to 255 of A-Z a-z 0-9 . _ ~ : @ + -, and not `.` or `..`.
    Without an actor memory does not carry over from one thread to another.
    """
    return {"configurable": {"thread_id": session_id, "actor_id": actor or session_id}}


@dataclass(frozen=True)
class Address:
    thread_id: str
    actor_id: str
    namespace: str = ""
    checkpoint_id: str | None = None

    @classmethod
    def of(cls, config: RunnableConfig) -> Address:
        """Raises `ValueError` without a thread id."""
        asked: Mapping[str, Any] = config.get("configurable") or {}
        thread_id = str(asked.get("thread_id") or "")
        if not thread_id:
            raise ValueError("the configuration has no thread_id: use thread_config(session_id, actor)")
        return cls(
            thread_id,
            str(asked.get("actor_id") or thread_id),
            asked.get(NAMESPACE_KEY) or "",
            asked.get("checkpoint_id"),
        )

    @property
    def session_id(self) -> str:
        return session_id_of(self.thread_id, self.namespace)

    @property
    def metadata(self) -> dict[str, str]:
        return metadata_of(self.thread_id, self.namespace)

    def config(self, checkpoint_id: str) -> RunnableConfig:
        """That of one checkpoint here. It names the actor unless that is the thread itself."""
        actor = {} if self.actor_id == self.thread_id else {"actor_id": self.actor_id}
        return {
            "configurable": {
                "thread_id": self.thread_id,
                **actor,
                NAMESPACE_KEY: self.namespace,
                "checkpoint_id": checkpoint_id,
            }
        }


def session_id_of(thread_id: str, namespace: str) -> str:
    if not namespace:
        return thread_id
    return hashlib.sha256(f"{thread_id}{BETWEEN}{namespace}".encode()).hexdigest()


def metadata_of(thread_id: str, namespace: str) -> dict[str, str]:
    """What a session's metadata says of it."""
    return {CLIENT_KEY: CLIENT, THREAD_KEY: thread_id, NAMESPACE_KEY: namespace}


def sessions_filter(thread_id: str | None) -> str:
    """The sessions of one thread, or of all threads."""
    if thread_id is None:
        return f"metadata.{CLIENT_KEY} = {json.dumps(CLIENT)}"
    return f"metadata.{THREAD_KEY} = {json.dumps(thread_id)}"
