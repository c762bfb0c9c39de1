"""Finds by looking what an event should have told: the broker may lose anything, and nothing is lost.

A pipeline's session store is asked for the sessions that changed since the last sweep began, minus an overlap; a new
pipeline, and every pipeline once a day, gets the whole walk.
"""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from libs.chassis.errors import ApiError, Reject, Retry
from libs.chassis.logs import logger
from libs.contracts.requests import ChangedSessions, SessionsChanged
from services.distiller.lanes import LaneWorkers
from services.distiller.metrics import Metrics
from services.distiller.settings import DistillerSettings
from services.distiller.store import Lanes, Mark, Pipelines
from services.distiller.store.pipelines import Sweep

RETRY_S = 5.0
IN_FLIGHT = timedelta(seconds=5)

Ask = Callable[..., Awaitable[Any]]


log = logger(__name__)


class Sweeper:
    def __init__(
        self,
        settings: DistillerSettings,
        pipelines: Pipelines,
        lanes: Lanes,
        workers: LaneWorkers,
        ask: Ask,
        metrics: Metrics,
    ) -> None:
        self._settings = settings
        self._pipelines = pipelines
        self._lanes = lanes
        self._workers = workers
        self._ask = ask
        self._metrics = metrics
        self.wake = asyncio.Event()

    async def sweep(self) -> None:
        """Sweeps every pipeline that is due for it."""
        settings = self._settings
        while True:
            sweep = await self._pipelines.claim_sweep(
                settings.sweep_interval_s, settings.sweep_overlap_s, settings.full_sweep_interval_s
            )
            if sweep is None:
                break
            try:
                await self._walk(sweep)
            except (ApiError, Retry, Reject) as away:
                log.info("sweep_put_off", error=str(away))
                await self._pipelines.put_off_sweep(sweep, settings.sweep_interval_s, RETRY_S)
            else:
                await self._pipelines.end_sweep(sweep)
        self._metrics.oldest_undistilled.set(await self._lanes.oldest_undistilled_s())

    async def _walk(self, sweep: Sweep) -> None:
        pipeline, cursor = sweep.pipeline, None
        # Younger ones may still be told by their event; the next sweep overlaps this one.
        settled = datetime.now(UTC) - IN_FLIGHT
        while True:
            page: ChangedSessions = await self._ask(
                SessionsChanged(store_uid=pipeline.session_store_uid, since=sweep.since, cursor=cursor),
                ChangedSessions,
            )
            if page.sessions:
                marks = [
                    Mark(
                        store_uid=pipeline.session_store_uid,
                        session_uid=session.session_uid,
                        session_id=session.session_id,
                        actor_id=session.actor_id,
                        last_position=session.last_position,
                        appended_at=session.last_activity_time,
                    )
                    for session in page.sessions
                    if session.last_position and (sweep.since is None or session.last_activity_time < settled)
                ]
                news, due_in_s = await self._lanes.mark(marks, pipeline.pipeline_uid)
                if sweep.since is not None:
                    self._metrics.sweep_finds.inc(news)
                if due_in_s is not None:
                    self._workers.due_in(due_in_s)
            cursor = page.cursor
            if cursor is None:
                return
