"""`/ops/<service>`: what an admin does about parked messages. Payloads are never shown."""

from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Query

from libs.chassis.errors import InvalidParameter
from libs.chassis.http import Authenticated
from libs.chassis.paging import decode_token, encode_token, page_size
from libs.chassis.parked import ParkedMessages


def operation_routes(service: str, parked: ParkedMessages) -> APIRouter:
    router = APIRouter(prefix=f"/ops/{service}", tags=["operations"])

    @router.get("/parked-messages")
    async def list_parked(
        caller: Authenticated,
        size: Annotated[str | None, Query(alias="page_size")] = None,
        token: Annotated[str | None, Query(alias="page_token")] = None,
    ) -> dict[str, Any]:
        caller.require_admin()
        limit = page_size(size, default=50, maximum=1000)
        scope = ("parked", service, caller.workspace_id)
        cursor = decode_token(scope, token, (str,))
        messages = await parked.page(caller.workspace_id, UUID(cursor[0]) if cursor else None, limit + 1)
        page: dict[str, Any] = {"parked_messages": [message.model_dump(mode="json") for message in messages[:limit]]}
        if len(messages) > limit:
            page["next_page_token"] = encode_token(scope, [str(messages[limit - 1].parked_id)])
        return page

    @router.post("/parked-messages/{parked_id}:redrive")
    async def redrive_parked(parked_id: str, caller: Authenticated) -> dict[str, Any]:
        caller.require_admin()
        try:
            wanted = UUID(parked_id)
        except ValueError:
            raise InvalidParameter("A parked message's id is a UUID, as the list shows it.") from None
        await parked.redrive(caller.workspace_id, wanted)
        return {}

    return router
