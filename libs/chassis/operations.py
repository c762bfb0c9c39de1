"""`/ops/<service>`: what an admin does about parked messages. Payloads are never shown."""

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Query
from pydantic import BaseModel

from libs.chassis.errors import InvalidParameter
from libs.chassis.http import Authenticated
from libs.chassis.openapi import Empty
from libs.chassis.paging import decode_token, encode_token, page_size
from libs.chassis.parked import ParkedMessage, ParkedMessages


class ParkedMessagePage(BaseModel):
    parked_messages: list[ParkedMessage]
    next_page_token: str | None = None


def operation_routes(service: str, parked: ParkedMessages) -> APIRouter:
    router = APIRouter(prefix=f"/ops/{service}", tags=["operations"])

    @router.get("/parked-messages", response_model_exclude_none=True)
    async def list_parked(
        caller: Authenticated,
        size: Annotated[str | None, Query(alias="page_size")] = None,
        token: Annotated[str | None, Query(alias="page_token")] = None,
    ) -> ParkedMessagePage:
        caller.require_admin()
        limit = page_size(size, default=50, maximum=1000)
        scope = ("parked", service, caller.workspace_id)
        cursor = decode_token(scope, token, (UUID,))
        messages = await parked.page(caller.workspace_id, cursor[0] if cursor else None, limit + 1)
        next_page = encode_token(scope, [messages[limit - 1].parked_id]) if len(messages) > limit else None
        return ParkedMessagePage(parked_messages=messages[:limit], next_page_token=next_page)

    @router.post("/parked-messages/{parked_id}:redrive")
    async def redrive_parked(parked_id: str, caller: Authenticated) -> Empty:
        caller.require_admin()
        await parked.redrive(caller.workspace_id, _parked_id(parked_id))
        return Empty()

    @router.delete("/parked-messages/{parked_id}")
    async def drop_parked(parked_id: str, caller: Authenticated) -> Empty:
        """Gives a message up for good."""
        caller.require_admin()
        await parked.drop(caller.workspace_id, _parked_id(parked_id))
        return Empty()

    return router


def _parked_id(text: str) -> UUID:
    try:
        return UUID(text)
    except ValueError:
        raise InvalidParameter("A parked message's id is a UUID, as the list shows it.") from None
