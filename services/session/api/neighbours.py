"""What clients of this surface ask its neighbours: who am I, and how does one sign in here."""

from fastapi import APIRouter

from libs.chassis.http import Authenticated
from services.session.api.shapes import Discovery, Me

CONFIG_PATH = "/.well-known/databricks-config"


def neighbour_routes() -> APIRouter:
    router = APIRouter(tags=["neighbours"])

    @router.get("/api/2.0/preview/scim/v2/Me", response_model_exclude_none=True)
    async def me(caller: Authenticated) -> Me:
        is_user = caller.principal_type == "USER"
        emails = [{"value": caller.principal, "primary": True}] if is_user else None
        return Me(id=caller.principal, userName=caller.principal, emails=emails)

    @router.get(CONFIG_PATH)
    async def databricks_config() -> Discovery:
        """Read by the published client before it has a token; tokens are not got from here."""
        return Discovery()

    return router
