"""What a model is asked for and what it must answer. The built-in model and a configured one answer the same shape."""

from datetime import date, datetime
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from libs.contracts.events import Kind, Speaker


class AskedLine(BaseModel):
    """A line as a model sees it. `context` lines may be understood but never be evidence."""

    model_config = ConfigDict(frozen=True)

    number: int
    role: Speaker
    text: str
    said_at: datetime
    context: bool = False


class KnownEntry(BaseModel):
    """A slot that the actor's memory already has."""

    model_config = ConfigDict(frozen=True)

    path: str
    statement: str
    kind: Kind


class ProposedChange(BaseModel):
    """One change. `evidence` holds line numbers; `path` is `/<topic>/<slot>.md`, lower case, a-z 0-9 _ -."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    op: Literal["set", "confirm", "retire"]
    path: str
    kind: Kind
    statement: str = Field(description="One short sentence in the speaker's language; empty for confirm and retire.")
    description: str = Field(description="The words by which a person would ask for this.")
    said_by: Speaker
    event_date: date | None = Field(description="When it happened, in the speaker's zone; null when nothing says so.")
    evidence: list[int]


class Answer(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    changes: list[ProposedChange]
