"""What `explain (format json)` tells."""

from typing import Any


def nodes(plan: Any) -> list[Any]:
    """The node and all below it."""
    return [plan, *(node for child in plan.get("Plans", []) for node in nodes(child))]
