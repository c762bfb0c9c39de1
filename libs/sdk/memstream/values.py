"""What every resource is read and sent with."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any


def time_of(value: Any) -> datetime | None:
    """An aware time, or None for what is absent or not one."""
    if not isinstance(value, str):
        return None
    try:
        time = datetime.fromisoformat(value.replace("Z", "+00:00"))
    except ValueError:
        return None
    return time if time.tzinfo else None


def given(**fields: Any) -> dict[str, Any]:
    """The fields that are not None."""
    return {name: value for name, value in fields.items() if value is not None}


def dumps(value: Any) -> bytes:
    """JSON in UTF-8; text that UTF-8 cannot hold stays escaped."""
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
    except UnicodeEncodeError:
        return json.dumps(value, allow_nan=False, separators=(",", ":")).encode()
