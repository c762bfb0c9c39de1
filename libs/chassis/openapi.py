"""The OpenAPI document, made true: what plain routes take and give, bearer tokens, the one shape of every error.

FastAPI knows nothing of a plain Starlette route, and announces 422 where 400 is answered.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fastapi import FastAPI
from pydantic import BaseModel, ConfigDict
from pydantic.json_schema import JsonSchemaMode, models_json_schema

REF = "#/components/schemas/{model}"


class Error(BaseModel):
    """Every answer that is not a success."""

    model_config = ConfigDict(frozen=True)

    error_code: str
    message: str
    details: list[dict[str, Any]] = []


class Empty(BaseModel):
    """`{}`"""

    model_config = ConfigDict(frozen=True)


@dataclass(frozen=True)
class Operation:
    """A plain route, for the document."""

    method: str
    path: str
    name: str
    summary: str
    tag: str
    answer: type[BaseModel]
    body: type[BaseModel] | None = None
    query: Mapping[str, str] | None = None
    has_key: bool = False


def document(app: FastAPI, operations: Sequence[Operation] = (), *, open_paths: Sequence[str] = ()) -> None:
    """Completes the application's document; `open_paths` need no token. Call it once every route is there."""

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = _completed(made(), operations, open_paths)
        return app.openapi_schema

    made = app.openapi
    app.openapi = openapi  # type: ignore[method-assign]


def _completed(made: dict[str, Any], operations: Sequence[Operation], open_paths: Sequence[str]) -> dict[str, Any]:
    schema = made | {"paths": {path: dict(methods) for path, methods in made["paths"].items()}}
    components = schema.setdefault("components", {})
    models: set[type[BaseModel]] = {Error, *(model for o in operations for model in (o.body, o.answer) if model)}
    wanted: list[tuple[type[BaseModel], JsonSchemaMode]] = [(model, "serialization") for model in models]
    _, shared = models_json_schema(wanted, ref_template=REF)
    names: dict[str, Any] = components.get("schemas", {}) | shared["$defs"]
    components["schemas"] = {name: names[name] for name in names if not name.endswith("ValidationError")}
    components["securitySchemes"] = {"bearer": {"type": "http", "scheme": "bearer", "bearerFormat": "JWT"}}
    for operation in operations:
        schema["paths"].setdefault(operation.path, {})[operation.method.lower()] = _described(operation)
    error = {"description": "Refused", "content": {"application/json": {"schema": {"$ref": REF.format(model="Error")}}}}
    for path, methods in schema["paths"].items():
        for described in methods.values():
            described["responses"].pop("422", None)
            described["responses"]["default"] = error
            described["security"] = [] if path in open_paths else [{"bearer": []}]
            if KEY_PARAMETER in described.get("parameters", ()):
                described["responses"]["200"]["headers"] = REPLAYED_HEADER
    return schema


def _described(operation: Operation) -> dict[str, Any]:
    parameters = [_parameter("path", name) for name in re.findall(r"{(\w+)}", operation.path)]
    parameters += [_parameter("query", name, text) for name, text in (operation.query or {}).items()]
    if operation.has_key:
        parameters.append(KEY_PARAMETER)
    described: dict[str, Any] = {
        "tags": [operation.tag],
        "summary": operation.summary,
        "operationId": operation.name,
        "parameters": parameters,
        "responses": {"200": {"description": "Done", "content": _json(operation.answer)}},
    }
    if operation.body:
        described["requestBody"] = {"required": True, "content": _json(operation.body)}
    return described


def _json(model: type[BaseModel]) -> dict[str, Any]:
    return {"application/json": {"schema": {"$ref": REF.format(model=model.__name__)}}}


def _parameter(place: str, name: str, description: str | None = None) -> dict[str, Any]:
    parameter: dict[str, Any] = {"name": name, "in": place, "required": place == "path", "schema": {"type": "string"}}
    return parameter | ({"description": description} if description else {})


KEY_PARAMETER: dict[str, Any] = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": False,
    "description": "Repeats within 24 hours get the first answer.",
    "schema": {"type": "string", "minLength": 1, "maxLength": 255},
}

REPLAYED_HEADER: dict[str, Any] = {
    "Idempotent-Replayed": {
        "description": "`true` on the first answer given again.",
        "schema": {"type": "string", "enum": ["true"]},
    }
}

# For FastAPI's own routes: `@router.post(..., openapi_extra=TAKES_KEY)`.
TAKES_KEY: dict[str, Any] = {"parameters": [KEY_PARAMETER]}
