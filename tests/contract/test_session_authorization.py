"""Every endpoint of the session service against every kind of caller; a route without a row fails."""

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import pytest

from libs.contracts.routes import BASE
from tests.support.servers import PostgresServer
from tests.support.session import SessionService, message, session_service

STORE = f"{BASE}/session-stores/{{store_id}}"
SESSION = f"{STORE}/sessions/{{session_id}}"
NEW_PRINCIPAL = {"principal": {"type": "USER", "name": "new@example.com"}}

# What each kind of caller gets. A foreigner is an admin of another workspace with the creator's name.
CALLERS = ("nobody", "stranger", "reader", "writer", "creator", "admin", "foreigner")
Row = tuple[int, int, int, int, int, int, int]
OPEN: Row = (200, 200, 200, 200, 200, 200, 200)
ANYBODY: Row = (401, 200, 200, 200, 200, 200, 200)
OF_THE_WORKSPACE: Row = (401, 200, 200, 200, 200, 200, 404)
RECORD: Row = (401, 403, 200, 200, 200, 200, 404)
MANAGE: Row = (401, 403, 403, 403, 200, 200, 404)
READ: Row = (401, 403, 200, 200, 200, 403, 404)
WRITE: Row = (401, 403, 403, 200, 200, 403, 404)
WRITE_OR_ADMIN: Row = (401, 403, 403, 200, 200, 200, 404)
ADMIN: Row = (401, 403, 403, 403, 403, 200, 200)
ADMIN_OF_NOTHING: Row = (401, 403, 403, 403, 403, 404, 404)


@dataclass(frozen=True)
class Route:
    expected: Row
    json: Any = None
    params: Mapping[str, str] | None = None


ROUTES = {
    f"POST {BASE}/session-stores": Route(ANYBODY, {}, {"session_store_id": "{fresh}"}),
    f"GET {BASE}/session-stores": Route(ANYBODY),
    f"GET {STORE}": Route(RECORD),
    f"PATCH {STORE}": Route(MANAGE, {}, {"update_mask": "description"}),
    f"DELETE {STORE}": Route(MANAGE),
    f"POST {STORE}/permissions:grant": Route(MANAGE, NEW_PRINCIPAL | {"permission": "READ"}),
    f"POST {STORE}/permissions:revoke": Route(MANAGE, NEW_PRINCIPAL),
    f"GET {STORE}/permissions": Route(MANAGE),
    f"GET {STORE}/permissions/self": Route(OF_THE_WORKSPACE),
    f"POST {STORE}/sessions": Route(WRITE, {"actor_id": "ana"}),
    f"GET {STORE}/sessions": Route(READ),
    f"POST {STORE}/sessions:fork": Route(WRITE, {"actor_id": "ana", "source_session_id": "s1"}),
    f"GET {SESSION}": Route(READ),
    f"PATCH {SESSION}": Route(WRITE, {}, {"update_mask": "metadata"}),
    f"DELETE {SESSION}": Route(WRITE),
    f"GET {SESSION}/items": Route(READ),
    f"POST {SESSION}/items:append": Route(WRITE, {"items": [{"data": 1}]}),
    f"POST {SESSION}/items:pop": Route(WRITE, {}),
    f"POST {SESSION}/items:clear": Route(WRITE, {}),
    f"POST {STORE}/actors:erase": Route(WRITE_OR_ADMIN, {"actor_id": "bo"}),
    f"GET {STORE}/erasures/{{erasure_id}}": Route(WRITE_OR_ADMIN),
    "GET /api/2.0/preview/scim/v2/Me": Route(ANYBODY),
    "GET /.well-known/databricks-config": Route(OPEN),
    "GET /ops/session/parked-messages": Route(ADMIN),
    "POST /ops/session/parked-messages/{parked_id}:redrive": Route(ADMIN_OF_NOTHING),
    "DELETE /ops/session/parked-messages/{parked_id}": Route(ADMIN_OF_NOTHING),
}


@pytest.fixture(scope="module")
async def service(postgres: PostgresServer) -> AsyncIterator[SessionService]:
    async with session_service(postgres) as running:
        running.client.headers.pop("authorization")
        yield running


async def test_every_route_has_a_row(service: SessionService) -> None:
    document = (await service.client.get("/openapi/session.json")).json()

    served = {f"{method.upper()} {path}" for path, methods in document["paths"].items() for method in methods}

    assert served == set(ROUTES)


def headers(service: SessionService, caller: str) -> dict[str, str]:
    if caller == "nobody":
        return {}
    user = "creator@example.com" if caller == "foreigner" else f"{caller}@example.com"
    foreign = caller == "foreigner"
    return service.keys.header(user, workspace=2 if foreign else 1, admin=foreign or caller == "admin")


@pytest.mark.parametrize("route", ROUTES)
async def test_each_caller_gets_what_the_table_says(service: SessionService, route: str) -> None:
    method, _, path = route.partition(" ")
    wanted = ROUTES[route]
    creator = headers(service, "creator")
    found = {}

    for caller in CALLERS:
        name = f"chats-{uuid4().hex[:8]}"
        store = await service.store(name, headers=creator)
        for level in ("READ", "WRITE"):
            grantee = "reader@example.com" if level == "READ" else "writer@example.com"
            await service.call(
                "POST",
                f"{store}/permissions:grant",
                json={"principal": {"type": "USER", "name": grantee}, "permission": level},
                headers=creator,
            )
        await service.session(store, headers=creator)
        await service.append(f"{store}/sessions/s1", message("hello"), headers=creator)
        erasure = await service.call("POST", f"{store}/actors:erase", json={"actor_id": "bo"}, headers=creator)
        ids = {"store_id": name, "session_id": "s1", "parked_id": str(uuid4()), "erasure_id": erasure["erasure_id"]}
        params = {key: value.format(fresh=f"new-{uuid4().hex[:8]}") for key, value in (wanted.params or {}).items()}

        answer = await service.client.request(
            method, path.format(**ids), json=wanted.json, params=params, headers=headers(service, caller)
        )

        found[caller] = answer.status_code
        assert answer.headers["x-request-id"]
        if answer.status_code != 200:
            assert set(answer.json()) == {"error_code", "message", "details"}

    assert found == dict(zip(CALLERS, wanted.expected, strict=True))
