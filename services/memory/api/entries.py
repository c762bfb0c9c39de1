"""Entries over HTTP."""

import re
from datetime import UTC, datetime
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from libs.chassis.errors import InvalidParameter
from libs.chassis.http import Authenticated, json_response
from libs.chassis.idempotency import REPLAYED, IdempotencyKey
from libs.chassis.masks import update_mask
from libs.chassis.paging import decode_token, encode_token, page_size
from libs.chassis.stores import Stores
from libs.chassis.texts import check_actor, check_bytes, storable
from libs.contracts.limits import Limits
from libs.contracts.routes import BASE, MEMORY_STORES
from services.memory.api.requests import EntryBody, SearchBody
from services.memory.api.stores import in_store
from services.memory.api.wire import entry_body, found_body, shape_of
from services.memory.domain import AGENT, DREAMER, path_problem, prefix_problem
from services.memory.search import Search
from services.memory.store.entries import Entries, Filter

ENTRY_ID = re.compile(r"[A-Za-z0-9._~@+-]{1,255}")
SESSION_ID = re.compile(r"[A-Za-z0-9._~:@+-]{1,255}")
SOURCE_TYPES = {None: AGENT, "MANAGED_MEMORY_ENTRY_SOURCE_TYPE_UNSPECIFIED": AGENT, AGENT: AGENT, DREAMER: DREAMER}
BLANK_ENTRY = EntryBody()


def entry_routes(stores: Stores, entries: Entries, search: Search, limits: Limits) -> APIRouter:
    router = APIRouter(prefix=f"{BASE}/{MEMORY_STORES}/{{store_id}}", tags=["memory entries"])

    @router.post("/entries")
    async def create_entry(
        store_id: str,
        request: Request,
        caller: Authenticated,
        body: EntryBody,
        managed_memory_entry_id: str | None = None,
    ) -> Response:
        actor_id = check_actor(body.actor_id, limits)
        path = checked_path(body.path, limits)
        _check_texts(body, limits)
        session_id = checked_session(body.session_id)
        if body.source_type not in SOURCE_TYPES:
            raise InvalidParameter(f"source_type must be {AGENT} or {DREAMER}.")
        entry_id = _checked_entry_id(managed_memory_entry_id)
        key = IdempotencyKey.of(request, caller, await request.body())
        entry, replayed = await in_store(
            stores,
            caller,
            store_id,
            lambda uid: entries.create(
                caller,
                uid,
                actor_id=actor_id,
                path=path,
                session_id=session_id,
                content=body.content,
                description=body.description,
                source_type=SOURCE_TYPES[body.source_type],
                entry_id=entry_id,
                key=key,
                now=datetime.now(UTC),
            ),
        )
        return json_response(entry_body(store_id, entry, []), headers=REPLAYED if replayed else None)

    @router.get("/entries")
    async def list_entries(
        store_id: str,
        caller: Authenticated,
        actor_id: str | None = None,
        path: str | None = None,
        path_prefix: str | None = None,
        session_id: str | None = None,
        size: Annotated[str | None, Query(alias="page_size")] = None,
        token: Annotated[str | None, Query(alias="page_token")] = None,
        view: str | None = None,
        read_mask: str | None = None,
    ) -> dict[str, Any]:
        actor = _sent_text("actor_id", check_actor(actor_id, limits))
        shape = shape_of(view, read_mask)
        wanted = checked_filter(path, path_prefix, session_id, limits)
        limit = page_size(size, default=limits.page_default, maximum=limits.page_max)
        scope = (MEMORY_STORES, caller.workspace_id, store_id, actor, path, path_prefix, session_id)
        cursor = _cursor(decode_token(scope, token, (str, str)))
        found = await in_store(
            stores, caller, store_id, lambda uid: entries.page(caller, uid, actor, wanted, cursor, limit + 1)
        )
        page: dict[str, Any] = {"managed_memory_entries": [shape(found_body(store_id, hit)) for hit in found[:limit]]}
        if len(found) > limit:
            last = found[limit - 1].entry
            page["next_page_token"] = encode_token(scope, [last.path, str(last.entry_uid)])
        return page

    @router.post("/entries:search")
    async def search_entries(store_id: str, caller: Authenticated, body: SearchBody) -> dict[str, Any]:
        actor_id = check_actor(body.actor_id, limits)
        query = _checked_query(body.query, limits)
        shape = shape_of(body.view, body.read_mask)
        limit = _search_limit(body, limits)
        wanted = checked_filter(None, body.path_prefix, body.session_id, limits)
        found = await in_store(
            stores,
            caller,
            store_id,
            lambda uid: search.search(
                caller, uid, actor_id, query, wanted, min_score=body.min_score or 0.0, limit=limit
            ),
        )
        shaped = [shape(found_body(store_id, hit)) for hit in found]
        results = [{"managed_memory_entry": each, "score": hit.score} for each, hit in zip(shaped, found, strict=True)]
        return {"results": results, "managed_memory_entries": shaped}

    @router.get("/entries/{entry_id}")
    async def get_entry(
        store_id: str,
        entry_id: str,
        caller: Authenticated,
        view: str | None = None,
        read_mask: str | None = None,
    ) -> dict[str, Any]:
        shape = shape_of(view, read_mask)
        found = await in_store(stores, caller, store_id, lambda uid: entries.get(caller, uid, sent(entry_id)))
        return shape(found_body(store_id, found))

    @router.patch("/entries/{entry_id}")
    async def update_entry(
        store_id: str,
        entry_id: str,
        caller: Authenticated,
        body: EntryBody = BLANK_ENTRY,
        mask: Annotated[str | None, Query(alias="update_mask")] = None,
    ) -> dict[str, Any]:
        paths = update_mask(mask, ("content", "description"))
        _check_texts(body, limits)
        entry = await in_store(
            stores,
            caller,
            store_id,
            lambda uid: entries.update(
                caller,
                uid,
                sent(entry_id),
                paths,
                content=body.content,
                description=body.description,
                now=datetime.now(UTC),
            ),
        )
        return entry_body(store_id, entry, [])

    @router.delete("/entries/{entry_id}")
    async def delete_entry(store_id: str, entry_id: str, caller: Authenticated) -> dict[str, Any]:
        await in_store(
            stores, caller, store_id, lambda uid: entries.delete(caller, uid, sent(entry_id), now=datetime.now(UTC))
        )
        return {}

    return router


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


def _sent_text(name: str, text: str) -> str:
    try:
        return storable(text)
    except ValueError as error:
        raise InvalidParameter(f"{name} {error}.") from None


def _checked_entry_id(entry_id: str | None) -> str | None:
    if entry_id is None:
        return None
    if not ENTRY_ID.fullmatch(entry_id) or entry_id in (".", ".."):
        raise InvalidParameter(
            "managed_memory_entry_id must be 1 to 255 characters of A-Z, a-z, 0-9 and ._~@+-, not '.' or '..'."
        )
    return entry_id


def _check_texts(body: EntryBody, limits: Limits) -> None:
    check_bytes("content", body.content, limits.content_bytes)
    check_bytes("description", body.description, limits.description_bytes)


def _checked_query(query: str | None, limits: Limits) -> str:
    if query is None or not query.strip():
        raise InvalidParameter("query is required and must not be blank.")
    if len(query.encode("utf-8", "surrogatepass")) > limits.query_bytes:
        raise InvalidParameter(f"query may have at most {limits.query_bytes} bytes.")
    # A query is data: what no stored word can hold finds nothing, and is no error.
    return query.encode("utf-8", "replace").decode().replace("\x00", " ")


def _search_limit(body: SearchBody, limits: Limits) -> int:
    if body.limit and body.page_size and body.limit != body.page_size:
        raise InvalidParameter("limit is the older name of page_size: when both are sent they must be equal.")
    return page_size(body.page_size or body.limit, default=limits.page_default, maximum=limits.page_max)


def _cursor(cursor: list[Any] | None) -> tuple[str, UUID] | None:
    if cursor is None:
        return None
    try:
        return storable(cursor[0]), UUID(cursor[1])
    except ValueError:
        raise InvalidParameter("page_token is not one that this list gave.") from None
