"""All SQL of the distiller, one module per aggregate."""

from services.distiller.store.answers import Answers
from services.distiller.store.batches import Batches
from services.distiller.store.consolidation import Consolidations
from services.distiller.store.erasures import Erasures
from services.distiller.store.lanes import Lanes, LaneView, Mark
from services.distiller.store.leases import Leases
from services.distiller.store.pipelines import Pipelines
from services.distiller.store.replays import Replay, ReplayActors, Replays
from services.distiller.store.runs import Run, Runs
from services.distiller.store.usage import Usage

__all__ = [
    "Answers",
    "Batches",
    "Consolidations",
    "Erasures",
    "LaneView",
    "Lanes",
    "Leases",
    "Mark",
    "Pipelines",
    "Replay",
    "ReplayActors",
    "Replays",
    "Run",
    "Runs",
    "Usage",
]
