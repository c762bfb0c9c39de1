"""What one replica learned of an endpoint is told to the others.

Each has a breaker of its own, and after a `Retry-After` of an hour only one of them may have asked again. Where one's
probe has passed, the others' pauses are over.
"""

from services.distiller.lanes import LaneWorkers
from services.distiller.llm import Models
from services.distiller.store import Lanes


class Providers:
    def __init__(self, models: Models, lanes: Lanes, workers: LaneWorkers) -> None:
        self._models = models
        self._lanes = lanes
        self._workers = workers

    async def look(self) -> None:
        """Ends the pauses of endpoints that have answered another replica since they failed here."""
        for model in self._models.shut():
            if await self._lanes.has_recovered(model.provider, model.breaker.failed_ago_s):
                model.breaker.end_pause()
                await self._lanes.wake(model.provider)  # those that were put off here, after the other's probe
                self._workers.due_in(0)
