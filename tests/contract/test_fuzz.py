"""Whatever is sent to any operation of any service, it answers as its OpenAPI document says, and never by a fault.

Schemathesis makes requests that fit the document and requests that do not, and holds the answers against it. Added is
what it cannot know: the names of what is there, and values over which parsers and databases are known to stumble.
"""

import json
import os
from collections.abc import AsyncIterator, Iterator
from functools import cache
from importlib import import_module
from typing import Any, TypeAlias

import httpx
import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemathesis import APIOperation, Case, GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from services.standalone.settings import SERVICES
from tests.support.servers import NatsServer, PostgresServer
from tests.support.system import System, system

SOAK = os.environ.get("SOAK") == "1"
ENDLESS = "entries:watch"
Operation: TypeAlias = APIOperation[Any, Any, Any, Any]
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]
KNOWN = {"store_id": "fuzz", "session_id": "s1", "entry_id": "e1"}
KNOWN_IN_BODIES = {
    "actor_id": "ana",
    "source_session_id": "s1",
    "path": "/a.md",
    "session_store": "session-stores/fuzz",
    "memory_store": "memory-stores/fuzz",
}
NASTY: list[Any] = [
    2**31,
    2**53 + 1,
    2**63,
    -(2**63) - 1,
    10**400,
    0.5,
    1e308,
    True,
    None,
    [],
    {},
    [None],
    "",
    " ",
    "\0",
]
NASTY += ["a\0b", "\ud800", "x\udfff", "x" * 5000, "٣", "99999999999999999999", "../..", "%", "'; --", "2026-05-01"]
RAW = [
    b"",
    b"{",
    b"\xff",
    b'"\xed\xa0\x80"',
    b"[" * 5000,
    b'{"items":' + b"[" * 5000,
    b"null",
    b'{"a":NaN}',
    b'{"a":1}{',
]


DOCUMENTS: dict[str, Any] = {
    service: import_module(f"services.{service}.app").build(of(database_url="postgresql://")).openapi()  # type: ignore[arg-type]
    for service, of in SERVICES.items()
}


def operations() -> Iterator[Any]:
    for service, document in DOCUMENTS.items():
        for result in schemathesis.openapi.from_dict(document).get_all_operations():
            assert isinstance(result, Ok), result
            operation = result.ok()
            if ENDLESS not in operation.path:
                yield pytest.param(service, operation, id=operation.label)


@pytest.mark.parametrize("service", DOCUMENTS)
def test_no_answer_promises_a_field_that_is_left_out_when_it_is_null(service: str) -> None:
    for name, schema in DOCUMENTS[service]["components"]["schemas"].items():
        for field in schema.get("required", ()):
            assert {"type": "null"} not in schema["properties"][field].get("anyOf", ()), f"{name}.{field}"


@cache
def cases(operation: Operation, mode: GenerationMode, *, is_known: bool) -> st.SearchStrategy[Case[Operation]]:
    names = {name: KNOWN[name] for name in KNOWN if f"{{{name}}}" in operation.path}
    return operation.as_strategy(mode, path_parameters=names if is_known else None)


def request_of(case: Case[Operation], data: st.DataObject) -> httpx.Request:
    """As schemathesis would send it, now and then with what it cannot know in place of what it chose."""
    sent = case.as_transport_kwargs("http://memstream")
    body, query = sent.pop("json", None), sent["params"] or {}
    if isinstance(body, dict) and data.draw(st.booleans()):
        body |= {name: KNOWN_IN_BODIES[name] for name in body.keys() & KNOWN_IN_BODIES.keys()}
    for values in (body, query):
        if isinstance(values, dict) and values and not data.draw(st.integers(0, 4)):
            values[data.draw(st.sampled_from(sorted(values)))] = data.draw(st.sampled_from(NASTY))
    sent["params"] = {name: str(value).encode("utf-8", "surrogatepass") for name, value in query.items()}
    if case.operation.body:
        sent["headers"]["Content-Type"] = "application/json"
        sent["data"] = json.dumps(body) if "data" not in sent else sent["data"]
        if not data.draw(st.integers(0, 9)):
            sent["data"] = data.draw(st.sampled_from(RAW))
    prepared: Any = requests.Request(**sent).prepare()
    return httpx.Request(prepared.method, prepared.url, headers=dict(prepared.headers), content=prepared.body)


@pytest.fixture(scope="module")
async def memstream(postgres: PostgresServer, nats: NatsServer) -> AsyncIterator[System]:
    async with system(postgres, nats) as running:
        yield running


@pytest.fixture(autouse=True)
async def known(memstream: System) -> None:
    """What the known names name, whatever a test before has deleted."""
    for path, body in (
        ("/session-stores?session_store_id=fuzz", {}),
        ("/session-stores/fuzz/sessions?session_id=s1", {"actor_id": "ana"}),
        ("/session-stores/fuzz/sessions/s1/items:append", {"items": [{"data": 1}]}),
        ("/memory-stores", {"display_name": "fuzz"}),
        (
            "/memory-stores/fuzz/entries?managed_memory_entry_id=e1",
            {"actor_id": "ana", "path": "/a.md", "content": "x"},
        ),
        ("/memory-pipelines", {"session_store": "session-stores/fuzz", "memory_store": "memory-stores/fuzz"}),
    ):
        answer = await memstream.client.post(f"/api/2.0/agents{path}", json=body)
        assert answer.status_code in (200, 409), answer.text
        if answer.json().get("name", "").startswith("memory-pipelines/"):
            KNOWN["pipeline_id"] = answer.json()["name"].partition("/")[2]


@pytest.mark.parametrize(("service", "operation"), list(operations()))
@settings(
    max_examples=300 if SOAK else 25,
    derandomize=not SOAK,
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
)
@given(data=st.data())
async def test_every_answer_is_one_that_the_document_declares(
    memstream: System, service: str, operation: Operation, data: st.DataObject
) -> None:
    mode = data.draw(st.sampled_from([GenerationMode.POSITIVE, GenerationMode.NEGATIVE]))
    case = data.draw(cases(operation, mode, is_known=data.draw(st.integers(0, 3)) > 0))
    request = request_of(case, data)
    request.headers.update(memstream.keys.header(admin=data.draw(st.booleans())))

    async with httpx.AsyncClient(transport=httpx.ASGITransport(memstream.apps[service])) as client:
        answer = await client.send(request)

    case.validate_response(answer, checks=CHECKS)
    assert answer.headers["x-request-id"]
    if answer.status_code != 200:
        assert answer.json()["message"]
