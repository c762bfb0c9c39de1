"""What a model is asked: lines of conversations, or entries that may say the same."""

from collections.abc import Iterator
from datetime import datetime
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field

from libs.contracts.events import Range
from libs.contracts.requests import RelatedEntry, StoredEntry
from services.distiller.answer import AskedLine


class Numbered(BaseModel):
    """A line in a batch, with where it came from."""

    model_config = ConfigDict(frozen=True)

    asked: AskedLine
    session_uid: UUID
    position: int
    appended_at: datetime


class Question(BaseModel):
    """All that a distillation asks about, which its answer is checked against, also by another worker after a crash.

    `related` are all the entries that there are at the paths in `looked_up`, and others.
    `again_taken`: of the lines that were to be asked again, those that now are.
    """

    lines: list[Numbered]
    ranges: list[Range]
    complete: bool
    oldest_appended_at: datetime | None
    related: list[RelatedEntry]
    looked_up: list[str] = Field(default_factory=list)
    source_epoch: int
    memory_epoch: int
    again_taken: dict[UUID, list[int]] = Field(default_factory=dict)

    @property
    def asked(self) -> list[AskedLine]:
        return [line.asked for line in self.lines]

    @property
    def has_evidence(self) -> bool:
        return any(not line.asked.context for line in self.lines)

    @property
    def ranges_with_lines(self) -> list[Range]:
        """The ranges, each with the lines that an answer may rest on."""
        positions: dict[UUID, list[int]] = {}
        for line in self.lines:
            if not line.asked.context:
                positions.setdefault(line.session_uid, []).append(line.position)
        return [reached.model_copy(update={"lines": positions.get(reached.session_uid, [])}) for reached in self.ranges]


class Overlaps(BaseModel):
    """Groups of entries that may say the same; one alone is too long for a statement."""

    groups: list[list[StoredEntry]]
    memory_epoch: int
    source_epoch: int

    @property
    def numbered(self) -> Iterator[tuple[int, StoredEntry]]:
        return enumerate((entry for group in self.groups for entry in group), start=1)
