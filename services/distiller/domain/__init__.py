"""The rules of distillation that need no I/O: what a line may be, what an answer may say, who owns a failure."""

from services.distiller.domain.batches import batch_of, size_of
from services.distiller.domain.changes import PATH, PATH_CHARS, changes_of, known_entries, paths_of
from services.distiller.domain.failures import Fenced, LaneFailure, OverBudget, ProviderFailure, Truncated
from services.distiller.domain.lanes import (
    AGAIN_LIMIT,
    LANE_DELAYS_S,
    OURS_DELAY_S,
    PARKED_RETRY_S,
    Behind,
    Lease,
    lane_delay_s,
)
from services.distiller.domain.pipelines import TRIGGERS, Pipeline, Trigger
from services.distiller.domain.portions import Portion, estimated_tokens
from services.distiller.domain.questions import Numbered, Overlaps, Question

__all__ = [
    "AGAIN_LIMIT",
    "LANE_DELAYS_S",
    "OURS_DELAY_S",
    "PARKED_RETRY_S",
    "PATH",
    "PATH_CHARS",
    "TRIGGERS",
    "Behind",
    "Fenced",
    "LaneFailure",
    "Lease",
    "Numbered",
    "OverBudget",
    "Overlaps",
    "Pipeline",
    "Portion",
    "ProviderFailure",
    "Question",
    "Trigger",
    "Truncated",
    "batch_of",
    "changes_of",
    "estimated_tokens",
    "known_entries",
    "lane_delay_s",
    "paths_of",
    "size_of",
]
