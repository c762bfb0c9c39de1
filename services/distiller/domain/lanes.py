"""The right to distil a lane, what is to be distilled of it, and when it is tried again."""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from services.distiller.domain.pipelines import Pipeline

LANE_DELAYS_S = (2.0, 8.0, 30.0, 120.0, 300.0)
PARKED_RETRY_S = 3600.0
OURS_DELAY_S = 2.0
AGAIN_LIMIT = 3


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to distil a lane until it expires; `token` fences what is committed, `marks` what came meanwhile.

    `consolidate`: when nothing is left to distil, the actor's memory is to be put in order.
    """

    pipeline: Pipeline
    actor_id: str
    token: int
    marks: int
    attempts: int
    max_lines: int | None
    run_id: int | None  # the run that is active meanwhile
    consolidate: bool

    @property
    def pipeline_uid(self) -> UUID:
        return self.pipeline.pipeline_uid


@dataclass(frozen=True, slots=True)
class Behind:
    """A session of a lane with something to distil: items after `after`, and lines `again` after a conflict."""

    session_uid: UUID
    session_id: str
    after: int
    wanted: int
    oldest_appended_at: datetime | None
    again: tuple[int, ...] = ()


def lane_delay_s(attempts: int) -> float:
    """The pause after the n-th failure of a lane in a row; after the last, it is parked and tried again hourly."""
    return LANE_DELAYS_S[attempts - 1] if attempts <= len(LANE_DELAYS_S) else PARKED_RETRY_S
