"""The memory service's settings."""

from pydantic import field_validator

from libs.chassis.settings import ServiceSettings
from libs.chassis.stores import Creators
from services.memory.ranking import FieldWeights
from services.memory.text import LANGUAGES


class MemorySettings(ServiceSettings):
    """`default_language`: of stores that name none. The weights say how much a word counts by where it stands."""

    default_language: str = "english"  # not `language`: many shells have a LANGUAGE of their own
    path_weight: float = 1.0
    description_weight: float = 1.0
    content_weight: float = 1.0
    store_creators: Creators = "everybody"
    erasure_repeat_s: float = 30.0

    @field_validator("default_language")
    @classmethod
    def _known(cls, language: str) -> str:
        if language not in LANGUAGES:
            raise ValueError(f"must be one of {', '.join(LANGUAGES)}")
        return language

    @property
    def weights(self) -> FieldWeights:
        return FieldWeights(self.path_weight, self.description_weight, self.content_weight)
