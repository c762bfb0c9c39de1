"""Whatever is sent to any operation of any service, it answers, and a refusal has the one shape of every error.

The operations come from the OpenAPI documents; what is sent fits the schema here and there, and is nonsense elsewhere.
"""

import json
import os
from collections.abc import AsyncIterator, Iterator
from importlib import import_module
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from services.standalone.settings import SERVICES
from tests.support.servers import NatsServer, PostgresServer
from tests.support.system import System, system

SOAK = os.environ.get("SOAK") == "1"
ENDLESS = "entries:watch"
KNOWN = {"store_id": "fuzz", "session_id": "s1", "actor_id": "ana", "source_session_id": "s1", "entry_id": "e1"}
KNOWN |= {"session_store": "session-stores/fuzz", "memory_store": "memory-stores/fuzz", "path": "/a.md"}
NUMBERS = [0, 1, -1, 7, 101, 2**31, 2**53 + 1, 2**63 - 1, 2**63, -(2**63) - 1, 10**400, 0.5, 1e308, float("nan")]
WORDS = """description|metadata|create_time asc|actor_id = "ana"|2026-05-01T09:30:00Z|READ|1,2|10|99999999999999999999
|true|-1|٣|CONTINUOUS|../..|%|'; --|{}|null| |""".replace("\n", "").split("|")
TEXTS = st.sampled_from([*WORDS, "\0", "a\0b", "\ud800", "x\udfff", "x" * 5000]) | st.text(st.characters(codec=None))
LEAVES = st.none() | st.booleans() | st.sampled_from(NUMBERS) | TEXTS
ANYTHING: st.SearchStrategy[Any] = LEAVES | st.lists(LEAVES, max_size=3) | st.dictionaries(TEXTS, LEAVES, max_size=3)
RAW = st.sampled_from([b"", b"{", b"\xff", b'"\xed\xa0\x80"', b"[" * 5000, b'{"items":' + b"[" * 5000, b"null", b"\0"])


def fitting(schema: Any, schemas: Any, name: str = "") -> st.SearchStrategy[Any]:
    """Values as the schema wants them, with a wrong one now and then."""
    if "$ref" in schema:
        return fitting(schemas[schema["$ref"].rpartition("/")[2]], schemas, name)
    if "anyOf" in schema:
        return st.one_of(*(fitting(each, schemas, name) for each in schema["anyOf"]))
    if "enum" in schema or "const" in schema:
        right: st.SearchStrategy[Any] = st.sampled_from(schema.get("enum") or [schema["const"]])
    elif schema.get("type") == "object" and "properties" in schema:
        properties = {key: fitting(each, schemas, key) for key, each in schema["properties"].items()}
        required = {key: properties.pop(key) for key in schema.get("required", ())}
        right = st.fixed_dictionaries(required, optional=properties)
    elif schema.get("type") == "array":
        right = st.lists(fitting(schema.get("items", {}), schemas), max_size=3)
    elif name in KNOWN:
        right = st.just(KNOWN[name])
    else:
        by_type = {"integer": st.sampled_from([0, 1, 5]), "boolean": st.booleans(), "string": TEXTS}
        right = by_type.get(schema.get("type", ""), ANYTHING)
    return _sometimes(ANYTHING, right)


def _sometimes(wrong: st.SearchStrategy[Any], right: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.integers(0, 19).flatmap(lambda dice: wrong if dice == 19 else right)


def operations() -> Iterator[Any]:
    for service, of in SERVICES.items():
        build = import_module(f"services.{service}.app").build
        document = build(of(database_url="postgresql://")).openapi()  # type: ignore[arg-type]
        for path, methods in document["paths"].items():
            for method, operation in methods.items():
                if ENDLESS not in path:
                    yield pytest.param(service, method, path, operation, document, id=f"{method} {path}")


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


@pytest.mark.parametrize(("service", "method", "path", "operation", "document"), list(operations()))
@settings(
    max_examples=300 if SOAK else 25,
    derandomize=not SOAK,
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
)
@given(data=st.data())
async def test_no_request_is_answered_by_a_fault(
    memstream: System, service: str, method: str, path: str, operation: Any, document: Any, data: st.DataObject
) -> None:
    schemas = document["components"]["schemas"]
    query, headers = {}, {}
    for parameter in operation.get("parameters", ()):
        if not parameter["required"] and data.draw(st.integers(0, 2)):
            continue
        name, value = parameter["name"], data.draw(fitting(parameter["schema"], schemas, parameter["name"]))
        text = value if isinstance(value, str) else json.dumps(value)
        if parameter["in"] == "path":
            path = path.replace(f"{{{name}}}", quote(text, safe="", errors="surrogatepass") or "-")
        elif parameter["in"] == "query" and value is not None:
            query[name] = quote(text, errors="surrogatepass")
        elif value is not None:
            headers[name] = text.encode("utf-8", "surrogatepass").translate(None, b"\r\n\0")
    content = None
    if "requestBody" in operation:
        schema = operation["requestBody"]["content"]["application/json"]["schema"]
        content = data.draw(_sometimes(RAW, fitting(schema, schemas).map(lambda body: json.dumps(body).encode())))
        headers["content-type"] = b"application/json"
    url = path + "?" + "&".join(f"{name}={value}" for name, value in query.items())

    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(memstream.apps[service]),
        base_url="http://memstream",
        headers=memstream.keys.header(admin=data.draw(st.booleans())),
    ) as client:
        answer = await client.request(method.upper(), url, content=content, headers=headers)

    body = answer.json()
    assert answer.status_code < 500, answer.text
    assert answer.headers["x-request-id"]
    if answer.status_code != 200:
        assert set(body) == {"error_code", "message", "details"}
        assert body["message"]
