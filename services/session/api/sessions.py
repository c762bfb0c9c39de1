"""Sessions: create, get, list, update, delete."""

from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID, uuid4

from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel

from libs.chassis.http import Authenticated
from libs.chassis.idempotency import REPLAYED, IdempotencyKey
from libs.chassis.masks import update_mask
from libs.chassis.paging import decode_token, encode_token, page_size
from libs.chassis.texts import Text, check_actor, check_metadata
from libs.chassis.times import rfc3339
from libs.contracts.limits import Limits
from libs.contracts.routes import BASE, SESSION_STORES
from services.session.domain.ids import check_session_id
from services.session.domain.queries import parse_filter, sessions_order
from services.session.domain.records import Session
from services.session.store.sessions import Sessions


class NewSession(BaseModel):
    actor_id: Text | None = None
    parent_session_id: Text | None = None
    metadata: dict[Text, Text] | None = None


class SessionChange(BaseModel):
    metadata: dict[Text, Text] | None = None


def session_json(store_id: str, session: Session) -> dict[str, Any]:
    body: dict[str, Any] = {
        "name": f"{SESSION_STORES}/{store_id}/sessions/{session.session_id}",
        "session_id": session.session_id,
        "session_store_name": store_id,
        "actor_id": session.actor_id,
        "root_session_id": session.root_session_id,
        "metadata": session.metadata,
        "create_time": rfc3339(session.create_time),
        "update_time": rfc3339(session.update_time),
        "last_activity_time": rfc3339(session.last_activity_time),
        "last_position": session.last_position,
    }
    if session.parent_session_id is not None:
        body["parent_session_id"] = session.parent_session_id
    if session.forked_from_session_id is not None:
        body["forked_from_session_id"] = session.forked_from_session_id
    return body


def session_routes(sessions: Sessions, limits: Limits) -> APIRouter:
    router = APIRouter(prefix=f"{BASE}/{SESSION_STORES}/{{store_id}}/sessions", tags=["sessions"])

    @router.post("")
    async def create_session(
        store_id: str,
        request: Request,
        response: Response,
        caller: Authenticated,
        session_id: str | None = None,
        body: NewSession | None = None,
    ) -> dict[str, Any]:
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
        return session_json(store_id, session)

    @router.get("")
    async def list_sessions(
        store_id: str,
        caller: Authenticated,
        text: Annotated[str | None, Query(alias="filter")] = None,
        order_by: str | None = None,
        size: Annotated[str | None, Query(alias="page_size")] = None,
        token: Annotated[str | None, Query(alias="page_token")] = None,
    ) -> dict[str, Any]:
        limit = page_size(size, default=limits.page_default, maximum=limits.page_max)
        terms, order = parse_filter(text), sessions_order(order_by)
        scope = ("sessions", caller.workspace_id, store_id, terms, order)
        cursor = decode_token(scope, token, (datetime, UUID))
        after = (cursor[0], cursor[1]) if cursor else None
        found = await sessions.page(caller, store_id, terms=terms, order=order, after=after, limit=limit + 1)
        page: dict[str, Any] = {"sessions": [session_json(store_id, session) for session in found[:limit]]}
        if len(found) > limit:
            last = found[limit - 1]
            time = last.create_time if order.field == "create_time" else last.last_activity_time
            page["next_page_token"] = encode_token(scope, [time, last.session_uid])
        return page

    @router.get("/{session_id}")
    async def get_session(store_id: str, session_id: str, caller: Authenticated) -> dict[str, Any]:
        return session_json(store_id, await sessions.get(caller, store_id, session_id))

    @router.patch("/{session_id}")
    async def update_session(
        store_id: str,
        session_id: str,
        caller: Authenticated,
        mask: Annotated[str | None, Query(alias="update_mask")] = None,
        body: SessionChange | None = None,
    ) -> dict[str, Any]:
        update_mask(mask, ("metadata",))
        metadata = (body.metadata if body else None) or {}
        check_metadata(metadata, limits)
        return session_json(store_id, await sessions.update(caller, store_id, session_id, metadata))

    @router.delete("/{session_id}")
    async def delete_session(
        store_id: str, session_id: str, caller: Authenticated, force: Literal["true", "false"] | None = None
    ) -> dict[str, Any]:
        """With its descendants, unless `force=false` is sent: then a session that has any is refused."""
        await sessions.delete(caller, store_id, session_id, cascade=force != "false")
        return {}

    return router
