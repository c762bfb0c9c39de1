"""Sessions: create, fork, get, list, update, delete."""

from datetime import datetime
from typing import Annotated, Literal
from uuid import UUID, uuid4

from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel

from libs.chassis.errors import InvalidParameter
from libs.chassis.http import Authenticated
from libs.chassis.idempotency import REPLAYED, IdempotencyKey
from libs.chassis.masks import update_mask
from libs.chassis.openapi import TAKES_KEY, Empty
from libs.chassis.paging import decode_token, encode_token, page_size
from libs.chassis.texts import Text, check_actor, check_metadata
from libs.contracts.limits import Limits
from libs.contracts.routes import BASE, SESSION_STORES
from services.session.api.shapes import Forked, SessionPage, SessionShape
from services.session.domain.ids import check_session_id
from services.session.domain.queries import parse_filter, sessions_order
from services.session.store.sessions import Sessions


class NewSession(BaseModel):
    actor_id: Text | None = None
    parent_session_id: Text | None = None
    metadata: dict[Text, Text] | None = None


class Fork(BaseModel):
    """`up_to_item_id` is the last item that is copied."""

    source_session_id: Text | None = None
    actor_id: Text | None = None
    up_to_item_id: Text | None = None
    session_id: Text | None = None
    metadata: dict[Text, Text] | None = None


class SessionChange(BaseModel):
    metadata: dict[Text, Text] | None = None


def session_routes(sessions: Sessions, limits: Limits) -> APIRouter:
    router = APIRouter(prefix=f"{BASE}/{SESSION_STORES}/{{store_id}}", tags=["sessions"])

    @router.post("/sessions", response_model_exclude_none=True, openapi_extra=TAKES_KEY)
    async def create_session(
        store_id: str,
        request: Request,
        response: Response,
        caller: Authenticated,
        session_id: str | None = None,
        body: NewSession | None = None,
    ) -> SessionShape:
        body = body or NewSession()
        check_metadata(body.metadata, limits)
        session, is_replayed = await sessions.create(
            caller,
            store_id,
            check_session_id(session_id or str(uuid4())),
            actor_id=check_actor(body.actor_id, limits),
            parent_session_id=body.parent_session_id or None,
            metadata=body.metadata or {},
            key=IdempotencyKey.of(request, caller, await request.body()),
        )
        response.headers.update(REPLAYED if is_replayed else {})
        return SessionShape.of(store_id, session)

    @router.post("/sessions:fork", response_model_exclude_none=True, openapi_extra=TAKES_KEY)
    async def fork_session(
        store_id: str, request: Request, response: Response, caller: Authenticated, body: Fork | None = None
    ) -> Forked:
        """An independent session with a copy of another one's items, whose positions begin at 1."""
        body = body or Fork()
        check_metadata(body.metadata, limits)
        if not body.source_session_id:
            raise InvalidParameter("source_session_id is required.")
        session, is_replayed = await sessions.fork(
            caller,
            store_id,
            check_session_id(body.session_id or str(uuid4())),
            source_session_id=body.source_session_id,
            up_to_item_id=body.up_to_item_id or None,
            actor_id=check_actor(body.actor_id, limits),
            metadata=body.metadata or {},
            key=IdempotencyKey.of(request, caller, await request.body()),
        )
        response.headers.update(REPLAYED if is_replayed else {})
        return Forked(session=SessionShape.of(store_id, session))

    @router.get("/sessions", response_model_exclude_none=True)
    async def list_sessions(
        store_id: str,
        caller: Authenticated,
        text: Annotated[str | None, Query(alias="filter")] = None,
        order_by: str | None = None,
        size: Annotated[str | None, Query(alias="page_size")] = None,
        token: Annotated[str | None, Query(alias="page_token")] = None,
    ) -> SessionPage:
        limit = page_size(size, default=limits.page_default, maximum=limits.page_max)
        terms, order = parse_filter(text), sessions_order(order_by)
        scope = ("sessions", caller.workspace_id, store_id, terms, order)
        cursor = decode_token(scope, token, (datetime, UUID))
        after = (cursor[0], cursor[1]) if cursor else None
        found = await sessions.page(caller, store_id, terms=terms, order=order, after=after, limit=limit + 1)
        token = None
        if len(found) > limit:
            last = found[limit - 1]
            time = last.create_time if order.field == "create_time" else last.last_activity_time
            token = encode_token(scope, [time, last.session_uid])
        shown = [SessionShape.of(store_id, session) for session in found[:limit]]
        return SessionPage(sessions=shown, next_page_token=token)

    @router.get("/sessions/{session_id}", response_model_exclude_none=True)
    async def get_session(store_id: str, session_id: str, caller: Authenticated) -> SessionShape:
        return SessionShape.of(store_id, await sessions.get(caller, store_id, session_id))

    @router.patch("/sessions/{session_id}", response_model_exclude_none=True)
    async def update_session(
        store_id: str,
        session_id: str,
        caller: Authenticated,
        mask: Annotated[str | None, Query(alias="update_mask")] = None,
        body: SessionChange | None = None,
    ) -> SessionShape:
        update_mask(mask, ("metadata",))
        metadata = (body.metadata if body else None) or {}
        check_metadata(metadata, limits)
        return SessionShape.of(store_id, await sessions.update(caller, store_id, session_id, metadata))

    @router.delete("/sessions/{session_id}")
    async def delete_session(
        store_id: str, session_id: str, caller: Authenticated, force: Literal["true", "false"] | None = None
    ) -> Empty:
        """With its descendants, unless `force=false` is sent: then a session that has any is refused."""
        await sessions.delete(caller, store_id, session_id, cascade=force != "false")
        return Empty()

    return router
