"""Facts that services publish. An event says that something happened and where to read it.

A compatible change is a new optional field. Anything else is a new class with a new subject.
"""

from datetime import UTC, date, datetime
from typing import ClassVar, Literal
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field

from libs.contracts.ids import uuid7

Operation = Literal["set", "confirm", "retire"]
Kind = Literal["state", "item", "event"]
Speaker = Literal["user", "assistant"]
Outcome = Literal["applied", "history", "confirmed", "conflict", "refused", "erased", "gone"]


class Event(BaseModel):
    """The envelope. `event_id` is the key of an inbox and, at first, the message id on the bus."""

    model_config = ConfigDict(frozen=True, hide_input_in_errors=True)
    subject: ClassVar[str]

    event_id: UUID = Field(default_factory=uuid7)
    occurred_at: datetime = Field(default_factory=lambda: datetime.now(UTC))
    caused_by: UUID | None = None
    workspace_id: int


class ItemsAppended(Event):
    """The history of a session grew. `occurred_at` is the commit's time; no text travels."""

    subject = "session.items.appended.v1"

    store_uid: UUID
    session_uid: UUID
    session_id: str
    actor_id: str
    last_position: int


class SessionDeleted(Event):
    subject = "session.session.deleted.v1"

    store_uid: UUID
    session_uid: UUID
    actor_id: str


class SessionStoreDeleted(Event):
    subject = "session.store.deleted.v1"

    store_uid: UUID


class SessionActorErased(Event):
    """An erasure began in a session store; it is repeated until every service has confirmed."""

    subject = "session.actor.erased.v1"

    store_uid: UUID
    actor_id: str
    epoch: int
    erasure_id: UUID


class Evidence(BaseModel):
    """The lines that a change rests on, by their positions in one session."""

    model_config = ConfigDict(frozen=True)

    session_uid: UUID
    positions: list[int]


class Range(BaseModel):
    """A stretch of one session: the items after `after`, up to and with `through`.

    `lines`, of a replay alone: the positions, also before the stretch, of the lines that a change could rest on.
    """

    model_config = ConfigDict(frozen=True)

    session_uid: UUID
    session_id: str
    after: int
    through: int
    lines: list[int] = Field(default_factory=list)


class Change(BaseModel):
    """One thing that a distillation wants done to a slot of the actor's memory.

    `set` writes a statement, `confirm` adds evidence, `retire` ends a statement. `expected_version` is the version of
    `entry_id` that it was decided on; absent on a `set` means that the slot must not exist.
    """

    model_config = ConfigDict(frozen=True)

    op: Operation
    path: str
    entry_id: str | None = None
    expected_version: int | None = None
    statement: str | None = None
    description: str | None = None
    kind: Kind
    said_by: Speaker
    said_at: datetime
    event_date: date | None = None
    evidence: list[Evidence]


class EntryVersion(BaseModel):
    """An entry as it was when something was decided on it; by its `path` too, since an id can be another's by now."""

    model_config = ConfigDict(frozen=True)

    entry_id: str
    version: int
    path: str | None = None


class Rewrite(BaseModel):
    """Entries that give way to others which say the same, all at once or not at all.

    Each of `into` is a `set` without evidence of its own: it inherits that of all that are `replaced`. It may name one
    of those, which then stays. Memory refuses one of nothing, or into nothing.
    """

    model_config = ConfigDict(frozen=True)

    replaced: list[EntryVersion]
    into: list[Change]


class MemoriesDistilled(Event):
    """The outcome of one distillation, for one actor; `changes` may be empty: then only progress moves.

    `rewound`: the session store was restored to an older state, and progress goes back to the end of the ranges.
    `rewrites` are what a consolidation wants: it covers no lines, so it has neither ranges nor changes.
    """

    subject = "distiller.memories.distilled.v1"

    batch_id: UUID
    store_uid: UUID
    actor_id: str
    pipeline_uid: UUID
    run_id: int | None = None
    session_store_uid: UUID
    session_store_id: str
    source_epoch: int
    memory_epoch: int
    oldest_appended_at: datetime | None
    ranges: list[Range]
    changes: list[Change]
    rewound: bool = False
    rewrites: list[Rewrite] = Field(default_factory=list)


class AppliedChange(BaseModel):
    """What became of one change, in the order of the batch; after the changes come its rewrites."""

    model_config = ConfigDict(frozen=True)

    outcome: Outcome
    entry_id: str | None = None
    version: int | None = None
    reason: str | None = None


class BatchesApplied(Event):
    """A batch is searchable; a repeated batch gets the stored outcome again."""

    subject = "memory.batches.applied.v1"

    batch_id: UUID
    store_uid: UUID
    actor_id: str
    outcomes: list[AppliedChange]


class MemoryStoreDeleted(Event):
    subject = "memory.store.deleted.v1"

    store_uid: UUID


class MemoryActorErased(Event):
    """The memory service dropped an actor: all of it in a memory store, or what a session store fed.

    `in_session_store`: the erasure began in a session store, whose uid `store_uid` then is. `known_epoch`, of one that
    confirms: as for `DistillerActorErased`.
    """

    subject = "memory.actor.erased.v1"

    store_uid: UUID
    actor_id: str
    epoch: int
    erasure_id: UUID
    removed: int = 0
    in_session_store: bool = False
    known_epoch: int = 0


class DistillerActorErased(Event):
    """The distiller dropped the actor's lanes, batches, answers and parked messages.

    `known_epoch`: whoever confirms refuses from now on what was decided under a lesser one. It is the erasure's, or a
    greater one where that was given before: the store that erases was restored to an older state, and raises its own.
    """

    subject = "distiller.actor.erased.v1"

    store_uid: UUID
    actor_id: str
    epoch: int
    erasure_id: UUID
    removed: int = 0
    known_epoch: int = 0


class ReplayEnded(Event):
    """Nobody needs a replay's shadow store any more; `store_uid` is its uid."""

    subject = "distiller.replay.ended.v1"

    store_uid: UUID
