"""Entries over HTTP."""

from datetime import UTC, datetime
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from libs.chassis.errors import InvalidParameter
from libs.chassis.http import Authenticated, json_response
from libs.chassis.idempotency import REPLAYED, IdempotencyKey
from libs.chassis.masks import update_mask
from libs.chassis.openapi import TAKES_KEY
from libs.chassis.paging import decode_token, encode_token, page_size
from libs.chassis.stores import Stores
from libs.chassis.texts import check_actor
from libs.contracts.limits import Limits
from libs.contracts.routes import BASE, MEMORY_STORES
from services.memory.api.checks import (
    check_texts,
    checked_entry_id,
    checked_filter,
    checked_moment,
    checked_path,
    checked_session,
    checked_waiting_query,
    entry_cursor,
    sent,
    sent_text,
)
from services.memory.api.requests import EntryBody, PutBody
from services.memory.api.shapes import MemoryEntry, MemoryEntryPage, Nothing, answering
from services.memory.api.stores import in_store
from services.memory.api.wire import entry_body, found_body, settled_body, shape_of
from services.memory.domain import AGENT, DREAMER
from services.memory.evidence import Evidence
from services.memory.freshness import Freshness, Settled
from services.memory.store.entries import Entries
from services.memory.store.records import Found
from services.memory.store.versions import Versions

SOURCE_TYPES = {None: AGENT, "MANAGED_MEMORY_ENTRY_SOURCE_TYPE_UNSPECIFIED": AGENT, AGENT: AGENT, DREAMER: DREAMER}
BLANK_ENTRY = EntryBody()


def entry_routes(
    stores: Stores,
    entries: Entries,
    versions: Versions,
    freshness: Freshness,
    evidence: Evidence,
    limits: Limits,
) -> APIRouter:
    router = APIRouter(prefix=f"{BASE}/{MEMORY_STORES}/{{store_id}}", tags=["memory entries"])

    @router.post("/entries", **answering(MemoryEntry), openapi_extra=TAKES_KEY)
    async def create_entry(
        store_id: str,
        request: Request,
        caller: Authenticated,
        body: EntryBody,
        managed_memory_entry_id: str | None = None,
    ) -> Response:
        actor_id = check_actor(body.actor_id, limits)
        path = checked_path(body.path, limits)
        check_texts(body, limits)
        session_id = checked_session(body.session_id)
        if body.source_type not in SOURCE_TYPES:
            raise InvalidParameter(f"source_type must be {AGENT} or {DREAMER}.")
        entry_id = checked_entry_id(managed_memory_entry_id)
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
        return json_response(entry_body(store_id, entry, None), headers=REPLAYED if replayed else None)

    @router.post("/entries:put", **answering(MemoryEntry), openapi_extra=TAKES_KEY)
    async def put_entry(store_id: str, request: Request, caller: Authenticated, body: PutBody) -> Response:
        actor_id = check_actor(body.actor_id, limits)
        path = checked_path(body.path, limits)
        session_id = checked_session(body.session_id)
        check_texts(body, limits)
        content = body.content
        if content is None:
            raise InvalidParameter("content is required; it may be empty.")
        key = IdempotencyKey.of(request, caller, await request.body())
        entry, replayed = await in_store(
            stores,
            caller,
            store_id,
            lambda uid: entries.put(
                caller,
                uid,
                actor_id=actor_id,
                path=path,
                session_id=session_id,
                content=content,
                description=body.description,
                append=body.append,
                expected_version=body.expected_version,
                key=key,
                now=datetime.now(UTC),
            ),
        )
        return json_response(entry_body(store_id, entry, None), headers=REPLAYED if replayed else None)

    @router.get("/entries", **answering(MemoryEntryPage))
    async def list_entries(
        store_id: str,
        caller: Authenticated,
        actor_id: str | None = None,
        path: str | None = None,
        path_prefix: str | None = None,
        session_id: str | None = None,
        wait_for_session_store: str | None = None,
        wait_for_session_id: str | None = None,
        wait_for_position: str | None = None,
        max_wait_ms: str | None = None,
        size: Annotated[str | None, Query(alias="page_size")] = None,
        token: Annotated[str | None, Query(alias="page_token")] = None,
        as_of: str | None = None,
        known_at: str | None = None,
        view: str | None = None,
        read_mask: str | None = None,
    ) -> Response:
        actor = sent_text("actor_id", check_actor(actor_id, limits))
        shape = shape_of(view, read_mask)
        wanted = checked_filter(path, path_prefix, session_id, limits)
        limit = page_size(size, default=limits.page_default, maximum=limits.page_max)
        moment = checked_moment(as_of, known_at)
        scope = (MEMORY_STORES, caller.workspace_id, store_id, actor, path, path_prefix, session_id, as_of, known_at)
        cursor = entry_cursor(decode_token(scope, token, (str, str)))

        waiting = checked_waiting_query(
            actor, wait_for_session_store, wait_for_session_id, wait_for_position, max_wait_ms
        )

        async def read(uid: UUID) -> tuple[Settled | None, list[Found]]:
            settled = None if waiting is None else await freshness.wait(caller, uid, *waiting)
            if moment is None:
                return settled, await entries.page(caller, uid, actor, wanted, cursor, limit + 1)
            return settled, await versions.at(caller, uid, actor, moment, wanted, cursor, limit + 1)

        settled, found = await in_store(stores, caller, store_id, read)
        page: dict[str, Any] = {"managed_memory_entries": [shape(found_body(store_id, hit)) for hit in found[:limit]]}
        if len(found) > limit:
            last = found[limit - 1].entry
            page["next_page_token"] = encode_token(scope, [last.path, str(last.entry_uid)])
        return json_response(page | settled_body(settled))

    @router.get("/entries/{entry_id}", **answering(MemoryEntry))
    async def get_entry(
        store_id: str,
        entry_id: str,
        caller: Authenticated,
        as_of: str | None = None,
        known_at: str | None = None,
        view: str | None = None,
        read_mask: str | None = None,
    ) -> Response:
        shape = shape_of(view, read_mask)
        moment = checked_moment(as_of, known_at)

        async def read(uid: UUID) -> Found:
            if moment is None:
                return await evidence.looked_up(await entries.get(caller, uid, sent(entry_id)))
            return await versions.get(caller, uid, sent(entry_id), moment)

        found = await in_store(stores, caller, store_id, read)
        return json_response(shape(found_body(store_id, found)))

    @router.patch("/entries/{entry_id}", **answering(MemoryEntry))
    async def update_entry(
        store_id: str,
        entry_id: str,
        caller: Authenticated,
        body: EntryBody = BLANK_ENTRY,
        mask: Annotated[str | None, Query(alias="update_mask")] = None,
    ) -> Response:
        paths = update_mask(mask, ("content", "description"))
        check_texts(body, limits)
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
        return json_response(entry_body(store_id, entry, None))

    @router.delete("/entries/{entry_id}", **answering(Nothing))
    async def delete_entry(store_id: str, entry_id: str, caller: Authenticated) -> Response:
        await in_store(
            stores, caller, store_id, lambda uid: entries.delete(caller, uid, sent(entry_id), now=datetime.now(UTC))
        )
        return json_response({})

    return router
