"""Search over HTTP. A plain route: FastAPI's handling would take two fifths of a search's time in Python."""

from uuid import UUID

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from libs.chassis.http import authenticated, json_body, json_response
from libs.chassis.openapi import Operation
from libs.chassis.stores import Stores
from libs.chassis.texts import check_actor
from libs.contracts.limits import Limits
from libs.contracts.routes import BASE, MEMORY_STORES
from services.memory.api.checks import checked_filter, checked_moment, checked_query, checked_waiting, search_limit
from services.memory.api.requests import SearchBody
from services.memory.api.shapes import Hits
from services.memory.api.stores import in_store
from services.memory.api.wire import found_body, settled_body, shape_of
from services.memory.freshness import Freshness, Settled
from services.memory.search import Search
from services.memory.store.index import Asked
from services.memory.store.records import Found

PATH = f"{BASE}/{MEMORY_STORES}/{{store_id}}/entries:search"
OPERATIONS = (
    Operation(
        "POST",
        PATH,
        "search_entries",
        "Find the entries of an actor that answer a query, best first.",
        "memory entries",
        Hits,
        SearchBody,
    ),
)


def search_route(stores: Stores, search: Search, freshness: Freshness, limits: Limits) -> Route:
    async def search_entries(request: Request) -> Response:
        caller = await authenticated(request)
        body = await json_body(request, SearchBody)
        store_id: str = request.path_params["store_id"]
        actor_id = check_actor(body.actor_id, limits)
        query = checked_query(body.query, limits)
        shape = shape_of(body.view, body.read_mask)
        limit = search_limit(body, limits)
        wanted = checked_filter(None, body.path_prefix, body.session_id, limits)
        moment = checked_moment(body.as_of, body.known_at)
        asked = Asked(actor_id, query, wanted, body.min_score or 0.0, limit)
        waiting = checked_waiting(actor_id, body.wait_for, body.max_wait_ms)

        async def read(uid: UUID) -> tuple[Settled | None, list[Found]]:
            settled = None if waiting is None else await freshness.wait(caller, uid, *waiting)
            if moment is None:
                return settled, await search.search(caller, uid, asked)
            return settled, await search.search_then(caller, uid, asked, moment)

        settled, found = await in_store(stores, caller, store_id, read)
        told = [msgspec.Raw(msgspec.json.encode(shape(found_body(store_id, hit)))) for hit in found]
        results = [{"managed_memory_entry": each, "score": hit.score} for each, hit in zip(told, found, strict=True)]
        return json_response({"results": results, "managed_memory_entries": told} | settled_body(settled))

    return Route(PATH, search_entries, methods=["POST"])
