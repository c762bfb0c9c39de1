"""What a pipeline is."""

from dataclasses import dataclass
from datetime import datetime
from typing import Literal
from uuid import UUID

from libs.contracts.requests import PrincipalType

Trigger = Literal["MANUAL_ONLY", "SCHEDULED", "CONTINUOUS"]
TRIGGERS: tuple[Trigger, ...] = ("MANUAL_ONLY", "SCHEDULED", "CONTINUOUS")


@dataclass(frozen=True, slots=True)
class Pipeline:
    """`resumes_as`: the trigger that it had before it was paused, which is to be MANUAL_ONLY.

    `parent_uid`: of a replay's own pipeline, which nobody sees; it feeds a shadow store, and its parent pays.
    """

    pipeline_uid: UUID
    workspace_id: int
    display_name: str | None
    session_store_uid: UUID
    session_store_id: str
    memory_store_uid: UUID
    memory_store_id: str
    model: str | None
    instructions: str | None
    trigger: Trigger
    quiet_period_s: float
    max_wait_s: float
    daily_token_budget: int | None
    revision: int
    creator_type: PrincipalType
    creator: str
    create_time: datetime
    update_time: datetime
    parent_uid: UUID | None
    resumes_as: Trigger = "SCHEDULED"

    @property
    def name(self) -> str:
        return f"memory-pipelines/{self.pipeline_uid}"

    @property
    def enabled(self) -> bool:
        return self.trigger != "MANUAL_ONLY"

    def trigger_when(self, *, enabled: bool) -> Trigger:
        if not enabled:
            return "MANUAL_ONLY"
        return self.trigger if self.enabled else self.resumes_as

    @property
    def payer_uid(self) -> UUID:
        return self.parent_uid or self.pipeline_uid
