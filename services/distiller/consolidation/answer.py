"""What a model must answer about entries."""

from datetime import date

from pydantic import BaseModel, ConfigDict, Field

from libs.contracts.events import Kind


class Slot(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    path: str
    kind: Kind
    statement: str
    description: str = Field(description="The words by which a person would ask for this.")
    event_date: date | None


class Rewriting(BaseModel):
    """`replaces` holds entry numbers."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    replaces: list[int]
    into: list[Slot]


class Rewritings(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    rewrites: list[Rewriting]
