"""The conversation inside a graph's state, as the readable items that a pipeline distils."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage

CHANNEL = "messages"
REMEMBERED = 16  # ids of the newest messages, by which the next checkpoint knows what is new
TEXT_CHARS = 500_000  # a longer one is cut here; the state has it whole


def messages_of(values: Mapping[str, Any]) -> list[BaseMessage]:
    found = values.get(CHANNEL)
    return [each for each in found if isinstance(each, BaseMessage)] if isinstance(found, list) else []


def reached(messages: Sequence[BaseMessage]) -> list[str]:
    """What a checkpoint remembers of the messages that it has."""
    return _ids(messages)[-REMEMBERED:]


def new_items(messages: Sequence[BaseMessage], known: Sequence[str]) -> list[dict[str, Any]]:
    """Items of what the user and the assistant said after the newest message that is known."""
    ids = _ids(messages)
    start = 1 + max((place for place, each in enumerate(ids) if each in set(known)), default=-1)
    said = zip(messages[start:], ids[start:], strict=True)
    return [item for message, each in said if (item := _item(message, each))]


def _ids(messages: Sequence[BaseMessage]) -> list[str]:
    """A graph without a message reducer gives its messages no ids; then their places serve."""
    return [message.id or f"#{place}" for place, message in enumerate(messages)]


def _item(message: BaseMessage, message_id: str) -> dict[str, Any] | None:
    text = str(message.text)[:TEXT_CHARS]
    if not text.strip() or not isinstance(message, (HumanMessage, AIMessage)):
        return None
    role = "user" if isinstance(message, HumanMessage) else "assistant"
    return {"type": "message", "id": message_id, "role": role, "content": text}
