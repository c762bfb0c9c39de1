"""How lists are asked for: the filter grammar and the orders.

expr  := term (" AND " term)*
term  := field "=" json-string
field := actor_id | root_session_id | parent_session_id | metadata.KEY | metadata[json-string]
"""

import json
import re
from dataclasses import dataclass
from typing import Literal

from libs.chassis.errors import InvalidParameter

COLUMNS = ("actor_id", "root_session_id", "parent_session_id")
FIELD = re.compile(
    r"(?P<column>actor_id|root_session_id|parent_session_id)|metadata\.(?P<key>[A-Za-z0-9_-]+)|metadata\["
)
EQUALS = re.compile(r" *= *(?=\")")
AND = re.compile(r" +AND +")
CLOSE = re.compile(r" *\]")
ALLOWED = (
    'filter takes terms such as actor_id = "a", root_session_id = "s", parent_session_id = "s", metadata.key = "v" or '
    'metadata["any key"] = "v", joined by AND'
)

OrderField = Literal["create_time", "last_activity_time"]


@dataclass(frozen=True, slots=True)
class Term:
    """`column` equals `value`, or the metadata value of `key` does."""

    column: str | None
    key: str | None
    value: str


@dataclass(frozen=True, slots=True)
class Order:
    field: OrderField
    is_ascending: bool


def parse_filter(text: str | None) -> list[Term]:
    """The terms, all of which must hold; raises `InvalidParameter` saying what is allowed."""
    if text is None or not text.strip():
        return []
    text = text.strip()
    terms, at = [], 0
    while True:
        term, at = _term(text, at)
        terms.append(term)
        if at == len(text):
            return terms
        at = _match(AND, text, at).end()


def sessions_order(text: str | None) -> Order:
    words = (text or "").split()
    match words:
        case []:
            return Order("last_activity_time", False)
        case ["create_time" | "last_activity_time" as field] | ["create_time" | "last_activity_time" as field, "asc"]:
            return Order("create_time" if field == "create_time" else "last_activity_time", True)
        case ["create_time" | "last_activity_time" as field, "desc"]:
            return Order("create_time" if field == "create_time" else "last_activity_time", False)
    raise InvalidParameter("order_by must be create_time or last_activity_time, each with asc or desc.")


def items_are_ascending(order_by: str | None) -> bool:
    match (order_by or "create_time desc").split():
        case ["create_time", "asc"]:
            return True
        case ["create_time", "desc"]:
            return False
    raise InvalidParameter("order_by must be 'create_time asc' or 'create_time desc'.")


def parse_positions(text: str | None, maximum: int) -> list[int] | None:
    """`1,5,9` as numbers; None when not asked for."""
    if text is None:
        return None
    parts = text.split(",")
    if len(parts) > maximum or not all(re.fullmatch(r"[0-9]{1,18}", part, re.ASCII) for part in parts):
        raise InvalidParameter(f"positions must be 1 to {maximum} whole numbers with commas between, as 1,5,9.")
    return [int(part) for part in parts]


def parse_position(name: str, text: str | None) -> int | None:
    if text is None or text == "":
        return None
    if re.fullmatch(r"[0-9]{1,18}", text, re.ASCII) is None:
        raise InvalidParameter(f"{name} must be a position: a whole number of at most 18 digits.")
    return int(text)


def _term(text: str, at: int) -> tuple[Term, int]:
    field = _match(FIELD, text, at)
    at, column, key = field.end(), field["column"], field["key"]
    if column is None and key is None:
        key, at = _string(text, at)
        at = _match(CLOSE, text, at).end()
    value, at = _string(text, _match(EQUALS, text, at).end())
    return Term(column, key, value), at


def _match(pattern: re.Pattern[str], text: str, at: int) -> re.Match[str]:
    found = pattern.match(text, at)
    if found is None:
        raise InvalidParameter(f"{ALLOWED}; it cannot be read at character {at}.")
    return found


def _string(text: str, at: int) -> tuple[str, int]:
    try:
        value, end = json.JSONDecoder().raw_decode(text, at)
    except (ValueError, RecursionError):
        value, end = None, at
    if not isinstance(value, str):
        raise InvalidParameter(f"{ALLOWED}; a quoted text was expected at character {at}.")
    if "\x00" in value or any("\ud800" <= char <= "\udfff" for char in value):
        raise InvalidParameter("filter may not hold a NUL character or half of a surrogate pair.")
    return value, end
