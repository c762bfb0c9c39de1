"""Every endpoint of the distiller against every kind of caller; a route without a row fails."""

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import pytest

from libs.contracts.routes import BASE, owner_of
from tests.support.servers import NatsServer, PostgresServer
from tests.support.service import until
from tests.support.system import System, system

PIPELINES = f"{BASE}/memory-pipelines"
PIPELINE = f"{PIPELINES}/{{pipeline_id}}"
OPS = "/ops/distiller"

# What each kind of caller gets. Reader and writer have that on both stores; a foreigner is an admin of another
# workspace with the creator's name.
CALLERS = ("nobody", "stranger", "reader", "writer", "creator", "admin", "foreigner")
Row = tuple[int, int, int, int, int, int, int]
ANYBODY: Row = (401, 200, 200, 200, 200, 200, 200)
SEEN: Row = (401, 403, 200, 200, 200, 200, 404)
MANAGED: Row = (401, 403, 403, 403, 200, 200, 404)
EXTRACT: Row = (401, 403, 403, 200, 200, 403, 404)
CREATE: Row = (401, 403, 403, 409, 409, 403, 404)  # the pair is taken
ADMIN: Row = (401, 403, 403, 403, 403, 200, 200)
ADMIN_OF_NOTHING: Row = (401, 403, 403, 403, 403, 404, 404)


@dataclass(frozen=True)
class Route:
    expected: Row
    json: Any = None
    params: Mapping[str, str] | None = None


ROUTES = {
    f"POST {PIPELINES}": Route(CREATE, {"session_store": "chats", "memory_store": "facts"}),
    f"GET {PIPELINES}": Route(ANYBODY),
    f"GET {PIPELINE}": Route(SEEN),
    f"PATCH {PIPELINE}": Route(MANAGED, {}, {"update_mask": "display_name"}),
    f"DELETE {PIPELINE}": Route(MANAGED),
    f"POST {PIPELINE}/run": Route(MANAGED),
    f"GET {PIPELINE}/runs": Route(SEEN),
    f"GET {PIPELINE}/runs/{{run_id}}": Route(SEEN),
    f"POST {PIPELINE}:replay": Route(MANAGED, {}),
    f"GET {PIPELINE}/replays": Route(MANAGED),
    f"GET {PIPELINE}/replays/{{replay_id}}": Route(MANAGED),
    f"DELETE {PIPELINE}/replays/{{replay_id}}": Route(MANAGED),
    f"GET {PIPELINE}/lanes": Route(MANAGED),
    f"POST {PIPELINE}/lanes:redrive": Route(MANAGED, {}),
    f"GET {PIPELINE}/usage": Route(MANAGED),
    f"POST {BASE}/session-stores/{{store_id}}/sessions/{{session_id}}/extractions": Route(
        EXTRACT, {"memory_store": "facts"}
    ),
    f"POST {OPS}/lanes:repair": Route(ADMIN, {}),
    f"POST {OPS}/batches:repair": Route(ADMIN, {}),
    f"GET {OPS}/usage": Route(ADMIN),
    f"GET {OPS}/parked-messages": Route(ADMIN),
    f"POST {OPS}/parked-messages/{{parked_id}}:redrive": Route(ADMIN_OF_NOTHING),
    f"DELETE {OPS}/parked-messages/{{parked_id}}": Route(ADMIN_OF_NOTHING),
}


@pytest.fixture(scope="module")
async def memstream(postgres: PostgresServer, nats: NatsServer) -> AsyncIterator[System]:
    async with system(postgres, nats) as running:
        running.client.headers = headers(running, "creator")
        for store, created in (("session-stores", "?session_store_id=chats"), ("memory-stores", "")):
            await running.call("POST", f"/{store}{created}", json={"display_name": "facts"} if not created else {})
            name = f"{store}/{'chats' if created else 'facts'}"
            for level in ("READ", "WRITE"):
                grantee = {"READ": "reader", "WRITE": "writer"}[level]
                principal = {"principal_type": "USER", "name": f"{grantee}@example.com"}
                await running.call(
                    "POST", f"/{name}/permissions:grant", json={"principal": principal, "permission": level}
                )
        await running.say("ana", "s1", "I am allergic to peanuts.")
        running.client.headers = {}
        yield running


def headers(memstream: System, caller: str) -> dict[str, str]:
    if caller == "nobody":
        return {}
    user = "creator@example.com" if caller == "foreigner" else f"{caller}@example.com"
    foreign = caller == "foreigner"
    return memstream.keys.header(user, workspace=2 if foreign else 1, admin=foreign or caller == "admin")


async def delete(memstream: System, pipeline: str) -> None:
    """Its run may be at work on the same rows, and then the answer is that nothing was written."""

    async def is_gone() -> bool:
        answer = await memstream.client.delete(f"{BASE}/{pipeline}", headers=headers(memstream, "creator"))
        return answer.status_code in (200, 404)

    await until(is_gone)


async def test_every_route_has_a_row_and_belongs_to_the_distiller(memstream: System) -> None:
    document = memstream.apps["distiller"].openapi()

    served = {f"{method.upper()} {path}" for path, methods in document["paths"].items() for method in methods}

    assert served == set(ROUTES)
    assert {owner_of(route.partition(" ")[2]) for route in served} == {"distiller"}


@pytest.mark.parametrize("route", ROUTES)
async def test_each_caller_gets_what_the_table_says(memstream: System, route: str) -> None:
    method, _, path = route.partition(" ")
    wanted = ROUTES[route]
    creator = headers(memstream, "creator")
    found = {}

    for caller in CALLERS:
        body = {"session_store": "chats", "memory_store": "facts"}
        made = (await memstream.client.post(PIPELINES, json=body, headers=creator)).json()["name"]
        run = (await memstream.client.post(f"{BASE}/{made}/run", headers=creator)).json()["name"]
        replay = (await memstream.client.post(f"{BASE}/{made}:replay", json={}, headers=creator)).json()["name"]
        # While one is active nobody starts another: a fresh pipeline without one.
        if path.endswith(("/run", ":replay")):
            await delete(memstream, made)
            made = (await memstream.client.post(PIPELINES, json=body, headers=creator)).json()["name"]
        ids = {
            "pipeline_id": made.rpartition("/")[2],
            "run_id": run.rpartition("/")[2],
            "replay_id": replay.rpartition("/")[2],
            "store_id": "chats",
            "session_id": "s1",
            "parked_id": str(uuid4()),
        }

        answer = await memstream.client.request(
            method, path.format(**ids), json=wanted.json, params=wanted.params, headers=headers(memstream, caller)
        )

        found[caller] = answer.status_code
        if answer.status_code != 200:
            assert set(answer.json()) == {"error_code", "message", "details"}, answer.text
        await delete(memstream, made)

    assert found == dict(zip(CALLERS, wanted.expected, strict=True))
