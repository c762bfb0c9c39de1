"""What the services say reaches a user of the client: each record against the schema of what it is read from.

A new field of a service, or one that a record only hopes for, fails here until the client has it or it is listed with
the reason.
"""

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any

import pytest
from fastapi import FastAPI
from pydantic import SecretStr

from memstream import memories, pipelines, records, sessions, stores
from services.distiller.app import build as distiller
from services.distiller.settings import DistillerSettings
from services.memory.app import build as memory
from services.session.app import build as session
from services.session.settings import SessionSettings
from tests.support.memory import settings
from tests.support.service import Keys

NOWHERE = SecretStr("nowhere://unused")


@dataclass(frozen=True)
class Read:
    """A record and the schemas that it is read from or sent as: one of each service that answers with it.

    `left_out`: the schema's fields that the record does not have, and why. `own`: the record's that no schema has.
    """

    record: type
    schemas: tuple[str, ...]
    left_out: Mapping[str, str] = field(default_factory=dict)
    own: Mapping[str, str] = field(default_factory=dict)


READ = (
    Read(
        sessions.SessionStore,
        ("session/SessionStore",),
        {"session_store_name": "the older spelling of session_store_id"},
    ),
    Read(
        sessions.Session,
        ("session/SessionShape",),
        {"name": "made of store_name and session_id", "session_store_name": "is store_name"},
        {"store_name": "the session_store_name"},
    ),
    Read(records.SessionItem, ("session/SessionItem",)),
    Read(records.NewItem, ("session/NewItem",)),
    Read(
        memories.MemoryStore,
        ("memory/MemoryStore",),
        {"creator_user_id": "is the owner_user_id"},
    ),
    Read(records.AnalysisProgress, ("memory/AnalysisProgress",)),
    Read(records.EmbeddingProgress, ("memory/EmbeddingProgress",)),
    Read(
        memories.Memory,
        ("memory/MemoryEntry",),
        {"text_analysis_version": "how the index read the text; a store's analysis counts what is behind"},
    ),
    Read(
        memories.MemorySearchResult,
        ("memory/Hit",),
        {"managed_memory_entry": "is memory"},
        {"memory": "the managed_memory_entry"},
    ),
    Read(records.Evidence, ("memory/Evidence",)),
    Read(records.MemoryVersion, ("memory/EntryVersion",)),
    Read(records.WaitFor, ("memory/WaitFor",)),
    Read(
        records.Permission,
        ("session/Permission", "memory/Permission"),
        own={"principal_type": "of the principal, whose name is principal"},
    ),
    Read(records.ErasureReceipt, ("session/ErasureShape", "memory/Receipt")),
    Read(
        pipelines.Pipeline,
        ("distiller/PipelineShape", "distiller/PolicyShape"),
        {"dreamer_policy": "its fields are the pipeline's"},
    ),
    Read(records.PipelineRun, ("distiller/RunShape",)),
    Read(records.Replay, ("distiller/ReplayShape",)),
    Read(records.ReplayedActors, ("distiller/ReplayedActors",)),
    Read(records.Lane, ("distiller/LaneShape",)),
    Read(records.Usage, ("distiller/UsageShape",)),
    Read(records.ExtractedMemory, ("distiller/ExtractedEntry",)),
)
WITHOUT_A_SCHEMA = {records.MemoryChange: "an event of a stream, which OpenAPI cannot describe"}


@pytest.fixture(scope="module")
def schemas(keys: Keys) -> dict[str, Any]:
    """`service/Schema` of every schema of the three documents."""
    given: dict[str, Any] = {"database_url": NOWHERE, "nats_url": NOWHERE, "key_dir": keys.directory}
    apps: dict[str, FastAPI] = {
        "session": session(SessionSettings(**given)),
        "memory": memory(settings("nowhere://unused", keys)),
        "distiller": distiller(DistillerSettings(**given)),
    }
    return {
        f"{service}/{name}": schema
        for service, app in apps.items()
        for name, schema in app.openapi()["components"]["schemas"].items()
    }


@pytest.mark.parametrize("read", READ, ids=lambda read: read.record.__name__)
def test_a_record_has_what_is_served(read: Read, schemas: dict[str, Any]) -> None:
    served = {name for schema in read.schemas for name in schemas[schema]["properties"]}
    had = {each.name for each in fields(read.record) if not each.name.startswith("_")}

    assert served - had == read.left_out.keys()
    assert had - served == read.own.keys()


def test_every_record_is_compared() -> None:
    every = {
        each
        for module in (records, memories, pipelines, sessions)
        for _, each in inspect.getmembers(module, inspect.isclass)
        if is_dataclass(each) and each not in (stores.Bound, stores.Store)
    }

    assert every == {read.record for read in READ} | WITHOUT_A_SCHEMA.keys()


def test_search_results_have_what_is_served(schemas: dict[str, Any]) -> None:
    hits = schemas["memory/Hits"]["properties"].keys() - {"results", "managed_memory_entries"}

    assert hits == memories.SearchResults.__annotations__.keys()


def test_a_page_has_elements_and_nothing_that_a_list_would_drop(schemas: dict[str, Any]) -> None:
    besides = {
        name: {field for field, each in schema["properties"].items() if each.get("type") != "array"}
        for name, schema in schemas.items()
        if name.endswith("Page")
    }

    # How a wait ended is what a search says; a list goes on from page to page.
    assert besides.pop("memory/MemoryEntryPage") == {"next_page_token", "settled", "behind", "reason"}
    assert {name: fields for name, fields in besides.items() if fields != {"next_page_token"}} == {}
