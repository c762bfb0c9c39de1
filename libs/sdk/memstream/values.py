"""What every resource is read and sent with: snapshots from JSON, times, ids, and the checks made before a call."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from datetime import date, datetime
from typing import Any, TypeVar
from urllib.parse import quote

T = TypeVar("T")

PAGE_MAX = 100


def snapshot(kind: type[T], raw: Mapping[str, Any], **known: Any) -> T:
    """A `kind`, a dataclass, of the fields that the JSON object has; `known` are those that it does not say itself.

    What is null or absent has its default, and what `kind` does not know is left out, so a newer server is no problem.
    """
    said = {field.name: _reader(str(field.type))(raw[field.name]) for field in _present(kind, raw)}
    return kind(**{**said, **known})


def time_of(value: Any) -> datetime | None:
    """An aware time, or None for what is absent or not one."""
    if not isinstance(value, str):
        return None
    try:
        time = datetime.fromisoformat(value.replace("Z", "+00:00"))
    except ValueError:
        return None
    return time if time.tzinfo else None


def moment(time: datetime | str | None) -> str | None:
    """A time as it is sent: RFC 3339 with an offset. Text goes as it is."""
    if not isinstance(time, datetime):
        return time
    if time.tzinfo is None:
        raise ValueError("a time must have a time zone, such as datetime.now(timezone.utc)")
    return time.isoformat()


def given(**values: Any) -> dict[str, Any]:
    """The values that are not None."""
    return {name: value for name, value in values.items() if value is not None}


def changes(clear: Sequence[str] = (), **values: Any) -> tuple[dict[str, str], dict[str, Any]]:
    """An update's query and body: the fields that are not None, and those to clear, which the mask names alone."""
    body = given(**values)
    if isinstance(clear, str) or not set(clear) <= set(values):
        raise ValueError(f"clear is a list of names among {', '.join(values)}")
    if set(clear) & set(body):
        raise ValueError("a field is either changed or cleared")
    mask = [*body, *clear]
    if not mask:
        raise ValueError(f"there is nothing to update: give {' or '.join(values)}")
    return {"update_mask": ",".join(mask)}, body


def dumps(value: Any) -> bytes:
    """JSON in UTF-8; text that UTF-8 cannot hold stays escaped."""
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
    except UnicodeEncodeError:
        return json.dumps(value, allow_nan=False, separators=(",", ":")).encode()


def segment(text: str) -> str:
    """An id as a segment of a URL; raises `ValueError` for what cannot be one."""
    if not text or "/" in text or text in (".", ".."):
        raise ValueError(f"'{text}' cannot be an id: it is empty, '.', '..' or has a '/'")
    return quote(text, safe=":@+~")


def bare(collection: str, name: str) -> str:
    """The id of `name`, which may be given as `collection/id`."""
    found = name.removeprefix(f"{collection}/")
    if not found or "/" in found:
        raise ValueError(f"'{name}' is neither an id nor '{collection}/<id>'")
    return found


def last_segment(name: str) -> str:
    """The id of a resource's whole name."""
    return name.rpartition("/")[2]


def one_of(what: str, value: str, allowed: Sequence[str]) -> str:
    if value not in allowed:
        raise ValueError(f"{what} must be {' or '.join(allowed)}, not '{value}'")
    return value


def check_page_size(size: int | None, what: str = "page_size", *, maximum: int = PAGE_MAX) -> None:
    if size is not None and (isinstance(size, bool) or not isinstance(size, int) or not 1 <= size <= maximum):
        raise ValueError(f"{what} must be a whole number from 1 to {maximum}")


def _present(kind: Any, raw: Mapping[str, Any]) -> list[Any]:
    return [field for field in fields(kind) if raw.get(field.name) is not None]


def _reader(annotation: str) -> Callable[[Any], Any]:
    return _READERS.get(annotation.removesuffix(" | None"), lambda value: value)


_READERS: dict[str, Callable[[Any], Any]] = {
    "datetime": time_of,
    "date": date.fromisoformat,
    "int": int,
    "float": float,
    "tuple[int, ...]": tuple,
    "tuple[str, ...]": tuple,
}
