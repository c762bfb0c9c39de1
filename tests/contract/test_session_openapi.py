"""The OpenAPI document says what the service does."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.support.servers import PostgresServer
from tests.support.session import SessionService, message, session_service

BO = {"principal_type": "USER", "name": "bo@example.com"}


@pytest.fixture(scope="module")
async def service(postgres: PostgresServer) -> AsyncIterator[SessionService]:
    async with session_service(postgres) as running:
        yield running


@pytest.fixture(scope="module")
async def document(service: SessionService) -> Any:
    return (await service.client.get("/openapi/session.json")).json()


def refs(value: Any) -> set[str]:
    if isinstance(value, dict):
        own = {value["$ref"]} if isinstance(value.get("$ref"), str) else set()
        return own.union(*(refs(each) for each in value.values()))
    return set().union(*(refs(each) for each in value)) if isinstance(value, list) else set()


async def test_the_events_have_their_document_too(service: SessionService) -> None:
    served = (await service.client.get("/asyncapi/session.json", headers={"Authorization": ""})).json()

    assert served["asyncapi"].startswith("3.")
    assert any("memory.actor.erased.v1" in channel for channel in served["channels"])


def test_every_reference_leads_somewhere(document: Any) -> None:
    for ref in refs(document):
        assert ref.removeprefix("#/components/schemas/") in document["components"]["schemas"]


def test_every_operation_names_its_answer_its_errors_and_its_token(document: Any) -> None:
    names = []
    for path, methods in document["paths"].items():
        for operation in methods.values():
            assert set(operation["responses"]) == {"200", "default"}, path
            schema = operation["responses"]["200"]["content"]["application/json"]["schema"]
            assert schema.keys() == {"$ref"}, path
            assert operation["security"] == ([] if path.startswith("/.well-known") else [{"bearer": []}])
            names.append(operation["operationId"])
    assert len(names) == len(set(names))


def test_posts_that_create_or_append_take_a_key(document: Any) -> None:
    taking = {
        path.rpartition("/")[2]
        for path, methods in document["paths"].items()
        for parameter in methods.get("post", {}).get("parameters", [])
        if parameter["name"] == "Idempotency-Key"
    }

    assert taking == {"session-stores", "sessions", "sessions:fork", "items:append", "items:pop", "actors:erase"}


def check(value: Any, schema: Any, document: Any) -> None:
    """Enough of JSON schema to hold an answer against its declaration."""
    if "$ref" in schema:
        return check(value, document["components"]["schemas"][schema["$ref"].rpartition("/")[2]], document)
    if "anyOf" in schema:
        schema = next((each for each in schema["anyOf"] if each.get("type") != "null"), schema)
        return check(value, schema, document)
    kind = schema.get("type")
    if kind == "object" and "properties" in schema:
        assert set(value) <= set(schema["properties"]), value
        assert set(schema.get("required", ())) <= set(value), value
        for name, each in value.items():
            check(each, schema["properties"][name], document)
    elif kind == "array":
        for each in value:
            check(each, schema["items"], document)
    elif kind:
        assert isinstance(value, {"string": str, "integer": int, "boolean": bool, "object": dict}[kind])
    return None


async def test_answers_have_the_declared_shape(service: SessionService, document: Any) -> None:
    store = "/api/2.0/agents/session-stores/shapes"
    session = f"{store}/sessions/s1"
    admin = service.keys.header(admin=True)
    calls: list[tuple[str, str, Any, Any]] = [
        ("POST", "/api/2.0/agents/session-stores", {"session_store_id": "shapes"}, {"retention_days": 3}),
        ("GET", "/api/2.0/agents/session-stores", {}, None),
        ("GET", store, {}, None),
        ("PATCH", store, {"update_mask": "description"}, {"description": "x"}),
        ("POST", f"{store}/sessions", {"session_id": "s1"}, {"actor_id": "ana"}),
        ("GET", f"{store}/sessions", {}, None),
        ("GET", session, {}, None),
        ("POST", f"{session}/items:append", {}, {"items": [{"data": message("a")}] * 20}),
        ("GET", f"{session}/items", {"page_size": "2"}, None),
        ("POST", f"{session}/items:pop", {}, None),
        ("POST", f"{store}/sessions:fork", {}, {"source_session_id": "s1", "actor_id": "bo"}),
        ("POST", f"{session}/items:clear", {}, None),
        ("POST", f"{store}/actors:erase", {}, {"actor_id": "bo"}),
        ("POST", f"{store}/permissions:grant", {}, {"principal": BO, "permission": "READ"}),
        ("GET", f"{store}/permissions", {}, None),
        ("GET", f"{store}/permissions/self", {}, None),
        ("POST", f"{store}/permissions:revoke", {}, {"principal": BO}),
        ("GET", "/ops/session/parked-messages", {}, None),
        ("GET", "/api/2.0/preview/scim/v2/Me", {}, None),
        ("GET", "/.well-known/databricks-config", {}, None),
        ("DELETE", session, {}, None),
        ("DELETE", store, {}, None),
    ]
    for method, path, params, body in calls:
        answer = await service.client.request(method, path, params=params, json=body, headers=admin)
        template = path.replace("/shapes", "/{store_id}").replace("/s1", "/{session_id}")

        assert answer.status_code == 200, answer.text
        declared = document["paths"][template][method.lower()]["responses"]["200"]
        check(answer.json(), declared["content"]["application/json"]["schema"], document)
