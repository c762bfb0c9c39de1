"""Items. Append and list are plain routes: FastAPI's handling costs a quarter of their speed."""

import asyncio

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from libs.chassis.errors import InvalidParameter
from libs.chassis.http import authenticated, json_response
from libs.chassis.idempotency import REPLAYED, IdempotencyKey
from libs.chassis.openapi import Empty, Operation
from libs.chassis.paging import decode_token, encode_token, page_size
from libs.contracts.limits import Limits
from libs.contracts.routes import BASE, SESSION_STORES
from services.session.api.shapes import Append, Appended, ItemPage, Popped
from services.session.domain.queries import items_are_ascending, parse_position, parse_positions
from services.session.domain.splitting import split
from services.session.store.items import Items
from services.session.store.pages import ItemPages

PATH = f"{BASE}/{SESSION_STORES}/{{store_id}}/sessions/{{session_id}}/items"
POSITIONS_MAX = 100
SMALL_BYTES = 256 * 1024  # above, splitting takes more than a few milliseconds and leaves the event loop


OPERATIONS = (
    Operation(
        "POST",
        f"{PATH}:append",
        "append_session_items",
        "Append items in order, all or none.",
        "items",
        Appended,
        Append,
        has_key=True,
    ),
    Operation(
        "GET",
        PATH,
        "list_session_items",
        "List items, newest first unless asked otherwise.",
        "items",
        ItemPage,
        query={
            "order_by": "`create_time desc` (default) or `create_time asc`.",
            "page_size": "1 to 100; a page of large items is shorter.",
            "page_token": "The `next_page_token` of the page before.",
            "after": "Only items beyond this position in the asked direction.",
            "positions": "Only the items at these positions, as `1,5,9`.",
        },
    ),
    Operation(
        "POST", f"{PATH}:pop", "pop_session_item", "Remove and return the newest item.", "items", Popped, has_key=True
    ),
    Operation(
        "POST",
        f"{PATH}:clear",
        "clear_session_items",
        "Remove all items.",
        "items",
        Empty,
        query={"through": "Only the items up to this position, inclusive."},
    ),
)


class ItemRoutes:
    def __init__(self, items: Items, pages: ItemPages, limits: Limits) -> None:
        self._items = items
        self._pages = pages
        self._limits = limits

    def routes(self) -> list[Route]:
        return [
            Route(f"{PATH}:append", self.append, methods=["POST"]),
            Route(PATH, self.list, methods=["GET"]),
            Route(f"{PATH}:pop", self.pop, methods=["POST"]),
            Route(f"{PATH}:clear", self.clear, methods=["POST"]),
        ]

    async def append(self, request: Request) -> Response:
        caller = await authenticated(request)
        body = await request.body()
        key = IdempotencyKey.of(request, caller, body)
        if len(body) > SMALL_BYTES:
            append = await asyncio.to_thread(split, body, self._limits)
        else:
            append = split(body, self._limits)
        done = await self._items.append(
            caller, *_path(request), append.items, expected_position=append.expected_position, key=key
        )
        return _response(f'{{"session_items":[{done.items}]}}', is_replayed=done.is_replayed)

    async def list(self, request: Request) -> Response:
        caller = await authenticated(request)
        query = request.query_params
        store_id, session_id = _path(request)
        is_ascending = items_are_ascending(query.get("order_by"))
        after = parse_position("after", query.get("after"))
        positions = parse_positions(query.get("positions"), POSITIONS_MAX)
        if positions is not None and after is not None:
            raise InvalidParameter("positions cannot be combined with after.")
        scope = ("items", caller.workspace_id, store_id, session_id, is_ascending, after, query.get("positions"))
        cursor = decode_token(scope, query.get("page_token"), (int,))
        default = self._limits.page_default if positions is None else POSITIONS_MAX
        limit = page_size(query.get("page_size"), default=default, maximum=self._limits.page_max)
        page = await self._pages.page(
            caller,
            store_id,
            session_id,
            is_ascending=is_ascending,
            after=cursor[0] if cursor else after,
            positions=positions,
            limit=limit,
            max_bytes=self._limits.page_bytes,
        )
        tail = ""
        if page.next_after is not None:
            tail = f',"next_page_token":"{encode_token(scope, [page.next_after])}"'
        return _response(f'{{"session_items":[{page.items}]{tail}}}')

    async def pop(self, request: Request) -> Response:
        caller = await authenticated(request)
        key = IdempotencyKey.of(request, caller, await request.body())
        popped = await self._items.pop(caller, *_path(request), key)
        return _response(f'{{"item":{popped.item}}}' if popped.item else "{}", is_replayed=popped.is_replayed)

    async def clear(self, request: Request) -> Response:
        caller = await authenticated(request)
        through = parse_position("through", request.query_params.get("through"))
        await self._items.clear(caller, *_path(request), through=through)
        return json_response({})


def _response(body: str, *, is_replayed: bool = False) -> Response:
    return Response(body, 200, REPLAYED if is_replayed else None, "application/json")


def _path(request: Request) -> tuple[str, str]:
    return request.path_params["store_id"], request.path_params["session_id"]
