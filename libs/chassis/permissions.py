"""The permission endpoints of any kind of store: grant, revoke, list, self; the same code for every service."""

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query
from pydantic import AliasChoices, BaseModel, Field, StringConstraints, create_model

from libs.chassis.errors import InvalidParameter
from libs.chassis.http import Authenticated
from libs.chassis.openapi import Empty
from libs.chassis.paging import decode_token, encode_token, page_size
from libs.chassis.stores import LEVEL_NAMES, READ, WRITE, Stores
from libs.chassis.texts import Text
from libs.contracts.limits import Limits
from libs.contracts.requests import PrincipalType
from libs.contracts.routes import BASE, PERMISSIONS_BASE

Name = Annotated[Text, StringConstraints(min_length=1, max_length=256)]


class Principal(BaseModel):
    """A user by e-mail or a service principal by client id. `type` is the older spelling of `principal_type`."""

    principal_type: PrincipalType = Field(validation_alias=AliasChoices("principal_type", "type"))
    name: Name


class Grant(BaseModel):
    principal: Principal
    permission: Literal["READ", "WRITE"]


class Revocation(BaseModel):
    principal: Principal


class Permission(BaseModel):
    """What a principal may do with a store."""

    principal: Principal
    permission: Literal["READ", "WRITE", "PERMISSION_LEVEL_UNSPECIFIED"]

    @classmethod
    def of(cls, principal_type: str, name: str, level: int) -> "Permission":
        return cls.model_validate(
            {
                "principal": {"principal_type": principal_type, "name": name},
                "permission": LEVEL_NAMES.get(level, "PERMISSION_LEVEL_UNSPECIFIED"),
            }
        )


def permission_routes(stores: Stores, limits: Limits) -> APIRouter:
    """Four endpoints below both published base paths."""
    kind = stores.kind
    listed = f"{kind.noun.replace(' ', '_')}_permissions"
    fields: dict[str, Any] = {listed: list[Permission], "next_page_token": (str | None, None)}
    page_model = create_model(f"{kind.noun.title().replace(' ', '')}Permissions", **fields)
    router = APIRouter(tags=[f"{kind.noun} permissions"])

    async def grant(store_id: str, body: Grant, caller: Authenticated) -> Empty:
        level = WRITE if body.permission == "WRITE" else READ
        await stores.grant(caller, store_id, body.principal.principal_type, body.principal.name, level)
        return Empty()

    async def revoke(store_id: str, body: Revocation, caller: Authenticated) -> Empty:
        await stores.revoke(caller, store_id, body.principal.principal_type, body.principal.name)
        return Empty()

    async def list_grants(
        store_id: str,
        caller: Authenticated,
        size: Annotated[str | None, Query(alias="page_size")] = None,
        token: Annotated[str | None, Query(alias="page_token")] = None,
    ) -> dict[str, Any]:
        limit = page_size(size, default=limits.permissions_page_default, maximum=limits.permissions_page_max)
        scope = (kind.resource, caller.workspace_id, store_id, "permissions")
        rows = await stores.grants(caller, store_id, decode_token(scope, token, (str, str)), limit + 1)
        page: dict[str, Any] = {listed: [Permission.of(*row) for row in rows[:limit]]}
        if len(rows) > limit:
            page["next_page_token"] = encode_token(scope, rows[limit - 1][:2])
        return page

    async def own(store_id: str, caller: Authenticated) -> Permission:
        store = await stores.find(caller, store_id)
        return Permission.of(caller.principal_type, caller.principal, store.level)

    for base in (BASE, PERMISSIONS_BASE):
        path = f"{base}/{kind.resource}/{{store_id}}/permissions"
        listed_in_docs = base == BASE
        router.add_api_route(f"{path}:grant", grant, methods=["POST"], include_in_schema=listed_in_docs)
        router.add_api_route(f"{path}:revoke", revoke, methods=["POST"], include_in_schema=listed_in_docs)
        router.add_api_route(
            path,
            list_grants,
            methods=["GET"],
            include_in_schema=listed_in_docs,
            response_model=page_model,
            response_model_exclude_none=True,
        )
        router.add_api_route(f"{path}/self", own, methods=["GET"], include_in_schema=listed_in_docs)
    return router


def bare_name(kind_resource: str, name: str) -> str:
    """`session-stores/x` or `x` as `x`; another resource's form is `InvalidParameter`."""
    head, slash, tail = name.rpartition("/")
    if slash and head != kind_resource:
        raise InvalidParameter(f"'{name[:80]}' must be '{kind_resource}/<name>' or a bare name.")
    return tail
