"""What was distilled from or into deleted stores goes in the background, a portion at a time.

A restored database may bring a deleted store back, and then its pipelines are at work: so whoever owns the store is
asked before each portion, and what was told of it earlier counts no more.
"""

from libs.chassis.housekeeping import BATCH
from libs.chassis.unit_of_work import UnitOfWork
from services.distiller.access import Access
from services.distiller.domain import Pipeline
from services.distiller.store import Erasures


class GoneStores:
    def __init__(self, erasures: Erasures, access: Access, unit_of_work: UnitOfWork) -> None:
        self._erasures = erasures
        self._access = access
        self._unit_of_work = unit_of_work

    async def purge(self) -> None:
        """Raises `Retry` when a store's owner does not answer; what is left waits for the next time."""
        async with self._unit_of_work.begin() as tx:
            left = await self._erasures.of_gone_stores(tx)
        for pipeline, store_uid in left:
            while await self._access.is_gone(pipeline, store_uid):
                if await self._purge(pipeline) < BATCH:
                    break
        async with self._unit_of_work.begin() as tx:
            await self._erasures.expire_gone_stores(tx)

    async def _purge(self, pipeline: Pipeline) -> int:
        async with self._unit_of_work.begin() as tx:
            return await self._erasures.purge(tx, pipeline.pipeline_uid)
