"""A replay, and an actor of it that something is to be done for."""

from dataclasses import dataclass
from datetime import datetime
from typing import Literal
from uuid import UUID

ReplayState = Literal["PENDING", "RUNNING", "SUCCEEDED", "FAILED", "CANCELED"]
ActorState = Literal["waiting", "distilling", "held", "swapping", "withdrawing", "swapped", "failed", "gone"]

CANCELED = "canceled"
ERASED = "erased"


@dataclass(frozen=True, slots=True)
class Replay:
    """`attempts` to go on have failed in a row, for another service was away."""

    replay_uid: UUID
    pipeline_uid: UUID
    hidden_uid: UUID
    shadow_uid: UUID
    into_store_uid: UUID
    into_store_id: str
    actor_id: str | None
    state: ReplayState
    error: str | None
    create_time: datetime
    end_time: datetime | None
    attempts: int = 0
    is_due: bool = True

    @property
    def name(self) -> str:
        return f"memory-pipelines/{self.pipeline_uid}/replays/{self.replay_uid}"


@dataclass(frozen=True, slots=True)
class AtWork:
    """An actor of a replay that something is to be done for.

    `attempts` have failed in a row. `swap_asked`: a question to swap it may still be on its way, even where a later one
    was answered. `reason`: why it is withdrawn. `source_epoch`: of the last erasure in the session
    store that was heard of; one that is heard of later ends this.
    """

    actor_id: str
    state: ActorState
    swap_id: UUID
    swap_asked: bool
    source_epoch: int
    attempts: int
    reason: str | None
    is_due: bool


@dataclass(frozen=True, slots=True)
class Counts:
    """How many actors; `left` are not settled, of whom `wanted` are still to be swapped."""

    total: int
    swapped: int
    failed: int
    canceled: int
    left: int
    wanted: int
    reason: str | None


@dataclass(frozen=True, slots=True)
class HiddenLane:
    """`rests`: nobody works on it and nothing is on its way."""

    rests: bool
    parked: bool
    reason: str | None
