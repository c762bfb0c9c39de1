"""Where an item of a LangGraph store stands in a memory store.

The first label of a namespace is the actor; the other labels and the key are the path: key `tea` in `("ana", "likes")`
is actor `ana`'s entry `/likes/tea`. What a path cannot hold is percent-encoded. An item's value is the entry's content,
as JSON; an entry that somebody else wrote as text, such as a distilled fact, is an item with the value
`{"content": ..., "description": ...}`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timezone
from typing import Any, Protocol
from urllib.parse import quote, unquote

from langgraph.store.base import Item, MatchCondition, SearchItem

SAFE = " !$&'()*+,:;=@"
OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "$eq": lambda value, wanted: bool(value == wanted),
    "$ne": lambda value, wanted: bool(value != wanted),
    "$gt": lambda value, wanted: value is not None and value > wanted,
    "$gte": lambda value, wanted: value is not None and value >= wanted,
    "$lt": lambda value, wanted: value is not None and value < wanted,
    "$lte": lambda value, wanted: value is not None and value <= wanted,
}
UNKNOWN_TIME = datetime.fromtimestamp(0, timezone.utc)


class Memory(Protocol):
    """An entry of either client."""

    @property
    def actor_id(self) -> str: ...
    @property
    def path(self) -> str: ...
    @property
    def content(self) -> str | None: ...
    @property
    def description(self) -> str | None: ...
    @property
    def create_time(self) -> datetime | None: ...
    @property
    def update_time(self) -> datetime | None: ...


def actor_of(namespace: Sequence[str]) -> str:
    """Raises `ValueError` for what names no actor."""
    if not namespace or namespace[0] == "*":
        raise ValueError("a namespace begins with the actor, such as ('ana', 'likes'): name at least that")
    return namespace[0]


def path_of(namespace: Sequence[str], key: str) -> str:
    return "".join(f"/{_segment(label)}" for label in (*namespace[1:], key))


def prefix_of(namespace: Sequence[str]) -> str:
    return "".join(f"/{_segment(label)}" for label in namespace[1:]) or "/"


def namespace_of(memory: Memory) -> tuple[str, ...]:
    return (memory.actor_id, *_labels(memory)[:-1])


def item_of(memory: Memory) -> Item:
    return Item(**_fields(memory))


def search_item_of(memory: Memory, score: float | None) -> SearchItem:
    return SearchItem(**_fields(memory), score=score)


def matches(value: Mapping[str, Any], filter: Mapping[str, Any] | None) -> bool:
    """Whether every field is as asked: a value, or operators such as `{"$gt": 3}`."""
    return all(_is_as_asked(value.get(name), wanted) for name, wanted in (filter or {}).items())


def meets(namespace: Sequence[str], condition: MatchCondition) -> bool:
    """Whether its labels begin (or end) as the condition says; `*` is any label."""
    wanted = condition.path
    if len(namespace) < len(wanted):
        return False
    labels = namespace[: len(wanted)] if condition.match_type == "prefix" else namespace[-len(wanted) :]
    return all(label in ("*", has) for label, has in zip(wanted, labels, strict=True))


def _segment(label: str) -> str:
    """`.` and `..` are no segments of a path."""
    return label.replace(".", "%2E") if label in (".", "..") else quote(label, safe=SAFE)


def _labels(memory: Memory) -> list[str]:
    return [unquote(each) for each in memory.path.split("/")[1:]]


def _fields(memory: Memory) -> dict[str, Any]:
    created = memory.create_time or UNKNOWN_TIME
    return {
        "value": _value(memory),
        "key": _labels(memory)[-1],
        "namespace": namespace_of(memory),
        "created_at": created,
        "updated_at": memory.update_time or created,
    }


def _value(memory: Memory) -> dict[str, Any]:
    try:
        value = json.loads(memory.content or "")
    except ValueError:
        value = None
    return value if isinstance(value, dict) else {"content": memory.content, "description": memory.description}


def _is_as_asked(value: Any, wanted: Any) -> bool:
    if not isinstance(wanted, Mapping) or not any(name.startswith("$") for name in wanted):
        return bool(value == wanted)
    unknown = set(wanted) - set(OPERATORS)
    if unknown:
        raise ValueError(f"a filter knows {', '.join(OPERATORS)}, not {', '.join(sorted(unknown))}")
    return all(OPERATORS[name](value, bound) for name, bound in wanted.items())
