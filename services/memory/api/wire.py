"""The shapes of the public surface: how stores and entries look, and which parts of an entry are asked for."""

from collections.abc import Callable
from typing import Any

from libs.chassis.errors import InvalidParameter
from libs.chassis.stores import Store
from libs.chassis.times import rfc3339
from libs.contracts.routes import MEMORY_STORES
from services.memory.domain import Entry
from services.memory.freshness import Settled
from services.memory.store.proofs import Proof
from services.memory.store.records import Found
from services.memory.store.vectors import Progress
from services.memory.store.versions import Told
from services.memory.text import TEXT_ANALYSIS_VERSION

VIEW = "MANAGED_MEMORY_ENTRY_VIEW_"
VIEWS = {f"{VIEW}UNSPECIFIED": "FULL", f"{VIEW}BASIC": "BASIC", f"{VIEW}FULL": "FULL"}
# Clients index an entry by these, whatever the mask.
IDENTITY = ("name", "actor_id", "path")
ENTRY_FIELDS = (
    *IDENTITY,
    "session_id",
    "content",
    "description",
    "source_type",
    "create_time",
    "update_time",
    "version",
    "kind",
    "valid_from",
    "event_date",
    "said_by",
    "evidence",
    "text_analysis_version",
)

Shape = Callable[[dict[str, Any]], dict[str, Any]]


def store_body(store: Store, default_language: str) -> dict[str, Any]:
    body: dict[str, Any] = {
        "name": f"{MEMORY_STORES}/{store.store_id}",
        "display_name": store.store_id,
        "workspace_id": store.workspace_id,
        "storage_backend": {
            "backend_type": "STORAGE_BACKEND_TYPE_UNSPECIFIED",
            "backend_id": str(store.store_uid),
        },
        "creator_user_id": store.creator,
        "owner_user_id": store.creator,
        "metadata": store.metadata,
        "language": default_language,
        **store.options,
        "create_time": rfc3339(store.create_time),
        "update_time": rfc3339(store.update_time),
    }
    if store.description is not None:
        body["description"] = store.description
    return body


def progress_body(store: Store, language: str, dimensions: int | None, progress: Progress) -> dict[str, Any]:
    """How far a store's entries are what it asks for, in entries."""
    body: dict[str, Any] = {"analysis": {"language": language, "done": progress.analysed, "total": progress.total}}
    if model := store.options.get("embedding_model"):
        known = {} if dimensions is None else {"dimensions": dimensions}
        body["embedding"] = {"model": model, **known, "done": progress.embedded, "total": progress.total}
    return body


def shape_of(view: str | None, read_mask: str | None) -> Shape:
    """What `view` or `read_mask` leaves of an entry."""
    if view and read_mask:
        raise InvalidParameter("view and read_mask say the same thing in two ways: send one.")
    if view and view not in VIEWS:
        raise InvalidParameter(f"view must be one of {', '.join(VIEWS)}.")
    kept = set(ENTRY_FIELDS) - ({"content", "evidence"} if view and VIEWS[view] == "BASIC" else set())
    if read_mask:
        asked = {field.strip() for field in read_mask.split(",") if field.strip()}
        unknown = sorted(asked - set(ENTRY_FIELDS))
        if unknown:
            names = ", ".join(name[:60] for name in unknown[:5])
            raise InvalidParameter(f"read_mask may name {', '.join(ENTRY_FIELDS)}; not {names}.")
        kept = (asked | set(IDENTITY)) if asked else kept
    return lambda body: {field: value for field, value in body.items() if field in kept}


def entry_name(store_id: str, entry_id: str) -> str:
    return f"{MEMORY_STORES}/{store_id}/entries/{entry_id}"


def entry_body(
    store_id: str, entry: Entry, evidence: list[Proof] | None, analysis_version: int = TEXT_ANALYSIS_VERSION
) -> dict[str, Any]:
    """Without evidence where it was not read: after a write, which answers with the entry alone."""
    body: dict[str, Any] = {
        "name": entry_name(store_id, entry.entry_id),
        "actor_id": entry.actor_id,
        "session_id": entry.session_id,
        "path": entry.path,
        "content": entry.value.content,
        "description": entry.value.description,
        "source_type": entry.source_type,
        "create_time": rfc3339(entry.create_time),
        "update_time": rfc3339(entry.update_time),
        "version": entry.version,
        "kind": entry.value.kind,
        "valid_from": rfc3339(entry.valid_from),
        "event_date": entry.value.event_date.isoformat() if entry.value.event_date else None,
        "said_by": entry.value.said_by,
        "evidence": None if evidence is None else [proof_body(proof) for proof in evidence],
        "text_analysis_version": analysis_version,
    }
    return {field: value for field, value in body.items() if value is not None}


def found_body(store_id: str, found: Found) -> dict[str, Any]:
    return entry_body(store_id, found.entry, found.evidence, found.analysis_version)


def version_body(store_id: str, told: Told) -> dict[str, Any]:
    version, value = told.version, told.version.value
    body: dict[str, Any] = {
        "version": version.version,
        "retired": value.retired,
        "content": value.content,
        "description": value.description,
        "kind": value.kind,
        "said_by": value.said_by,
        "event_date": value.event_date.isoformat() if value.event_date else None,
        "valid_from": rfc3339(version.valid_from),
        "recorded_at": rfc3339(version.recorded_at),
        "writer": {"type": told.writer_type, "name": told.writer},
        "batch_id": str(told.batch_id) if told.batch_id else None,
        "run_id": str(told.run_id) if told.run_id is not None else None,
        "evidence": [proof_body(proof) for proof in told.evidence],
        "successors": [entry_name(store_id, each) for each in told.successors] if told.successors else None,
    }
    return {field: value for field, value in body.items() if value is not None}


def settled_body(settled: Settled | None) -> dict[str, Any]:
    """Beside an answer that was waited for."""
    if settled is None:
        return {}
    body: dict[str, Any] = {"settled": settled.settled, "behind": settled.behind}
    return body if settled.reason is None else body | {"reason": settled.reason}


def proof_body(proof: Proof) -> dict[str, Any]:
    body: dict[str, Any] = {
        "session_store": f"session-stores/{proof.session_store_id}",
        "session_id": proof.session_id,
        "positions": proof.positions,
        "said_by": proof.said_by,
        "said_at": rfc3339(proof.said_at),
        "available": proof.available,
    }
    return {field: value for field, value in body.items() if value is not None}
