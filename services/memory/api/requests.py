"""What callers send. Unknown fields, and output-only ones, are ignored."""

from typing import Annotated, Any

from pydantic import BaseModel, Field, StrictInt, StrictStr

from libs.chassis.texts import Text

Count = Annotated[int | None, Field(default=None, strict=True)]
Moment = Annotated[str | None, Field(default=None, max_length=64)]


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
