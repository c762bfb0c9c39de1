"""Pages by seek. A token is opaque and good only for the list that gave it, asked in the same way.

A page whose rows may be large is bounded in bytes, too, and ends early: `within_bytes`.
"""

import base64
import binascii
import hashlib
import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from libs.chassis.errors import InvalidParameter
from libs.chassis.texts import storable

INT64 = range(-(2**63), 2**63)


def page_size(asked: str | int | None, *, default: int, maximum: int) -> int:
    """Absent or 0 is the default; anything else must lie within 1 and the maximum."""
    try:
        size = _digits(asked) if asked not in (None, "") else 0
    except ValueError:
        raise InvalidParameter(f"page_size must be a whole number from 1 to {maximum}.") from None
    if not 0 <= size <= maximum:
        raise InvalidParameter(f"page_size must be from 1 to {maximum}, not {size}.")
    return size or default


def _digits(asked: str | int) -> int:
    """`int()` also takes `1_0`, spaces and other scripts' digits."""
    if isinstance(asked, str) and not (asked.isascii() and asked.removeprefix("-").isdigit() and len(asked) < 20):
        raise ValueError("not a number")
    return int(asked)


def within_bytes(column: str, order_by: str, limit: str) -> str:
    """A text column of a page, as SQL: null from the row on with which the page would pass `limit` bytes.

    The first row is never null. So Postgres sends what fits and no more, in one round trip, and a null says that there
    is more. Select it from the page's rows, whose own `limit` is inside: what is beyond it must not be summed up.
    """
    through = f"sum(octet_length({column})) over (order by {order_by} rows unbounded preceding)"
    return f"case when {through} <= greatest({limit}, octet_length({column})) then {column} end"


def encode_token(scope: Sequence[Any], cursor: Sequence[Any]) -> str:
    """`scope` says which list and how it was asked; `cursor` where the next page begins."""
    body = json.dumps([_digest(scope), *map(_written, cursor)], separators=(",", ":"))
    return base64.urlsafe_b64encode(body.encode()).decode().rstrip("=")


def decode_token(scope: Sequence[Any], token: str | None, types: Sequence[type]) -> list[Any] | None:
    """The cursor of a token: `str`, `int`, `datetime` and `UUID` values. A malformed or foreign one is refused."""
    if not token:
        return None
    try:
        digest, *cursor = json.loads(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
        if digest != _digest(scope):
            raise ValueError("foreign")
        return [_read(kind, value) for kind, value in zip(types, cursor, strict=True)]
    except (ValueError, TypeError, OverflowError, binascii.Error, RecursionError):
        raise InvalidParameter(
            "page_token is not one that this list gave, asked in the same way. Start without it."
        ) from None


def _written(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    return str(value) if isinstance(value, UUID) else value


def _read(kind: type, value: Any) -> Any:
    """A token can be forged, so nothing passes that a database would refuse."""
    if kind is int and type(value) is int and value in INT64:
        return value
    if type(value) is not str or kind is int:
        raise ValueError("another type")
    if kind is datetime:
        time = datetime.fromisoformat(value)
        if time.tzinfo is None:
            raise ValueError("no time zone")
        return time.astimezone(UTC)
    return UUID(value) if kind is UUID else storable(value)


def _digest(scope: Sequence[Any]) -> str:
    text = json.dumps([None if part is None else str(part) for part in scope])
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:12]
