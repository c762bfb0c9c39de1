"""The change feed over HTTP."""

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Header
from starlette.responses import Response, StreamingResponse

from libs.chassis.errors import InvalidParameter
from libs.chassis.http import Authenticated
from libs.chassis.stores import Stores
from libs.chassis.texts import check_actor
from libs.contracts.limits import Limits
from libs.contracts.routes import BASE, MEMORY_STORES
from services.memory.api.checks import sent_text
from services.memory.api.stores import in_store
from services.memory.feed import Feed, place_of
from services.memory.store.changes import Place

# A proxy that buffers would hold the events back.
HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}


def watch_routes(stores: Stores, feed: Feed, limits: Limits) -> APIRouter:
    router = APIRouter(prefix=f"{BASE}/{MEMORY_STORES}/{{store_id}}", tags=["memory entries"])

    @router.get(
        "/entries:watch", response_class=StreamingResponse, responses={200: {"content": {"text/event-stream": {}}}}
    )
    async def watch_entries(
        store_id: str,
        caller: Authenticated,
        actor_id: str | None = None,
        last_event_id: Annotated[str | None, Header()] = None,
    ) -> Response:
        actor = None if actor_id is None else sent_text("actor_id", check_actor(actor_id, limits))
        place = _checked_place(last_event_id)

        async def start(uid: UUID) -> tuple[UUID, tuple[Place, bool]]:
            return uid, await feed.start(caller, uid, place)

        store_uid, (begin, is_reset) = await in_store(stores, caller, store_id, start)
        events = feed.events(caller, store_id, store_uid, actor, begin, reset=is_reset)
        return StreamingResponse(events, media_type="text/event-stream", headers=HEADERS)

    return router


def _checked_place(last_event_id: str | None) -> Place | None:
    if not last_event_id:
        return None
    place = place_of(last_event_id)
    if place is None:
        raise InvalidParameter("Last-Event-ID must be the id of an event of this feed.")
    return place
