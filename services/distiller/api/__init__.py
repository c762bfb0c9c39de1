"""The distiller over HTTP."""

from services.distiller.api.extractions import ExtractionApi
from services.distiller.api.pipelines import PipelineApi

__all__ = ["ExtractionApi", "PipelineApi"]
