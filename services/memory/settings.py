"""The memory service's settings."""

from pathlib import Path
from typing import Self

from pydantic import Field, SecretStr, field_validator, model_validator

from libs.chassis.models import MOST_DIMENSIONS
from libs.chassis.settings import ServiceSettings
from libs.chassis.stores import Creators
from services.memory.ranking import FieldWeights
from services.memory.text import LANGUAGES


class MemorySettings(ServiceSettings):
    """`default_language`: of stores that name none. The weights say how much a word counts by where it stands.

    Embedding models are those of `models_file` that have dimensions, else the one `embedding_model`.
    """

    default_language: str = "english"  # not `language`: many shells have a LANGUAGE of their own
    path_weight: float = 1.0
    description_weight: float = 1.0
    content_weight: float = 1.0
    store_creators: Creators = "everybody"
    erasure_repeat_s: float = 30.0

    models_file: Path | None = None
    openai_base_url: str | None = None
    openai_api_key: SecretStr | None = None
    embedding_model: str | None = None
    embedding_dimensions: int | None = Field(default=None, ge=1, le=MOST_DIMENSIONS)
    embedding_batch: int = Field(default=64, ge=1, le=2048)
    embedding_timeout_s: float = 30.0
    embedding_query_timeout_s: float = 0.3
    embedding_interval_s: float = 10.0

    @field_validator("default_language")
    @classmethod
    def _known(cls, language: str) -> str:
        if language not in LANGUAGES:
            raise ValueError(f"must be one of {', '.join(LANGUAGES)}")
        return language

    @model_validator(mode="after")
    def _says_all_of_its_model(self) -> Self:
        if self.embedding_model and self.models_file:
            raise ValueError("EMBEDDING_MODEL and MODELS_FILE exclude each other: a file names every model itself")
        if self.embedding_model and not (self.openai_base_url or self.openai_api_key):
            raise ValueError("EMBEDDING_MODEL needs OPENAI_BASE_URL or OPENAI_API_KEY")
        if self.embedding_model and not self.embedding_dimensions:
            raise ValueError("EMBEDDING_MODEL needs EMBEDDING_DIMENSIONS")
        return self

    @property
    def weights(self) -> FieldWeights:
        return FieldWeights(self.path_weight, self.description_weight, self.content_weight)
