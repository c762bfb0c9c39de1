"""Memory stores over HTTP, and the way from a name in a URL to a store's uid."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Annotated, Any, TypeVar
from uuid import UUID

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from libs.chassis.auth import Caller
from libs.chassis.errors import InvalidParameter
from libs.chassis.http import Authenticated, json_response
from libs.chassis.idempotency import REPLAYED, IdempotencyKey
from libs.chassis.masks import update_mask
from libs.chassis.openapi import TAKES_KEY
from libs.chassis.paging import decode_token, encode_token, page_size
from libs.chassis.stores import Store, Stores
from libs.chassis.texts import check_bytes, check_metadata
from libs.contracts.limits import Limits
from libs.contracts.routes import BASE, MEMORY_STORES
from services.memory.api.requests import StoreBody
from services.memory.api.shapes import MemoryStore, MemoryStorePage, Nothing, answering
from services.memory.api.wire import progress_body, store_body
from services.memory.embeddings import Embeddings
from services.memory.indexing import Indexing
from services.memory.store.access import Forbidden, StoreGone
from services.memory.store.vectors import Vectors
from services.memory.text import LANGUAGES

OPTIONS = ("language", "embedding_model", "history_days")
MUTABLE = ("description", "metadata", *OPTIONS)
MAX_HISTORY_DAYS = 36_500

T = TypeVar("T")


async def in_store(stores: Stores, caller: Caller, store_id: str, act: Callable[[UUID], Awaitable[T]]) -> T:
    """Acts on the store that the name means now; a remembered uid that is gone is looked up once more."""
    try:
        try:
            return await act(await stores.uid(caller.workspace_id, store_id))
        except StoreGone:
            return await act(await stores.uid(caller.workspace_id, store_id, fresh=True))
    except StoreGone:
        raise stores.kind.missing(store_id) from None
    except Forbidden as forbidden:
        raise stores.kind.denied(store_id, forbidden.level) from None


def store_routes(
    stores: Stores, limits: Limits, indexing: Indexing, embeddings: Embeddings, vectors: Vectors
) -> APIRouter:
    router = APIRouter(prefix=f"{BASE}/{MEMORY_STORES}", tags=["memory stores"])

    async def whole(store: Store) -> dict[str, Any]:
        """The store with how far its entries are analysed and embedded as it asks."""
        language = store.options.get("language") or indexing.language
        model = store.options.get("embedding_model")
        progress = await vectors.progress(store.store_uid, language, indexing.version, embeddings.space(model))
        return store_body(store, indexing.language) | progress_body(
            store, language, embeddings.dimensions(model), progress
        )

    @router.post("", **answering(MemoryStore), openapi_extra=TAKES_KEY)
    async def create_store(
        request: Request,
        caller: Authenticated,
        body: StoreBody | None = None,
        managed_memory_store_id: str | None = None,
    ) -> Response:
        body = body or StoreBody()
        name = managed_memory_store_id or body.display_name
        if body.display_name is not None and name != body.display_name:
            raise InvalidParameter("managed_memory_store_id and display_name must be equal when both are sent.")
        options = _checked(body, limits, embeddings.names_for(caller.principal))
        store, replayed = await stores.create(
            caller,
            stores.kind.check_name(name),
            description=body.description,
            metadata=body.metadata or {},
            options={option: value for option, value in options.items() if value is not None},
            key=IdempotencyKey.of(request, caller, await request.body()),
        )
        return json_response(await whole(store), headers=REPLAYED if replayed else None)

    @router.get("", **answering(MemoryStorePage))
    async def list_stores(
        caller: Authenticated,
        size: Annotated[str | None, Query(alias="page_size")] = None,
        token: Annotated[str | None, Query(alias="page_token")] = None,
    ) -> Response:
        limit = page_size(size, default=limits.page_default, maximum=limits.page_max)
        scope = (MEMORY_STORES, caller.workspace_id)
        cursor = decode_token(scope, token, (str,))
        found = await stores.page(caller, cursor[0] if cursor else None, limit + 1)
        page: dict[str, Any] = {
            "managed_memory_stores": [store_body(store, indexing.language) for store in found[:limit]]
        }
        if len(found) > limit:
            page["next_page_token"] = encode_token(scope, [found[limit - 1].store_id])
        return json_response(page)

    @router.get("/{store_id}", **answering(MemoryStore))
    async def get_store(store_id: str, caller: Authenticated) -> Response:
        return json_response(await whole(await stores.get(caller, store_id)))

    @router.patch("/{store_id}", **answering(MemoryStore))
    async def update_store(
        store_id: str,
        caller: Authenticated,
        body: StoreBody | None = None,
        mask: Annotated[str | None, Query(alias="update_mask")] = None,
    ) -> Response:
        body = body or StoreBody()
        paths = update_mask(mask, (*MUTABLE, "display_name"))
        if "display_name" in paths and body.display_name != store_id:
            raise InvalidParameter("display_name cannot be changed; it may be masked only when it equals the id.")
        options = _checked(body, limits, embeddings.names_for(caller.principal))
        store = await stores.update(
            caller,
            store_id,
            paths - {"display_name"},
            description=body.description,
            metadata=body.metadata or {},
            options=options,
        )
        return json_response(await whole(store))

    @router.delete("/{store_id}", **answering(Nothing))
    async def delete_store(store_id: str, caller: Authenticated) -> Response:
        await stores.delete(caller, store_id)
        return json_response({})

    return router


def _checked(body: StoreBody, limits: Limits, models: Sequence[str]) -> Mapping[str, Any]:
    """The kind's own options, once everything in the body is legal."""
    check_bytes("description", body.description, limits.description_bytes)
    check_metadata(body.metadata, limits)
    if body.language is not None and body.language not in LANGUAGES:
        raise InvalidParameter(f"language must be one of {', '.join(LANGUAGES)}.")
    if body.embedding_model is not None and body.embedding_model not in models:
        raise InvalidParameter(
            f"embedding_model must be one of {', '.join(models)}."
            if models
            else "embedding_model: there is none for you here; the operator sets EMBEDDING_MODEL or MODELS_FILE."
        )
    if body.history_days is not None and not 1 <= body.history_days <= MAX_HISTORY_DAYS:
        raise InvalidParameter(f"history_days must be from 1 to {MAX_HISTORY_DAYS}, or absent to keep everything.")
    return {option: getattr(body, option) for option in OPTIONS}
