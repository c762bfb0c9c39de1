"""The OpenAPI document says what the service answers: every answer here is held against its schema."""

from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest

from services.memory.app import build
from tests.support.memory import STORES, Distiller, Memory, said, settings
from tests.support.service import Keys


@pytest.fixture(scope="module")
def document(keys: Keys) -> dict[str, Any]:
    return build(settings("postgresql://unused", keys)).openapi()


def test_every_operation_names_its_answer_its_errors_and_its_token(document: dict[str, Any]) -> None:
    for path, methods in document["paths"].items():
        for operation in methods.values():
            assert set(operation["responses"]) == {"200", "default"}, path
            content = operation["responses"]["200"]["content"]
            if not path.endswith("entries:watch"):
                assert content["application/json"]["schema"].keys() == {"$ref"}, path
            assert operation["security"] == [{"bearer": []}], path


def test_posts_that_create_take_a_key(document: dict[str, Any]) -> None:
    taking = {
        path.rpartition("/")[2]
        for path, methods in document["paths"].items()
        for parameter in methods.get("post", {}).get("parameters", [])
        if parameter["name"] == "Idempotency-Key"
    }

    assert taking == {"memory-stores", "entries", "entries:put", "{entry_id}:restore", "actors:erase"}


async def test_answers_are_what_the_document_says(memory: Memory, document: dict[str, Any]) -> None:
    checked: set[tuple[str, str]] = set()

    async def call(method: str, template: str, url: str, **request: Any) -> dict[str, Any]:
        body = await memory.ok(method, url, **request)
        operation = document["paths"][template][method.lower()]
        schema = operation["responses"]["200"]["content"]["application/json"]["schema"]
        jsonschema.validate(body, {**schema, "components": document["components"]})
        checked.add((method, template))
        return body

    store, entry = f"{STORES}/{{store_id}}", f"{STORES}/{{store_id}}/entries/{{entry_id}}"
    await call("POST", STORES, STORES, json={"display_name": "other", "description": "d", "history_days": 9})
    await call("GET", STORES, STORES)
    await call("GET", store, memory.url())
    await call("PATCH", store, memory.url(), params={"update_mask": "language"}, json={"language": "french"})
    await call("DELETE", store, memory.url(store="other"))
    distiller = await Distiller.of(memory)
    await distiller.tell(said("/job.md", "Works at Northwind", kind="event", event_date="2026-01-01"))
    body = {"actor_id": "ana", "path": "/a.md", "content": "one", "session_id": "s"}
    made = await call("POST", f"{store}/entries", memory.url("/entries"), json=body)
    await call("POST", f"{store}/entries:put", memory.url("/entries:put"), json=body | {"description": "two"})
    url = f"/api/2.0/agents/{made['name']}"
    await call("PATCH", entry, url, params={"update_mask": "content"}, json={"content": "three"})
    await call("GET", entry, url)
    await call("GET", f"{store}/entries", memory.url("/entries"), params={"actor_id": "ana", "page_size": 1})
    asked = {"actor_id": "ana", "query": "Northwind three", "read_mask": "path"}
    found = await call("POST", f"{store}/entries:search", memory.url("/entries:search"), json=asked)
    assert len(found["results"]) == 2
    await call("GET", f"{entry}/versions", f"{url}/versions", params={"page_size": 1})
    await call("POST", f"{entry}:restore", f"{url}:restore", json={"version": 1})
    await call("DELETE", entry, url)
    receipt = await call("POST", f"{store}/actors:erase", memory.url("/actors:erase"), json={"actor_id": "ana"})
    await call("GET", f"{store}/erasures/{{erasure_id}}", memory.url(f"/erasures/{receipt['erasure_id']}"))

    every = {(method.upper(), path) for path, methods in document["paths"].items() for method in methods}
    assert {each for each in every - checked if "/permissions" not in each[1] and "/ops/" not in each[1]} == {
        ("GET", f"{store}/entries:watch")
    }
