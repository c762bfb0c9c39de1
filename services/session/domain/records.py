"""What a row is once it has left the store."""

from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple
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


class Item(NamedTuple):
    """A tuple, because a page makes a hundred of them."""

    position: int
    data: str
    occurred_at: str | None
    create_time: datetime


@dataclass(frozen=True, slots=True)
class ItemPage:
    """`is_last`: no item that was asked for comes after these."""

    session_uid: UUID
    items: list[Item]
    is_last: bool


@dataclass(frozen=True, slots=True)
class Appended:
    """Where an append's items went; all of them have one `create_time`."""

    session_uid: UUID
    first_position: int
    create_time: datetime
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
