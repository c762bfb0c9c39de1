"""The distiller's settings: delivery is in the topology, models and patience are here."""

from pathlib import Path
from typing import Self

from pydantic import Field, SecretStr, model_validator

from libs.chassis.settings import ServiceSettings


class DistillerSettings(ServiceSettings):
    models_file: Path | None = None
    openai_base_url: str | None = None
    openai_api_key: SecretStr | None = None
    model: str | None = None
    model_timeout_s: float = 60.0
    model_output_tokens: int = 4096
    extraction_timeout_s: float = 120.0

    @model_validator(mode="after")
    def _names_a_known_model(self) -> Self:
        if self.model and not (self.openai_base_url or self.openai_api_key or self.models_file):
            raise ValueError("MODEL needs OPENAI_BASE_URL, OPENAI_API_KEY or MODELS_FILE")
        return self

    @property
    def drain_s(self) -> float:
        """And as long as a call of a model may take, for one that is given up is paid for twice."""
        return super().drain_s + self.model_timeout_s

    batch_lines: int = 40
    batch_tokens: int = 6000
    context_lines: int = 5
    consolidate_after: int = Field(default=50, ge=1)  # changes of an actor's memory

    lanes_per_process: int = 16
    lanes_per_workspace: int = 8
    lanes_per_turn: int = 8
    lease_s: float = 15.0
    replay_actors: int = Field(default=2, ge=1)  # at once in a replay, so that what is said meanwhile finds room
    poll_interval_s: float = 1.0

    sweep_interval_s: float = 60.0
    sweep_overlap_s: float = 600.0
    full_sweep_interval_s: float = 86_400.0
    unanswered_after_s: float = 30.0
    schedule_interval_s: float = 86_400.0
