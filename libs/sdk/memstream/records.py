"""What calls answer with and what has no calls of its own. Everything is a frozen snapshot; times are aware."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date, datetime
from typing import Any

from memstream.values import given, last_segment, moment, snapshot


@dataclass(frozen=True)
class NewItem:
    """An item to append, with the time when it was said: an aware datetime, or RFC 3339 with an offset."""

    data: Any
    occurred_at: datetime | str | None = None

    def body(self) -> dict[str, Any]:
        return {"data": self.data, **given(occurred_at=moment(self.occurred_at))}


@dataclass(frozen=True)
class SessionItem:
    """A stored item. `data` is what was appended; `occurred_at` is as it was sent.

    Positions grow by one within a session; a hole is where an item was popped.
    """

    item_id: str
    data: Any
    create_time: datetime | None = None
    position: int = 0
    occurred_at: str | None = None

    @classmethod
    def of(cls, raw: Mapping[str, Any]) -> SessionItem:
        return snapshot(cls, raw, data=raw.get("data"))


@dataclass(frozen=True)
class ExtractedMemory:
    """What an extraction wrote, or would write."""

    name: str
    actor_id: str
    path: str
    content: str | None = None
    description: str | None = None
    source_type: str | None = None
    create_time: datetime | None = None
    update_time: datetime | None = None


@dataclass(frozen=True)
class WaitFor:
    """Until the items of a session up to this position are distilled and searchable; see `Session.up_to`."""

    session_store: str
    session_id: str
    position: int

    def body(self) -> dict[str, Any]:
        return {"session_store": self.session_store, "session_id": self.session_id, "position": self.position}


@dataclass(frozen=True)
class Evidence:
    """Where something was said. `session_store` is `session-stores/<name>`.

    `available`, whether the items are still there, is looked up by `get` alone; elsewhere it is None.
    """

    session_store: str
    session_id: str
    positions: tuple[int, ...] = ()
    said_by: str | None = None
    said_at: datetime | None = None
    available: bool | None = None

    @classmethod
    def all_of(cls, raw: Mapping[str, Any]) -> tuple[Evidence, ...]:
        return tuple(snapshot(cls, each) for each in raw.get("evidence") or ())


@dataclass(frozen=True)
class MemoryVersion:
    """What an entry said from `valid_from` on, until the next greater (`valid_from`, `recorded_at`).

    A `retired` one says that the entry stopped being true then; `successors` are the names of the entries that say it
    since, when it gave way to them. `writer` is `{"type", "name"}`.
    """

    version: int
    retired: bool = False
    content: str | None = None
    description: str | None = None
    kind: str | None = None
    said_by: str | None = None
    event_date: date | None = None
    valid_from: datetime | None = None
    recorded_at: datetime | None = None
    writer: dict[str, str] = field(default_factory=dict, hash=False)
    batch_id: str | None = None
    run_id: str | None = None
    evidence: tuple[Evidence, ...] = ()
    successors: tuple[str, ...] = ()

    @classmethod
    def of(cls, raw: Mapping[str, Any]) -> MemoryVersion:
        return snapshot(cls, raw, evidence=Evidence.all_of(raw))


@dataclass(frozen=True)
class AnalysisProgress:
    """How many of a memory store's entries, `total`, are analysed in its language."""

    language: str
    done: int = 0
    total: int = 0


@dataclass(frozen=True)
class EmbeddingProgress:
    """How many of a memory store's entries, `total`, have a vector of its model.

    `dimensions` is None for a model that is not configured any more.
    """

    model: str
    dimensions: int | None = None
    done: int = 0
    total: int = 0


@dataclass(frozen=True)
class MemoryChange:
    """An event of a watch; the text is read with `get`. `id` is where to go on from.

    `change` is `ready` (the watch stands; nothing after it is missed), `reset` (changes were lost: list again), or what
    happened: `set`, `retired` or `erased`.
    """

    id: str
    change: str
    name: str | None = None
    actor_id: str | None = None
    path: str | None = None
    session_id: str | None = None
    kind: str | None = None
    version: int | None = None


@dataclass(frozen=True)
class Permission:
    """What a principal may do with a store: `READ`, `WRITE` (which includes READ) or `PERMISSION_LEVEL_UNSPECIFIED`.

    `principal_type` is `USER`, named by e-mail, or `SERVICE_PRINCIPAL`, named by client id.
    """

    principal_type: str
    principal: str
    permission: str

    @classmethod
    def of(cls, raw: Mapping[str, Any]) -> Permission:
        principal = raw["principal"]
        return cls(principal["principal_type"], principal["name"], raw["permission"])


@dataclass(frozen=True)
class ErasureReceipt:
    """`state` is `PENDING` until every service has confirmed, then `DONE`; `counts` says what each one removed.

    `actor_id` and `create_time` are told by memory stores alone.
    """

    erasure_id: str
    state: str
    counts: dict[str, int] = field(default_factory=dict, hash=False)
    actor_id: str | None = None
    create_time: datetime | None = None

    @property
    def is_done(self) -> bool:
        return self.state == "DONE"


@dataclass(frozen=True)
class PipelineRun:
    """`state` is `PENDING`, `RUNNING`, `SUCCEEDED`, `FAILED` or `CANCELED`."""

    name: str
    state: str | None = None
    error: str | None = None
    create_time: datetime | None = None
    end_time: datetime | None = None

    @property
    def id(self) -> str:
        return last_segment(self.name)

    @property
    def has_ended(self) -> bool:
        return self.state not in ("PENDING", "RUNNING")


@dataclass(frozen=True)
class ReplayedActors:
    """Of `total`: how many have their new memories, and how many could not. Who is erased meanwhile is neither."""

    total: int = 0
    swapped: int = 0
    failed: int = 0


@dataclass(frozen=True)
class Replay:
    """A session store distilled anew, actor by actor: everybody, or `actor_id`. `state` is one of those of a run.

    `memory_store` is where to, as `memory-stores/<id>`.
    """

    name: str
    memory_store: str
    state: str | None = None
    error: str | None = None
    actor_id: str | None = None
    actors: ReplayedActors = ReplayedActors()
    create_time: datetime | None = None
    end_time: datetime | None = None

    @classmethod
    def of(cls, raw: Mapping[str, Any]) -> Replay:
        return snapshot(cls, raw, actors=snapshot(ReplayedActors, raw.get("actors") or {}))

    @property
    def id(self) -> str:
        return last_segment(self.name)

    @property
    def has_ended(self) -> bool:
        return self.state not in ("PENDING", "RUNNING")


@dataclass(frozen=True)
class Lane:
    """Where a pipeline stands with one actor. `behind` counts positions known and not yet distilled.

    `state` is settled, waiting, due, running, unanswered, waiting_provider or parked.
    """

    actor_id: str
    state: str | None = None
    behind: int = 0
    attempts: int = 0
    reason: str | None = None
    due_time: datetime | None = None


@dataclass(frozen=True)
class Usage:
    """Calls and tokens of one day (UTC), model and outcome; failed calls too.

    `cost` is in the currency of the model's price; None for a model without one.
    """

    day: date
    model: str
    outcome: str
    calls: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cost: float | None = None
