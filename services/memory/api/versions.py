"""The history of an entry over HTTP: what it said, and saying it again."""

from datetime import UTC, datetime
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from libs.chassis.http import Authenticated, json_response
from libs.chassis.idempotency import REPLAYED, IdempotencyKey
from libs.chassis.openapi import TAKES_KEY
from libs.chassis.paging import decode_token, encode_token, page_size
from libs.chassis.stores import Stores
from libs.chassis.times import rfc3339
from libs.contracts.limits import Limits
from libs.contracts.routes import BASE, MEMORY_STORES
from services.memory.api.checks import checked_time, sent
from services.memory.api.requests import RestoreBody
from services.memory.api.shapes import EntryVersionPage, MemoryEntry, answering
from services.memory.api.stores import in_store
from services.memory.api.wire import entry_body, version_body
from services.memory.store.entries import Entries
from services.memory.store.versions import Versions

MAX_VERSION = 2**31 - 1


def version_routes(stores: Stores, entries: Entries, versions: Versions, limits: Limits) -> APIRouter:
    router = APIRouter(
        prefix=f"{BASE}/{MEMORY_STORES}/{{store_id}}/entries/{{entry_id}}", tags=["memory entry versions"]
    )

    @router.get("/versions", **answering(EntryVersionPage))
    async def list_versions(
        store_id: str,
        entry_id: str,
        caller: Authenticated,
        size: Annotated[str | None, Query(alias="page_size")] = None,
        token: Annotated[str | None, Query(alias="page_token")] = None,
    ) -> Response:
        limit = page_size(size, default=limits.page_default, maximum=limits.page_max)
        scope = (MEMORY_STORES, caller.workspace_id, store_id, entry_id, "versions")
        cursor = decode_token(scope, token, (str, str, int))
        after = (
            None
            if cursor is None
            else (
                checked_time("page_token", cursor[0]),
                checked_time("page_token", cursor[1]),
                min(cursor[2], MAX_VERSION),
            )
        )
        told = await in_store(
            stores, caller, store_id, lambda uid: versions.page(caller, uid, sent(entry_id), after, limit + 1)
        )
        page: dict[str, Any] = {"versions": [version_body(store_id, each) for each in told[:limit]]}
        if len(told) > limit:
            last = told[limit - 1].version
            cursor = [rfc3339(last.valid_from), rfc3339(last.recorded_at), last.version]
            page["next_page_token"] = encode_token(scope, cursor)
        return json_response(page)

    @router.post(":restore", **answering(MemoryEntry), openapi_extra=TAKES_KEY)
    async def restore_entry(
        store_id: str, entry_id: str, request: Request, caller: Authenticated, body: RestoreBody
    ) -> Response:
        version = body.version if 0 < body.version <= MAX_VERSION else 0
        key = IdempotencyKey.of(request, caller, await request.body())
        entry, replayed = await in_store(
            stores,
            caller,
            store_id,
            lambda uid: entries.restore(caller, uid, sent(entry_id), version, key=key, now=datetime.now(UTC)),
        )
        return json_response(entry_body(store_id, entry, None), headers=REPLAYED if replayed else None)

    return router
