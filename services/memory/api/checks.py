"""What is asked of the words that callers send, in one place."""

import re
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from libs.chassis.errors import InvalidParameter
from libs.chassis.paging import page_size
from libs.chassis.permissions import bare_name
from libs.chassis.texts import check_bytes, storable
from libs.contracts.limits import Limits
from libs.contracts.routes import SESSION_STORES
from services.memory.api.requests import EntryBody, PutBody, SearchBody, WaitFor
from services.memory.domain import INT64, path_problem, prefix_problem
from services.memory.freshness import Goal
from services.memory.store.filters import Filter
from services.memory.store.versions import FOREVER, Moment

ENTRY_ID = re.compile(r"[A-Za-z0-9._~@+-]{1,255}")
MAX_WAIT_MS = 30_000
DEFAULT_WAIT_MS = 10_000
SESSION_ID = re.compile(r"[A-Za-z0-9._~:@+-]{1,255}")


def checked_time(name: str, text: str) -> datetime:
    """A time of RFC 3339, which has an offset."""
    try:
        # A plus in a query string arrives as a space.
        time = datetime.fromisoformat(text.strip().replace(" ", "+") if "T" in text.upper() else "")
        if time.tzinfo is not None:
            return time.astimezone(UTC)
    except (ValueError, OverflowError):
        pass
    raise InvalidParameter(f"{name} must be a time with an offset, such as 2026-03-09T12:00:00Z.")


def checked_moment(as_of: str | None, known_at: str | None) -> Moment | None:
    """None when the present is asked for."""
    if not as_of and not known_at:
        return None
    return Moment(
        checked_time("as_of", as_of) if as_of else FOREVER,
        checked_time("known_at", known_at) if known_at else FOREVER,
    )


def checked_path(path: str | None, limits: Limits) -> str:
    problem = "path is required" if path is None else path_problem(path, limits.path_bytes)
    if path is None or problem is not None:
        raise InvalidParameter(f"{problem}.")
    return path


def checked_session(session_id: str | None) -> str | None:
    """A session's id; empty means none, which is how some clients say it."""
    if not session_id:
        return None
    if not SESSION_ID.fullmatch(session_id) or session_id in (".", ".."):
        raise InvalidParameter("session_id must be 1 to 255 characters of A-Z, a-z, 0-9 and ._~:@+-, not '.' or '..'.")
    return session_id


def checked_filter(path: str | None, path_prefix: str | None, session_id: str | None, limits: Limits) -> Filter:
    if path is not None and path_prefix is not None:
        raise InvalidParameter("path and path_prefix cannot be combined.")
    if path_prefix is not None and (problem := prefix_problem(path_prefix, limits.path_bytes)):
        raise InvalidParameter(f"path_prefix: {problem}.")
    return Filter(
        None if path is None else checked_path(path, limits), path_prefix or None, checked_session(session_id)
    )


def sent(name: str) -> str:
    """An id from a URL; what no entry can be called is simply not found, and must not reach the database."""
    return name if ENTRY_ID.fullmatch(name) else ""


def sent_text(name: str, text: str) -> str:
    try:
        return storable(text)
    except ValueError as error:
        raise InvalidParameter(f"{name} {error}.") from None


def checked_entry_id(entry_id: str | None) -> str | None:
    if entry_id is None:
        return None
    if not ENTRY_ID.fullmatch(entry_id) or entry_id in (".", ".."):
        raise InvalidParameter(
            "managed_memory_entry_id must be 1 to 255 characters of A-Z, a-z, 0-9 and ._~@+-, not '.' or '..'."
        )
    return entry_id


def check_texts(body: EntryBody | PutBody, limits: Limits) -> None:
    check_bytes("content", body.content, limits.content_bytes)
    check_bytes("description", body.description, limits.description_bytes)


def checked_query(query: str | None, limits: Limits) -> str:
    if query is None or not query.strip():
        raise InvalidParameter("query is required and must not be blank.")
    if len(query.encode("utf-8", "surrogatepass")) > limits.query_bytes:
        raise InvalidParameter(f"query may have at most {limits.query_bytes} bytes.")
    # A query is data: what no stored word can hold finds nothing, and is no error.
    return query.encode("utf-8", "replace").decode().replace("\x00", " ")


def search_limit(body: SearchBody, limits: Limits) -> int:
    if body.limit and body.page_size and body.limit != body.page_size:
        raise InvalidParameter("limit is the older name of page_size: when both are sent they must be equal.")
    return page_size(body.page_size or body.limit, default=limits.page_default, maximum=limits.page_max)


def entry_cursor(cursor: list[Any] | None) -> tuple[str, UUID] | None:
    if cursor is None:
        return None
    try:
        return storable(cursor[0]), UUID(cursor[1])
    except ValueError:
        raise InvalidParameter("page_token is not one that this list gave.") from None


def checked_waiting(actor_id: str, wait_for: WaitFor | None, max_wait_ms: int | None) -> tuple[Goal, float] | None:
    """What to wait for, and how many seconds at most."""
    if max_wait_ms is not None and not 0 <= max_wait_ms <= MAX_WAIT_MS:
        raise InvalidParameter(f"max_wait_ms must be from 0 to {MAX_WAIT_MS}.")
    if wait_for is None:
        return None
    if not 0 <= wait_for.position <= INT64:
        raise InvalidParameter("wait_for.position must be the position of an item, as its append answered it.")
    store = bare_name(SESSION_STORES, wait_for.session_store)
    goal = Goal(actor_id, store, wait_for.session_id, wait_for.position)
    return goal, (DEFAULT_WAIT_MS if max_wait_ms is None else max_wait_ms) / 1000


def checked_waiting_query(
    actor_id: str, session_store: str | None, session_id: str | None, position: str | None, max_wait_ms: str | None
) -> tuple[Goal, float] | None:
    """As `checked_waiting`, from a query string."""
    named = (session_store, session_id, position)
    wait_for = None
    if session_store is not None and session_id is not None and position is not None:
        wait_for = WaitFor(
            session_store=sent_text("wait_for_session_store", session_store),
            session_id=sent_text("wait_for_session_id", session_id),
            position=_whole("wait_for_position", position),
        )
    elif any(each is not None for each in named):
        raise InvalidParameter(
            "wait_for_session_store, wait_for_session_id and wait_for_position belong together: send all three."
        )
    return checked_waiting(actor_id, wait_for, None if max_wait_ms is None else _whole("max_wait_ms", max_wait_ms))


def _whole(name: str, text: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 19:
        raise InvalidParameter(f"{name} must be a whole number.")
    return int(text)
