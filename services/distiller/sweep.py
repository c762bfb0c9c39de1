"""Finds by looking what an event should have told: the broker may lose anything, and nothing is lost.

A pipeline's session store is asked for the sessions that changed since the last sweep began, minus an overlap; a new
pipeline, and every pipeline once a day, gets the whole walk. Lanes that are behind and wait for nothing go on.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from libs.chassis.errors import ApiError, Reject, Retry
from libs.chassis.logs import logger
from libs.contracts.requests import ChangedSessions, SessionsChanged
from services.distiller.domain import Pipeline
from services.distiller.lanes import LaneWorkers
from services.distiller.metrics import Metrics
from services.distiller.restored import Restored
from services.distiller.settings import DistillerSettings
from services.distiller.store import Lanes, Mark, Pipelines

RETRY_S = 5.0
IN_FLIGHT = timedelta(seconds=5)

Ask = Callable[..., Awaitable[Any]]


log = logger(__name__)


@dataclass(frozen=True, slots=True)
class Walked:
    """A page of sessions, looked at; `cursor` is where the next one begins."""

    sessions: int
    rewound: int
    cursor: str | None


class Sweeper:
    def __init__(
        self,
        settings: DistillerSettings,
        pipelines: Pipelines,
        lanes: Lanes,
        workers: LaneWorkers,
        ask: Ask,
        restored: Restored,
        metrics: Metrics,
    ) -> None:
        self._settings = settings
        self._pipelines = pipelines
        self._lanes = lanes
        self._workers = workers
        self._ask = ask
        self._restored = restored
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
                cursor = None
                while True:
                    walked = await self.walk(sweep.pipeline, sweep.since, cursor)
                    cursor = walked.cursor
                    if cursor is None:
                        break
                if await self._lanes.make_lost_due(sweep.pipeline.pipeline_uid):
                    self._workers.due_in(0)
            except (ApiError, Retry, Reject) as away:
                log.info("sweep_put_off", error=str(away))
                await self._pipelines.put_off_sweep(sweep, settings.sweep_interval_s, RETRY_S)
            else:
                await self._pipelines.end_sweep(sweep)
        self._metrics.oldest_undistilled.set(await self._lanes.oldest_undistilled_s())

    async def walk(self, pipeline: Pipeline, since: datetime | None, cursor: str | None) -> Walked:
        """Marks a page of the sessions that changed since then, or of all. Raises `Retry`, `Reject`."""
        # Younger ones may still be told by their event; the next sweep overlaps this one.
        settled = datetime.now(UTC) - IN_FLIGHT
        page: ChangedSessions = await self._ask(
            # Of what is empty now, something may have been distilled before a restore.
            SessionsChanged(store_uid=pipeline.session_store_uid, since=since, empty_too=True, cursor=cursor),
            ChangedSessions,
        )
        rewound = await self._restored.rewind(pipeline, page.sessions) if page.sessions else 0
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
            if session.last_position > session.copied_through
            if since is None or session.last_activity_time < settled
        ]
        if marks:
            news, due_in_s = await self._lanes.mark(marks, pipeline.pipeline_uid)
            if since is not None:
                self._metrics.sweep_finds.inc(news)
            if due_in_s is not None:
                self._workers.due_in(due_in_s)
        self._metrics.rewound.inc(rewound)
        return Walked(len(page.sessions), rewound, page.cursor)
