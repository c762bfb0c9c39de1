"""Session stores: create, get, list, update, delete."""

import re
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel, Field, StrictInt

from libs.chassis.errors import InvalidParameter
from libs.chassis.http import Authenticated
from libs.chassis.idempotency import REPLAYED, IdempotencyKey
from libs.chassis.masks import update_mask
from libs.chassis.openapi import TAKES_KEY, Empty
from libs.chassis.paging import decode_token, encode_token, page_size
from libs.chassis.stores import StoreKind, Stores
from libs.chassis.texts import Text, check_bytes, check_metadata
from libs.contracts.events import SessionStoreDeleted
from libs.contracts.limits import Limits
from libs.contracts.routes import BASE, SESSION_STORES
from services.session.api.shapes import SessionStore, SessionStorePage

KIND = StoreKind(
    table="session_stores",
    resource=SESSION_STORES,
    noun="session store",
    pattern=re.compile(r"[a-z]([a-z0-9-]{0,61}[a-z0-9])?(?<=...)", re.ASCII),
    rule="3 to 63 characters of a-z 0-9 -, beginning with a letter and not ending with -",
    deleted=lambda workspace_id, store_uid: SessionStoreDeleted(workspace_id=workspace_id, store_uid=store_uid),
)
MASK = ("description", "metadata", "retention_days", "idle_ttl_minutes")
OPTIONS = ("retention_days", "idle_ttl_minutes")

Mask = Annotated[str | None, Query(description=f"What to change, with commas between: {', '.join(MASK)}.")]


class StoreBody(BaseModel):
    """What is absent or null is not set; on an update, what the mask names and is absent is cleared."""

    description: Text | None = None
    metadata: dict[Text, Text] | None = None
    retention_days: Annotated[StrictInt, Field(ge=1, le=36_500)] | None = None
    idle_ttl_minutes: Annotated[StrictInt, Field(ge=1, le=52_560_000)] | None = None


def store_routes(stores: Stores, limits: Limits) -> APIRouter:
    router = APIRouter(prefix=f"{BASE}/{SESSION_STORES}", tags=["session stores"])

    def check(body: StoreBody | None) -> StoreBody:
        body = body or StoreBody()
        check_bytes("description", body.description, limits.description_bytes)
        check_metadata(body.metadata, limits)
        return body

    @router.post("", response_model_exclude_none=True, openapi_extra=TAKES_KEY)
    async def create_session_store(
        request: Request,
        response: Response,
        caller: Authenticated,
        session_store_id: str | None = None,
        session_store_name: str | None = None,
        body: StoreBody | None = None,
    ) -> SessionStore:
        names = {name for name in (session_store_id, session_store_name) if name is not None}
        if len(names) > 1:
            raise InvalidParameter("session_store_id and session_store_name must be the same when both are sent.")
        body = check(body)
        store, is_replayed = await stores.create(
            caller,
            KIND.check_name(next(iter(names), None)),
            description=body.description,
            metadata=body.metadata or {},
            options=body.model_dump(include=set(OPTIONS), exclude_none=True),
            key=IdempotencyKey.of(request, caller, await request.body()),
        )
        response.headers.update(REPLAYED if is_replayed else {})
        return SessionStore.of(store)

    @router.get("", response_model_exclude_none=True)
    async def list_session_stores(
        caller: Authenticated,
        size: Annotated[str | None, Query(alias="page_size")] = None,
        token: Annotated[str | None, Query(alias="page_token")] = None,
    ) -> SessionStorePage:
        limit = page_size(size, default=limits.page_default, maximum=limits.page_max)
        scope = (SESSION_STORES, caller.workspace_id)
        cursor = decode_token(scope, token, (str,))
        found = await stores.page(caller, cursor[0] if cursor else None, limit + 1)
        return SessionStorePage(
            session_stores=[SessionStore.of(store) for store in found[:limit]],
            next_page_token=encode_token(scope, [found[limit - 1].store_id]) if len(found) > limit else None,
        )

    @router.get("/{store_id}", response_model_exclude_none=True)
    async def get_session_store(store_id: str, caller: Authenticated) -> SessionStore:
        return SessionStore.of(await stores.get(caller, store_id))

    @router.patch("/{store_id}", response_model_exclude_none=True)
    async def update_session_store(
        store_id: str,
        caller: Authenticated,
        mask: Annotated[Mask, Query(alias="update_mask")] = None,
        body: StoreBody | None = None,
    ) -> SessionStore:
        named = update_mask(mask, MASK)
        body = check(body)
        changed = await stores.update(
            caller,
            store_id,
            named,
            description=body.description,
            metadata=body.metadata or {},
            options=body.model_dump(include=set(OPTIONS)),
        )
        return SessionStore.of(changed)

    @router.delete("/{store_id}")
    async def delete_session_store(store_id: str, caller: Authenticated) -> Empty:
        await stores.delete(caller, store_id)
        return Empty()

    return router
