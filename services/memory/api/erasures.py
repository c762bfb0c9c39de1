"""Forgetting an actor over HTTP, for whoever may write or is an admin."""

from typing import Any
from uuid import UUID

from fastapi import APIRouter, Request
from pydantic import BaseModel
from starlette.responses import Response

from libs.chassis.errors import NotFound
from libs.chassis.http import Authenticated, json_response
from libs.chassis.idempotency import REPLAYED, IdempotencyKey
from libs.chassis.openapi import TAKES_KEY
from libs.chassis.stores import Stores
from libs.chassis.texts import Text, check_actor
from libs.chassis.times import rfc3339
from libs.contracts.limits import Limits
from libs.contracts.routes import BASE, MEMORY_STORES
from services.memory.api import shapes
from services.memory.api.shapes import answering
from services.memory.api.stores import in_store
from services.memory.store.erasures import Erasures, Receipt


class EraseBody(BaseModel):
    actor_id: Text | None = None


def erasure_routes(stores: Stores, erasures: Erasures, limits: Limits) -> APIRouter:
    router = APIRouter(prefix=f"{BASE}/{MEMORY_STORES}/{{store_id}}", tags=["erasure"])

    @router.post("/actors:erase", **answering(shapes.Receipt), openapi_extra=TAKES_KEY)
    async def erase_actor(store_id: str, request: Request, caller: Authenticated, body: EraseBody) -> Response:
        actor_id = check_actor(body.actor_id, limits)
        key = IdempotencyKey.of(request, caller, await request.body())
        receipt, replayed = await in_store(
            stores, caller, store_id, lambda uid: erasures.erase(caller, uid, actor_id, key)
        )
        return json_response(_body(receipt), headers=REPLAYED if replayed else None)

    @router.get("/erasures/{erasure_id}", **answering(shapes.Receipt))
    async def get_erasure(store_id: str, erasure_id: str, caller: Authenticated) -> Response:
        wanted = _uuid(erasure_id)
        receipt = await in_store(stores, caller, store_id, lambda uid: erasures.get(caller, uid, wanted))
        if receipt is None:
            raise NotFound(f"Erasure '{erasure_id[:80]}' does not exist in this store.")
        return json_response(_body(receipt))

    return router


def _uuid(erasure_id: str) -> UUID:
    try:
        return UUID(erasure_id)
    except ValueError:
        return UUID(int=0)


def _body(receipt: Receipt) -> dict[str, Any]:
    counts = {"memory": receipt.memory}
    if receipt.distiller is not None:
        counts["distiller"] = receipt.distiller
    return {
        "erasure_id": str(receipt.erasure_id),
        "actor_id": receipt.actor_id,
        "state": receipt.state,
        "counts": counts,
        "create_time": rfc3339(receipt.create_time),
    }
