"""Replays, and where each of their actors stands.

waiting → distilling → held → swapping → swapped; or failed, or gone when it was erased or cancelled. A replay distils
on lanes of a pipeline that nobody sees. From `held` on its actor's live lane is leased to nobody, so that the two can
meet at one watermark. A swap that may be under way cannot be called off: the actor is then `withdrawing`, its live lane
goes on, and memory says whether the swap was made, after which it never is.
"""

from services.distiller.store.replays.actors import ReplayActors
from services.distiller.store.replays.records import (
    CANCELED,
    ERASED,
    ActorState,
    AtWork,
    Counts,
    Replay,
    ReplayState,
)
from services.distiller.store.replays.replays import Replays, expired

__all__ = [
    "CANCELED",
    "ERASED",
    "ActorState",
    "AtWork",
    "Counts",
    "Replay",
    "ReplayActors",
    "ReplayState",
    "Replays",
    "expired",
]
