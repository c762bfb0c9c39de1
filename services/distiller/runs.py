"""Runs: each fixes its goal page by page when it starts, and ends when memory has reached it.

`SUCCEEDED` means searchable. `FAILED` once every other actor has settled and some are parked, with their number.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any

from libs.chassis.errors import ApiError, Reject, Retry
from libs.chassis.logs import logger
from libs.chassis.unit_of_work import UnitOfWork
from libs.contracts.requests import ChangedSessions, SessionsChanged
from services.distiller.access import Access
from services.distiller.domain import LaneFailure, Pipeline
from services.distiller.lanes import LaneWorkers
from services.distiller.settings import DistillerSettings
from services.distiller.store import Pipelines, Run, Runs
from services.distiller.store.patience import PATIENCE_MS
from services.distiller.store.runs import RunState

Ask = Callable[..., Awaitable[Any]]
GIVE_UP_S = 3600.0
JITTER = 0.05


log = logger(__name__)


class Runner:
    """`step` moves every active run on; any replica may, each step is a compare-and-set."""

    def __init__(
        self,
        settings: DistillerSettings,
        runs: Runs,
        pipelines: Pipelines,
        workers: LaneWorkers,
        unit_of_work: UnitOfWork,
        access: Access,
        ask: Ask,
    ) -> None:
        self._settings = settings
        self._runs = runs
        self._pipelines = pipelines
        self._workers = workers
        self._unit_of_work = unit_of_work
        self._access = access
        self._ask = ask
        self.wake = asyncio.Event()

    async def step(self) -> None:
        for run in await self._runs.all_active():
            try:
                await self._move(run)
            except (ApiError, Retry, Reject) as away:
                log.warning("run_interrupted", error=str(away))

    async def schedule(self) -> None:
        """Starts the scheduled pipelines whose hour has come; one that is still active is left alone."""
        async with self._unit_of_work.begin() as tx:
            for pipeline_uid in await self._pipelines.claim_scheduled(tx, self.pause_s()):
                await self._runs.start(tx, pipeline_uid)

    def pause_s(self) -> float:
        """About a day, so that the schedules of many pipelines drift apart."""
        return self._settings.schedule_interval_s * random.uniform(1 - JITTER, 1 + JITTER)  # noqa: S311

    async def _move(self, run: Run) -> None:
        pipeline = await self._pipelines.of_run(run.pipeline_uid)
        if pipeline is None:
            return
        try:
            await self._access.check(pipeline, believed=run.state != "PENDING")
            await (self._fix_goals(run, pipeline) if run.state == "PENDING" else self._look(run, pipeline))
        except LaneFailure as failure:
            await self._end(run.run_id, "FAILED", str(failure))

    async def _fix_goals(self, run: Run, pipeline: Pipeline) -> None:
        page: ChangedSessions = await self._ask(
            SessionsChanged(store_uid=pipeline.session_store_uid, cursor=run.cursor), ChangedSessions
        )
        sessions = [session for session in page.sessions if session.last_position]
        async with self._unit_of_work.begin(patience_ms=PATIENCE_MS) as tx:
            await self._runs.fix_goals(tx, run, pipeline, sessions, page.cursor)
        self._workers.due_in(0)

    async def _look(self, run: Run, pipeline: Pipeline) -> None:
        working, parked = await self._runs.progress(run)
        overdue = bool(working) and await self._runs.waits_for_provider(run, GIVE_UP_S)
        if working and not overdue:
            return
        if parked or working:
            reasons = await self._runs.reasons(run)
            count = parked + working
            await self._end(run.run_id, "FAILED", f"{count} actor{'s' * (count != 1)} not distilled: {reasons}")
        else:
            # In a store that is gone meanwhile nothing is searchable.
            await self._access.check(pipeline, believed=False)
            await self._end(run.run_id, "SUCCEEDED", None)

    async def _end(self, run_id: int, state: RunState, error: str | None) -> None:
        async with self._unit_of_work.begin(patience_ms=PATIENCE_MS) as tx:
            await self._runs.end(tx, run_id, state, error)
