"""What a conversation looks like to somebody who comes back to it."""

from __future__ import annotations

from typing import Any, TypedDict

from langchain_core.messages import AnyMessage
from langgraph.checkpoint.serde.types import INTERRUPT
from langgraph.graph.message import add_messages

from memstream.langgraph.addresses import thread_config
from memstream.langgraph.saver import checkpointer
from memstream.langgraph.transcripts import CHANNEL, messages_of


class History(TypedDict):
    session_id: str
    messages: list[AnyMessage]
    interrupts: list[dict[str, Any]]


def read_history(session_id: str, actor: str | None = None, store: str | None = None) -> History:
    """The messages of a thread, with those that its current step has written already, and what it waits for.

    `interrupts` are `{"id", "value"}`; answer with `Command(resume=...)`. A thread that does not exist has none of
    either. Raises `PermissionDenied` when the thread is another actor's.
    """
    found = checkpointer(store).get_tuple(thread_config(session_id, actor))
    messages: Any = messages_of(found.checkpoint["channel_values"]) if found else []
    interrupts: list[dict[str, Any]] = []
    for _, channel, value in (found.pending_writes or ()) if found else ():
        if channel == CHANNEL:
            messages = add_messages(messages, value)
        elif channel == INTERRUPT:
            interrupts += [{"id": each.id, "value": each.value} for each in value]
    return {"session_id": session_id, "messages": messages, "interrupts": interrupts}
