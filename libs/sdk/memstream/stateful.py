"""For agents that are one handler of stateless requests: which thread a request goes on, whose it is, what is known.

    thread_id = resolve_thread_id(request.get("custom_inputs"), request.get("conversation_id"))
    user_id = resolve_user_id(request.get("context"), request.get("custom_inputs"))
    facts = await AsyncLongTermMemory("support", client=client).search_memories(user_id, question)
    ...
    return with_thread_id(response, thread_id)

Both layers are optional, each by itself: `memstream.openai.AsyncSession` keeps the conversation, `LongTermMemory` (or
`AsyncLongTermMemory`, to await) what is known of a user. A handler answers without them where they cannot be had.
"""

from __future__ import annotations

import copy
import uuid
from collections.abc import Mapping
from typing import Any, TypeVar, cast

from memstream.aio.long_term import LongTermMemory as AsyncLongTermMemory
from memstream.keyed import UNKNOWN_USER, MemoryItem
from memstream.long_term import LongTermMemory
from memstream.optional import unavailable

__all__ = [
    "UNKNOWN_USER",
    "AsyncLongTermMemory",
    "LongTermMemory",
    "MemoryItem",
    "resolve_thread_id",
    "resolve_user_id",
    "unavailable",
    "with_thread_id",
]

T = TypeVar("T")


def resolve_thread_id(custom_inputs: Mapping[str, Any] | None = None, conversation_id: str | None = None) -> str:
    """`custom_inputs["thread_id"]`, else the conversation's id, else a new one; what is empty is skipped.

    Ask in each request, and give the answer back with `with_thread_id`, or the client cannot go on.
    """
    return str((custom_inputs or {}).get("thread_id") or conversation_id or uuid.uuid4())


def resolve_user_id(context: Any = None, custom_inputs: Mapping[str, Any] | None = None) -> str:
    """The context's `user_id` (an attribute or a key), else `custom_inputs["user_id"]`, else `unknown`.

    A client writes its `custom_inputs` itself: trust them only where it may speak for every user.
    """
    said = context.get("user_id") if isinstance(context, Mapping) else getattr(context, "user_id", None)
    return str(said or (custom_inputs or {}).get("user_id") or UNKNOWN_USER)


def with_thread_id(response: T, thread_id: str) -> T:
    """A copy of the response, a mapping or an object, that names the thread in its `custom_outputs`.

    In a stream give it every event, so that the client knows the thread even when the stream is cut.
    """
    if isinstance(response, Mapping):
        outputs = {**(response.get("custom_outputs") or {}), "thread_id": thread_id}
        return cast(T, {**response, "custom_outputs": outputs})
    named = copy.copy(response)
    outputs = {**(getattr(response, "custom_outputs", None) or {}), "thread_id": thread_id}
    named.custom_outputs = outputs  # type: ignore[attr-defined]
    return named
