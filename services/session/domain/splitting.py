"""An append's body becomes items whose `data` is kept byte for byte.

msgspec splits; it is not strict about UTF-8 inside strings, hence the decoding before, nor bounded in depth, hence the
scan. What it refuses and is JSON all the same (half a surrogate pair) the standard library splits, in the same way.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import accumulate
from typing import Any, NoReturn

import msgspec

from libs.chassis.errors import InvalidParameter, TooLarge
from libs.contracts.limits import Limits
from services.session.domain.messages import role_of

OCCURRED_AT = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:[Zz]|[+-]\d\d:\d\d)", re.ASCII)
POSITION_MAX = 2**63 - 1
NOT_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
STEPS = {ord("["): 1, ord("{"): 1, ord("]"): -1, ord("}"): -1}
SPACE = re.compile(r"[ \t\n\r]*")
SHAPE = 'The body must be {"items": [{"data": <any JSON>}, …]}'


@dataclass(frozen=True, slots=True)
class NewItem:
    """`data` is the JSON text as it was sent; `role` is set when the item is a readable message."""

    data: str
    role: str | None
    occurred_at: str | None


@dataclass(frozen=True, slots=True)
class Append:
    items: list[NewItem]
    expected_position: int | None


class _Item(msgspec.Struct):
    data: msgspec.Raw = msgspec.Raw()
    occurred_at: str | None = None


class _Body(msgspec.Struct):
    items: list[_Item]
    expected_position: int | None = None


def split(body: bytes, limits: Limits) -> Append:
    """The items of an append; raises `InvalidParameter` or `TooLarge`, naming the item that is wrong."""
    try:
        text = body.decode()
    except UnicodeDecodeError as error:
        raise InvalidParameter(f"The body must be UTF-8; byte {error.start} is not.") from None
    if is_deeper(body, limits.json_depth):
        raise InvalidParameter(f"The body may be nested at most {limits.json_depth} levels deep.")
    try:
        raw, expected_position = split_fast(body)
    except msgspec.ValidationError as error:
        raise InvalidParameter(f"{SHAPE}: {error}.") from None
    except (msgspec.DecodeError, RecursionError):
        raw, expected_position = split_tolerantly(text)
    if expected_position is not None and not 0 <= expected_position <= POSITION_MAX:
        raise InvalidParameter("expected_position must be the last_position of the session: 0 or more.")
    if not 1 <= len(raw) <= limits.items_per_append:
        raise InvalidParameter(f"items must hold 1 to {limits.items_per_append} items, not {len(raw)}.")
    return Append([_item(index, *item, limits) for index, item in enumerate(raw)], expected_position)


def is_deeper(body: bytes, limit: int) -> bool:
    """Whether brackets outside strings nest deeper than `limit`."""
    if body.count(b"[") + body.count(b"{") <= limit:
        return False
    outside = body.replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"')[::2]
    brackets = b"".join(outside).translate(None, NOT_BRACKETS)
    return max(accumulate(map(STEPS.__getitem__, brackets)), default=0) > limit


RawItem = tuple[bytes, str | None]


def split_fast(body: bytes) -> tuple[list[RawItem], int | None]:
    """Each item's `data` (empty when absent) and `occurred_at`; raises what msgspec raises."""
    decoded = _BODY.decode(body)
    return [(bytes(item.data), item.occurred_at) for item in decoded.items], decoded.expected_position


def split_tolerantly(text: str) -> tuple[list[RawItem], int | None]:
    """The same by the standard library, which takes half a surrogate pair; NaN and Infinity stay refused."""
    try:
        start, end = _value(text, 0)
        if SPACE.fullmatch(text, end) is None:
            raise ValueError("there is more after the end")
        body = _members(text, start)
        items = [_members(text, item) for item, _ in _elements(text, body["items"][0])]
        expected = body.get("expected_position")
        return (
            [(_slice(text, item.get("data")).encode(), _text(text, item.get("occurred_at"))) for item in items],
            None if expected is None else _integer(text[slice(*expected)]),
        )
    except json.JSONDecodeError as error:
        raise InvalidParameter(f"The body must be JSON: {error.msg} at character {error.pos}.") from None
    except KeyError:
        raise InvalidParameter(f"{SHAPE}.") from None
    except (ValueError, RecursionError) as error:
        raise InvalidParameter(f"{SHAPE}: {error}.") from None


def instant_of(occurred_at: str) -> datetime:
    """When something was said, in the speaker's own zone; raises `ValueError` or `OverflowError`."""
    if OCCURRED_AT.fullmatch(occurred_at) is None:
        raise ValueError("not RFC 3339")
    instant = datetime.fromisoformat(occurred_at.upper())
    instant.astimezone(UTC)
    return instant


def _item(index: int, data: bytes, occurred_at: str | None, limits: Limits) -> NewItem:
    if not data:
        raise InvalidParameter(f"items[{index}] has no 'data'.")
    if len(data) > limits.item_bytes:
        raise TooLarge(f"items[{index}] has {len(data)} bytes of data; an item may have at most {limits.item_bytes}.")
    if occurred_at is not None:
        try:
            instant_of(occurred_at)
        except (ValueError, OverflowError):
            raise InvalidParameter(
                f"items[{index}].occurred_at must be RFC 3339 with an offset, as 2026-05-01T09:30:00+02:00."
            ) from None
    return NewItem(data.decode(), role_of(data), occurred_at)


_BODY = msgspec.json.Decoder(_Body)


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


# Numbers are only measured: a conversion would refuse an integer of 5,000 digits.
_VALUE = json.JSONDecoder(parse_constant=_refuse, parse_int=str, parse_float=str)


def _value(text: str, start: int) -> tuple[int, int]:
    """Start and end of the value that begins at or after `start`."""
    start = _skip(text, start)
    _, end = _VALUE.raw_decode(text, start)
    return start, end


def _members(text: str, start: int) -> dict[str, tuple[int, int]]:
    """Where each member's value lies in the object at `start`; of doubles, the last."""
    if text[start] != "{":
        raise ValueError(f"an object was expected at character {start}")
    members = {}
    at = _skip(text, start + 1)
    while text[at] != "}":
        key, end = _VALUE.raw_decode(text, at)
        members[str(key)] = span = _value(text, _skip(text, end) + 1)
        at = _skip(text, span[1])
        at = _skip(text, at + 1) if text[at] == "," else at
    return members


def _elements(text: str, start: int) -> Iterator[tuple[int, int]]:
    if text[start] != "[":
        raise ValueError("'items' must be an array")
    at = _skip(text, start + 1)
    while text[at] != "]":
        span = _value(text, at)
        yield span
        at = _skip(text, span[1])
        at = _skip(text, at + 1) if text[at] == "," else at


def _skip(text: str, at: int) -> int:
    found = SPACE.match(text, at)
    return found.end() if found else at


def _slice(text: str, span: tuple[int, int] | None) -> str:
    return "" if span is None else text[slice(*span)]


def _text(text: str, span: tuple[int, int] | None) -> str | None:
    value: Any = None if span is None else json.loads(text[slice(*span)])
    if value is not None and not isinstance(value, str):
        raise ValueError("'occurred_at' must be a text")
    return value


def _integer(text: str) -> int | None:
    if text == "null":
        return None
    if re.fullmatch(r"-?\d{1,19}", text) is None:
        raise ValueError("'expected_position' must be a whole number")
    return int(text)
