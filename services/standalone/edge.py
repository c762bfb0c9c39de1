"""One port for the three services: routes by the table of `libs.contracts.routes` alone, as any edge does."""

import json
from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.docs import get_swagger_ui_html
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from libs.chassis.app import Chassis
from libs.chassis.errors import ApiError, InvalidParameter, NotFound
from libs.chassis.health import liveness, readiness
from libs.chassis.http import json_response
from libs.contracts.ids import uuid7
from libs.contracts.routes import owner_of


class Edge:
    """`apps` by the service that owns them; their lifespans are the caller's."""

    def __init__(self, apps: Mapping[str, FastAPI], registry: CollectorRegistry) -> None:
        self._apps = dict(apps)
        self._registry = registry
        self._own = Starlette(
            routes=[
                Route("/healthz", self._healthz),
                Route("/readyz", self._readyz),
                Route("/metrics", self._metrics),
                Route("/openapi.json", self._openapi),
                Route("/docs", self._docs),
            ],
            exception_handlers={404: _no_endpoint, 405: _no_method},
        )
        self._own.router.redirect_slashes = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        owner = owner_of(scope["path"]) if scope["type"] == "http" else None
        app = self._own if owner is None else self._apps[owner]
        await app(scope, receive, send)

    async def _healthz(self, _: Request) -> Response:
        return _combined({name: liveness(chassis.bus) for name, chassis in self._chassis()}, "alive")

    async def _readyz(self, _: Request) -> Response:
        answers = {name: await readiness(chassis.database, chassis.bus) for name, chassis in self._chassis()}
        return _combined(answers, "ready")

    async def _metrics(self, _: Request) -> Response:
        return Response(generate_latest(self._registry), media_type=CONTENT_TYPE_LATEST)

    async def _openapi(self, _: Request) -> Response:
        return json_response(merged({name: app.openapi() for name, app in self._apps.items()}))

    async def _docs(self, _: Request) -> Response:
        return get_swagger_ui_html(openapi_url="/openapi.json", title="Memstream")

    def _chassis(self) -> list[tuple[str, Chassis]]:
        return [(name, app.state.chassis) for name, app in self._apps.items()]


def merged(documents: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
    """One OpenAPI document; of two different schemas with one name, the later gets its service's name in front."""
    whole: dict[str, Any] = {"openapi": "3.1.0", "info": {"title": "Memstream", "version": "1"}, "paths": {}}
    schemas: dict[str, Any] = {}
    for service, document in documents.items():
        text = json.dumps(document)
        for name, schema in document.get("components", {}).get("schemas", {}).items():
            if schemas.get(name, schema) != schema:
                text = text.replace(f'"#/components/schemas/{name}"', f'"#/components/schemas/{service}_{name}"')
                text = text.replace(f'"{name}": {{', f'"{service}_{name}": {{')
        renamed = json.loads(text)
        schemas |= renamed.get("components", {}).pop("schemas", {})
        whole["paths"] |= {path: item for path, item in renamed["paths"].items() if owner_of(_filled(path)) == service}
        whole.setdefault("components", {}).update(renamed.get("components", {}))
    whole["components"]["schemas"] = schemas
    return whole


def _filled(path: str) -> str:
    """A concrete path of a template: what the routing table is made for."""
    return path.replace("{", "").replace("}", "")


def _combined(answers: Mapping[str, tuple[int, dict[str, str]]], good: str) -> Response:
    """The worst status, and each service's own answer."""
    worst = max(status for status, _ in answers.values())
    bad = [body["status"] for _, body in answers.values() if body["status"] != good]
    return json_response(
        {"status": bad[0] if bad else good, "services": {name: body for name, (_, body) in answers.items()}},
        status=worst,
    )


def _refusal(error: ApiError) -> Response:
    request_id = str(uuid7())
    return json_response(error.body(request_id), status=error.status, headers={"x-request-id": request_id})


async def _no_endpoint(_: Request, __: Exception) -> Response:
    return _refusal(NotFound("No such endpoint."))


async def _no_method(request: Request, _: Exception) -> Response:
    error = InvalidParameter(f"This endpoint does not take {request.method}.")
    error.status = 405
    return _refusal(error)
