"""Erasing an actor from a session store and from everything that was distilled from it."""

from uuid import UUID

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel

from libs.chassis.errors import NotFound
from libs.chassis.http import Authenticated
from libs.chassis.idempotency import REPLAYED, IdempotencyKey
from libs.chassis.openapi import TAKES_KEY
from libs.chassis.texts import Text, check_actor
from libs.contracts.limits import Limits
from libs.contracts.routes import BASE, SESSION_STORES
from services.session.api.shapes import ErasureShape
from services.session.store.erasures import Erasures


class Erase(BaseModel):
    actor_id: Text | None = None


def erasure_routes(erasures: Erasures, limits: Limits) -> APIRouter:
    router = APIRouter(prefix=f"{BASE}/{SESSION_STORES}/{{store_id}}", tags=["erasure"])

    @router.post("/actors:erase", response_model_exclude_none=True, openapi_extra=TAKES_KEY)
    async def erase_actor(
        store_id: str, request: Request, response: Response, caller: Authenticated, body: Erase | None = None
    ) -> ErasureShape:
        """Begins an erasure; the receipt says what was removed and whether every service has confirmed."""
        actor_id = check_actor(body.actor_id if body else None, limits)
        key = IdempotencyKey.of(request, caller, await request.body())
        erasure, is_replayed = await erasures.erase(caller, store_id, actor_id, key)
        response.headers.update(REPLAYED if is_replayed else {})
        return ErasureShape.of(erasure)

    @router.get("/erasures/{erasure_id}", response_model_exclude_none=True)
    async def get_erasure(store_id: str, erasure_id: str, caller: Authenticated) -> ErasureShape:
        try:
            wanted = UUID(erasure_id)
        except ValueError:
            raise NotFound(f"Erasure '{erasure_id[:80]}' does not exist in this store.") from None
        return ErasureShape.of(await erasures.get(caller, store_id, wanted))

    return router
