"""What a row is once it has left the store."""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID


@dataclass(frozen=True, slots=True)
class Session:
    session_uid: UUID
    session_id: str
    actor_id: str
    parent_session_id: str | None
    root_session_id: str
    forked_from_session_id: str | None
    metadata: dict[str, str]
    create_time: datetime
    update_time: datetime
    last_activity_time: datetime
    last_position: int


@dataclass(frozen=True, slots=True)
class ItemPage:
    """`items` as JSON, divided by commas; more of those that were asked for come beyond the position `next_after`."""

    items: str
    next_after: int | None


@dataclass(frozen=True, slots=True)
class Appended:
    """The new items as JSON, divided by commas."""

    items: str
    is_replayed: bool = False


@dataclass(frozen=True, slots=True)
class Popped:
    """The item as JSON; None when the session had none."""

    item: str | None
    is_replayed: bool = False


@dataclass(frozen=True, slots=True)
class Erasure:
    """What was removed here, and by whom else it is confirmed."""

    erasure_id: UUID
    sessions: int
    items: int
    distiller_removed: int | None
    memory_removed: int | None
    is_purging: bool

    @property
    def is_done(self) -> bool:
        return not self.is_purging and self.distiller_removed is not None and self.memory_removed is not None
