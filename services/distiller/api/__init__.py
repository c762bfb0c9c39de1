"""The distiller over HTTP."""

from services.distiller.api.access import PipelineAccess
from services.distiller.api.authorization import Authorization
from services.distiller.api.extractions import ExtractionApi
from services.distiller.api.lanes import LaneApi
from services.distiller.api.pipelines import PipelineApi
from services.distiller.api.repairs import RepairApi
from services.distiller.api.replays import ReplayApi
from services.distiller.api.runs import RunApi

__all__ = [
    "Authorization",
    "ExtractionApi",
    "LaneApi",
    "PipelineAccess",
    "PipelineApi",
    "RepairApi",
    "ReplayApi",
    "RunApi",
]
