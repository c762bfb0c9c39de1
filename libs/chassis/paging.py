"""Pages by seek. A token is opaque and good only for the list that gave it, asked in the same way."""

import base64
import binascii
import hashlib
import json
from collections.abc import Sequence
from typing import Any

from libs.chassis.errors import InvalidParameter


def page_size(asked: str | int | None, *, default: int, maximum: int) -> int:
    """Absent or 0 is the default; anything else must lie within 1 and the maximum."""
    try:
        size = int(asked) if asked not in (None, "") else 0
    except ValueError:
        raise InvalidParameter(f"page_size must be a whole number from 1 to {maximum}.") from None
    if not 0 <= size <= maximum:
        raise InvalidParameter(f"page_size must be from 1 to {maximum}, not {size}.")
    return size or default


def encode_token(scope: Sequence[Any], cursor: Sequence[Any]) -> str:
    """`scope` says which list and how it was asked; `cursor` is JSON: where the next page begins."""
    body = json.dumps([_digest(scope), *cursor], separators=(",", ":"))
    return base64.urlsafe_b64encode(body.encode()).decode().rstrip("=")


def decode_token(scope: Sequence[Any], token: str | None, types: Sequence[type]) -> list[Any] | None:
    """The cursor of a token, or None without one. A malformed or foreign token is `InvalidParameter`."""
    if not token:
        return None
    try:
        body = json.loads(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
    except (ValueError, binascii.Error, RecursionError):
        body = None
    if (
        not isinstance(body, list)
        or len(body) != len(types) + 1
        or body[0] != _digest(scope)
        or not all(type(value) is kind for value, kind in zip(body[1:], types, strict=True))
    ):
        raise InvalidParameter("page_token is not one that this list gave, asked in the same way. Start without it.")
    return body[1:]


def _digest(scope: Sequence[Any]) -> str:
    text = json.dumps([None if part is None else str(part) for part in scope])
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:12]
