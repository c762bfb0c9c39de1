"""What the answers look like, for the OpenAPI document; `wire` makes them, and leaves out what is None."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from services.memory.domain import AGENT, DREAMER


class Shape(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class StorageBackend(Shape):
    backend_type: str
    backend_id: str


class AnalysisProgress(Shape):
    """Entries that are analysed in the store's language, of all."""

    language: str
    done: int
    total: int


class EmbeddingProgress(Shape):
    """Entries that have a vector of the store's model, of all; `dimensions` only of a model that is configured."""

    model: str
    dimensions: int | None = None
    done: int
    total: int


class MemoryStore(Shape):
    """A memory store. Lists leave out `analysis` and `embedding`."""

    name: str
    display_name: str
    workspace_id: int
    storage_backend: StorageBackend
    creator_user_id: str
    owner_user_id: str
    description: str | None = None
    metadata: dict[str, str]
    language: str
    embedding_model: str | None = None
    history_days: int | None = None
    create_time: str
    update_time: str
    analysis: AnalysisProgress | None = None
    embedding: EmbeddingProgress | None = None


class MemoryStorePage(Shape):
    managed_memory_stores: list[MemoryStore]
    next_page_token: str | None = None


class Evidence(Shape):
    """Lines of a session that a version rests on. `available`: they can still be read; told by `get` alone."""

    session_store: str
    session_id: str | None = None
    positions: list[int]
    said_by: str
    said_at: str
    available: bool | None = None


class MemoryEntry(Shape):
    """An entry, or what `view` or `read_mask` leaves of it. Writes answer without `evidence`."""

    name: str
    actor_id: str
    path: str
    session_id: str | None = None
    content: str | None = None
    description: str | None = None
    source_type: str | None = Field(None, pattern=f"^({AGENT}|{DREAMER})$")
    create_time: str | None = None
    update_time: str | None = None
    version: int | None = None
    kind: Literal["state", "item", "event"] | None = None
    valid_from: str | None = None
    event_date: str | None = None
    said_by: Literal["user", "assistant"] | None = None
    evidence: list[Evidence] | None = None
    text_analysis_version: int | None = None


class Waited(Shape):
    """Beside what was waited for: `behind` counts the positions that are not searchable yet, `reason` says why."""

    settled: bool | None = None
    behind: int | None = None
    reason: str | None = None


class MemoryEntryPage(Waited):
    managed_memory_entries: list[MemoryEntry]
    next_page_token: str | None = None


class Hit(Shape):
    managed_memory_entry: MemoryEntry
    score: float = Field(ge=0, le=1, description="The share of the query that the entry answers.")


class Hits(Waited):
    """Best first; `managed_memory_entries` is the older form, in the same order."""

    results: list[Hit]
    managed_memory_entries: list[MemoryEntry]


class Writer(Shape):
    type: str
    name: str


class EntryVersion(Shape):
    """What an entry said, or, when `retired`, that nothing holds any more."""

    version: int
    retired: bool
    content: str | None = None
    description: str | None = None
    kind: Literal["state", "item", "event"]
    said_by: Literal["user", "assistant"]
    event_date: str | None = None
    valid_from: str
    recorded_at: str
    writer: Writer
    batch_id: str | None = None
    run_id: str | None = None
    evidence: list[Evidence]
    successors: list[str] | None = Field(None, description="The entries that say it since it gave way to them.")


class EntryVersionPage(Shape):
    versions: list[EntryVersion]
    next_page_token: str | None = None


class Receipt(Shape):
    """Of an erasure. `counts` holds what each service removed, once it has said so."""

    erasure_id: str
    actor_id: str
    state: Literal["PENDING", "DONE"]
    counts: dict[str, int]
    create_time: str


class Nothing(Shape):
    """`{}`"""


def answering(shape: type[Shape]) -> dict[str, Any]:
    """For a route that answers JSON made by hand: checked by tests, so that no answer is validated twice."""
    return {"response_model": None, "responses": {200: {"model": shape, "description": "Done."}}}
