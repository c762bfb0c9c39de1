"""Which of a conversation's newest items may stand alone as a model's input."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

REASONING = "reasoning"


def whole(items: Sequence[Any], limit: int) -> list[Any]:
    """The newest `limit` of these (oldest first) and no more, without what depends on something older.

    A tool's output needs its call, and what follows `reasoning` needs that; a model's endpoint refuses either alone.
    So where the limit would cut through such a group, the group is left out. What stands just before the cut must be
    among `items`.
    """
    start = max(len(items) - limit, 0)
    while (moved := _after_what_depends(items, start)) != start:
        start = moved
    return list(items[start:])


def _after_what_depends(items: Sequence[Any], start: int) -> int:
    if start and start < len(items) and _type(items[start - 1]) == REASONING:
        return start + 1
    called: set[str] = set()
    depending = start
    for index, item in enumerate(items[start:], start):
        call_id = item.get("call_id") if isinstance(item, dict) else None
        if call_id is None:
            continue
        if not _type(item).endswith("_output"):
            called.add(call_id)
        elif call_id not in called:
            depending = index + 1
    return depending


def _type(item: Any) -> str:
    return str(item.get("type") or "") if isinstance(item, dict) else ""
