"""Who may call what: one row for every endpoint of the OpenAPI document, and none too many."""

from dataclasses import dataclass, field
from typing import Any

import pytest

from libs.contracts.ids import uuid7
from libs.contracts.routes import BASE, owner_of
from tests.support.memory import STORES, Memory

CALLERS = ("creator", "writer", "reader", "admin", "stranger", "foreigner", "nobody")
STORE = f"{STORES}/{{store_id}}"
ENTRY = f"{STORE}/entries/{{entry_id}}"
PARKED = "/ops/memory/parked-messages"


@dataclass(frozen=True)
class Row:
    """`allowed`: who gets further than the door. What is beyond it may still be a 400 or a 404 of its own."""

    allowed: str
    json: dict[str, Any] | None = None
    params: dict[str, Any] = field(default_factory=dict)


ENTRY_BODY = {"actor_id": "ana", "path": "/x.md", "content": "x"}
PRINCIPAL = {"principal": {"principal_type": "USER", "name": "someone@example.com"}}
EVERYBODY = "creator writer reader admin stranger foreigner"
IN_WORKSPACE = "creator writer reader admin stranger"

TABLE: dict[tuple[str, str], Row] = {
    ("POST", STORES): Row(EVERYBODY, {"display_name": "x"}),
    ("GET", STORES): Row(EVERYBODY),
    ("GET", STORE): Row("creator writer reader admin"),
    ("PATCH", STORE): Row("creator admin", {"description": "d"}, {"update_mask": "description"}),
    ("DELETE", STORE): Row("creator admin"),
    ("POST", f"{STORE}/entries"): Row("creator writer", ENTRY_BODY),
    ("GET", f"{STORE}/entries"): Row("creator writer reader", params={"actor_id": "ana"}),
    ("POST", f"{STORE}/entries:put"): Row("creator writer", ENTRY_BODY),
    ("POST", f"{STORE}/entries:search"): Row("creator writer reader", {"actor_id": "ana", "query": "x"}),
    ("GET", f"{STORE}/entries:watch"): Row("creator writer reader"),
    ("GET", ENTRY): Row("creator writer reader"),
    ("PATCH", ENTRY): Row("creator writer", {"content": "y"}, {"update_mask": "content"}),
    ("DELETE", ENTRY): Row("creator writer"),
    ("GET", f"{ENTRY}/versions"): Row("creator writer reader"),
    ("POST", f"{ENTRY}:restore"): Row("creator writer", {"version": 1}),
    ("POST", f"{STORE}/actors:erase"): Row("creator writer admin", {"actor_id": "ana"}),
    ("GET", f"{STORE}/erasures/{{erasure_id}}"): Row("creator writer admin"),
    ("POST", f"{STORE}/permissions:grant"): Row("creator admin", PRINCIPAL | {"permission": "READ"}),
    ("POST", f"{STORE}/permissions:revoke"): Row("creator admin", PRINCIPAL),
    ("GET", f"{STORE}/permissions"): Row("creator admin"),
    ("GET", f"{STORE}/permissions/self"): Row(IN_WORKSPACE),
    ("GET", PARKED): Row("admin"),
    ("POST", f"{PARKED}/{{parked_id}}:redrive"): Row("admin"),
    ("DELETE", f"{PARKED}/{{parked_id}}"): Row("admin"),
}


def header(memory: Memory, caller: str) -> dict[str, str]:
    match caller:
        case "nobody":
            return {"Authorization": ""}
        case "creator":
            return memory.keys.header()
        case "admin":
            return memory.keys.header("root@example.com", admin=True)
        case "foreigner":
            return memory.keys.header(workspace=2)
        case _:
            return memory.keys.header(f"{caller}@example.com")


def documented(memory: Memory) -> set[tuple[str, str]]:
    return {(method.upper(), path) for path, methods in memory.app.openapi()["paths"].items() for method in methods}


async def test_every_endpoint_has_a_row_and_belongs_to_this_service(memory: Memory) -> None:
    endpoints = documented(memory)

    assert endpoints == TABLE.keys()
    assert {owner_of(path) for _, path in endpoints} == {"memory"}
    assert all(path.startswith((BASE, "/ops/memory")) for _, path in endpoints)


@pytest.mark.parametrize("caller", CALLERS)
async def test_a_caller_gets_no_further_than_the_table_says(memory: Memory, caller: str) -> None:
    for name, permission in (("writer", "WRITE"), ("reader", "READ")):
        principal = {"principal_type": "USER", "name": f"{name}@example.com"}
        grant = {"principal": principal, "permission": permission}
        await memory.ok("POST", memory.url("/permissions:grant"), json=grant)
    entry = (await memory.add("ana", "/a.md", "x"))["name"].rpartition("/")[2]
    names = {"store_id": "notes", "entry_id": entry, "erasure_id": str(uuid7()), "parked_id": str(uuid7())}

    for (method, path), row in sorted(TABLE.items(), key=lambda item: item[0] == ("DELETE", STORE)):
        if path.endswith(":watch") and caller in row.allowed.split():
            continue  # It never ends; the tests of the feed hold it.
        answer = await memory.client.request(
            method, path.format(**names), headers=header(memory, caller), json=row.json, params=row.params
        )
        code = answer.json().get("error_code", "")
        where = f"{caller}: {method} {path}: {answer.text}"
        if caller == "nobody":
            assert answer.status_code == 401, where
        elif caller in row.allowed.split():
            assert code != "PERMISSION_DENIED", where
            assert answer.status_code < 500, where
        elif caller == "foreigner" and not path.startswith("/ops"):
            assert answer.status_code == 404, where
        else:
            assert (answer.status_code, code) == (403, "PERMISSION_DENIED"), where
