"""What callers send. Unknown fields, and output-only ones, are ignored."""

from typing import Any

from pydantic import BaseModel, Field, StrictBool, StrictInt, StrictStr

from libs.chassis.texts import Text


class StoreBody(BaseModel):
    display_name: Text | None = None
    description: Text | None = None
    metadata: dict[Text, Text] | None = None
    language: Text | None = None
    embedding_model: Text | None = None
    history_days: StrictInt | None = None


class EntryBody(BaseModel):
    actor_id: Text | None = None
    path: Text | None = None
    session_id: Text | None = None
    content: Text | None = None
    description: Text | None = None
    source_type: str | None = None


class PutBody(BaseModel):
    actor_id: Text | None = None
    path: Text | None = None
    session_id: Text | None = None
    content: Text | None = None
    description: Text | None = None
    append: StrictBool = False
    expected_version: StrictInt | None = None


class RestoreBody(BaseModel):
    version: StrictInt


class WaitFor(BaseModel):
    """Until the items of a session, up to a position, are distilled and searchable."""

    session_store: Text
    session_id: Text
    position: StrictInt


class SearchBody(BaseModel):
    actor_id: Text | None = None
    query: StrictStr | None = None
    page_size: StrictInt | None = None
    limit: StrictInt | None = None
    path_prefix: Text | None = None
    session_id: Text | None = None
    page_token: Any = None
    view: str | None = None
    read_mask: str | None = None
    min_score: float | None = Field(default=None, ge=0, le=1)
    as_of: Text | None = None
    known_at: Text | None = None
    wait_for: WaitFor | None = None
    max_wait_ms: StrictInt | None = None
