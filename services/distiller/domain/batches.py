"""What is sent to memory, whoever found it."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Protocol
from uuid import UUID

from libs.contracts.events import Change, MemoriesDistilled, Range, Rewrite


class Feeds(Protocol):
    """Which session store is distilled into which memory store, and for which pipeline."""

    @property
    def workspace_id(self) -> int: ...
    @property
    def pipeline_uid(self) -> UUID: ...
    @property
    def session_store_uid(self) -> UUID: ...
    @property
    def session_store_id(self) -> str: ...
    @property
    def memory_store_uid(self) -> UUID: ...


def size_of(wanted: Iterable[Change | Rewrite]) -> int:
    """The bytes that changes or rewrites take in an event."""
    return sum(len(each.model_dump_json().encode()) + 1 for each in wanted)


def batch_of(
    source: Feeds,
    batch_id: UUID,
    actor_id: str,
    *,
    source_epoch: int,
    memory_epoch: int,
    run_id: int | None = None,
    oldest_appended_at: datetime | None = None,
    ranges: Sequence[Range] = (),
    changes: Sequence[Change] = (),
    rewrites: Sequence[Rewrite] = (),
    rewound: bool = False,
) -> MemoriesDistilled:
    """The epochs are those that were read before what the batch was decided on."""
    return MemoriesDistilled(
        event_id=batch_id,
        workspace_id=source.workspace_id,
        batch_id=batch_id,
        store_uid=source.memory_store_uid,
        actor_id=actor_id,
        pipeline_uid=source.pipeline_uid,
        run_id=run_id,
        session_store_uid=source.session_store_uid,
        session_store_id=source.session_store_id,
        source_epoch=source_epoch,
        memory_epoch=memory_epoch,
        oldest_appended_at=oldest_appended_at,
        ranges=list(ranges),
        changes=list(changes),
        rewound=rewound,
        rewrites=list(rewrites),
    )
