"""What clients of this surface ask its neighbours: who am I, and how does one sign in here."""

from typing import Any

from fastapi import APIRouter

from libs.chassis.http import Authenticated


def neighbour_routes() -> APIRouter:
    router = APIRouter(tags=["neighbours"])

    @router.get("/api/2.0/preview/scim/v2/Me")
    async def me(caller: Authenticated) -> dict[str, Any]:
        who: dict[str, Any] = {"id": caller.principal, "userName": caller.principal, "active": True}
        if caller.principal_type == "USER":
            who["emails"] = [{"value": caller.principal, "primary": True}]
        return who

    @router.get("/.well-known/databricks-config")
    async def databricks_config() -> dict[str, Any]:
        """Read by the published client before it has a token; tokens are not got from here."""
        return {"oidc_endpoint": ""}

    return router
