"""Whether this replica serves. Readiness is Postgres and keys only: without NATS, writes and reads go on."""

import asyncio

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from libs.chassis.bus import Bus
from libs.chassis.database import Database
from libs.chassis.errors import ApiError
from libs.chassis.http import json_response

MISSING_LIMIT_S = 30.0
PING_TIMEOUT_S = 2.0


async def readiness(database: Database, bus: Bus) -> tuple[int, dict[str, str]]:
    """Status and body of `/readyz`."""
    try:
        async with asyncio.timeout(PING_TIMEOUT_S):
            await database.fetchval("select 1")
    except (ApiError, TimeoutError):
        return 503, {"status": "unavailable", "database": "away", "bus": "up" if bus.connected else "away"}
    if not bus.connected:
        return 200, {"status": "degraded", "database": "up", "bus": "away"}
    return 200, {"status": "ready", "database": "up", "bus": "up"}


def liveness(bus: Bus) -> tuple[int, dict[str, str]]:
    """Status and body of `/healthz`; a stuck event loop answers nothing, which a probe's time-out tells."""
    missing_since = bus.health.missing_since
    if missing_since is not None and asyncio.get_running_loop().time() - missing_since > MISSING_LIMIT_S:
        return 503, {"status": "deaf", "reason": "NATS answers, but a consumer of the topology is missing"}
    if bus.health.refused is not None:
        return 503, {"status": "deaf", "reason": "NATS does not allow this service what it needs; see its log"}
    return 200, {"status": "alive"}


def health_routes(service: str, database: Database, bus: Bus, registry: CollectorRegistry) -> list[Route]:
    async def readyz(_: Request) -> Response:
        status, body = await readiness(database, bus)
        return json_response(body, status=status)

    async def healthz(_: Request) -> Response:
        status, body = liveness(bus)
        return json_response(body, status=status)

    async def metrics(_: Request) -> Response:
        return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)

    async def asyncapi(_: Request) -> Response:
        return Response(bus.asyncapi, media_type="application/json")

    return [
        Route("/readyz", readyz),
        Route("/healthz", healthz),
        Route("/metrics", metrics),
        Route(f"/asyncapi/{service}.json", asyncapi),
    ]
