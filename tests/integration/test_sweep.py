"""The sweep: what only it finds is marked and counted, and it says how long the oldest append waits."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest
from prometheus_client import CollectorRegistry

from libs.chassis.errors import Retry
from libs.contracts.ids import uuid7
from libs.contracts.requests import ChangedSession, ChangedSessions, SessionsChanged
from services.distiller.domain import Pipeline
from services.distiller.lanes import LaneWorkers
from services.distiller.metrics import Metrics
from services.distiller.restored import Restored
from services.distiller.settings import DistillerSettings
from services.distiller.sweep import Sweeper
from tests.support.distiller import DistillerStore, distiller_store
from tests.support.servers import PostgresServer


@pytest.fixture
async def store(postgres: PostgresServer) -> AsyncIterator[DistillerStore]:
    async with distiller_store(postgres) as opened:
        yield opened


class NothingRestored:
    async def rewind(self, *_: Any) -> int:
        return 0


class Workers:
    def due_in(self, _: float) -> None:
        """Nobody works here."""


class Sweeps:
    """A replica's sweeper, and the session service that it asks."""

    def __init__(self, store: DistillerStore) -> None:
        self._store = store
        self._registry = CollectorRegistry()
        self._sweeper = Sweeper(
            DistillerSettings(database_url="postgresql://unused"),  # type: ignore[arg-type]
            store.pipelines,
            store.lanes,
            cast(LaneWorkers, Workers()),
            self._ask,
            cast(Restored, NothingRestored()),
            Metrics(self._registry),
        )
        self.sessions: list[ChangedSession] | None = []
        self.asked: list[SessionsChanged] = []

    async def _ask(self, asked: SessionsChanged, *_: Any) -> ChangedSessions:
        self.asked.append(asked)
        if self.sessions is None:
            raise Retry("nobody answers")
        return ChangedSessions(sessions=self.sessions)

    async def sweep(self) -> None:
        await self._store.database.write(
            "update pipelines set sweep_started_at = sweep_started_at - interval '2 minutes'"
        )
        await self._sweeper.sweep()

    def value(self, name: str) -> float | None:
        return self._registry.get_sample_value(f"memstream_{name}")


def session(actor: str, *, ago_s: float, last: int = 3, copied: int = 0) -> ChangedSession:
    return ChangedSession(
        session_uid=uuid7(),
        session_id="s1",
        actor_id=actor,
        last_position=last,
        copied_through=copied,
        last_activity_time=datetime.now(UTC) - timedelta(seconds=ago_s),
    )


async def states(store: DistillerStore, of: Pipeline) -> dict[str, str]:
    return {lane.actor_id: lane.state for lane in await store.lanes.page(of.pipeline_uid, None, None, None, 10)}


async def test_what_an_event_should_have_told_is_found_and_counted_once(store: DistillerStore) -> None:
    pipeline, sweeps = await store.pipeline(), Sweeps(store)
    sweeps.sessions = [session("early", ago_s=3600)]
    await sweeps.sweep()
    at_first = sweeps.value("sweep_finds_total")

    sweeps.sessions += [session("lost", ago_s=60), session("on its way", ago_s=0)]
    await sweeps.sweep()
    found = sweeps.value("sweep_finds_total")
    await sweeps.sweep()

    assert at_first == 0, "the first walk finds what there was before the pipeline"
    assert (found, sweeps.value("sweep_finds_total")) == (1, 1)
    assert await states(store, pipeline) == {"early": "due", "lost": "due"}


async def test_a_session_without_an_item_of_its_own_is_looked_at_but_not_distilled(store: DistillerStore) -> None:
    pipeline, sweeps = await store.pipeline(), Sweeps(store)
    sweeps.sessions = [
        session("empty", ago_s=60, last=0),
        session("copied", ago_s=60, copied=3),
        session("went on", ago_s=60, copied=2),
    ]

    await sweeps.sweep()

    assert [asked.empty_too for asked in sweeps.asked] == [True]
    assert await states(store, pipeline) == {"went on": "due"}


async def test_the_oldest_append_that_waits_is_one_of_a_continuous_pipeline(store: DistillerStore) -> None:
    continuous, manual = await store.pipeline(), await store.pipeline(trigger="MANUAL_ONLY")
    sweeps = Sweeps(store)
    sweeps.sessions = None  # also while nobody answers
    await sweeps.sweep()
    nothing = sweeps.value("oldest_undistilled_seconds")
    await store.lanes.mark([store.mark(continuous, actor, 1) for actor in ("ana", "bo")])
    await store.lanes.mark([store.mark(manual, "cy", 1)])
    await store.database.write(
        "update lane_sessions set oldest_appended_at = now() - make_interval(secs => case actor_id"
        " when 'ana' then 100 when 'bo' then 300 else 9000 end)"
    )

    await sweeps.sweep()
    of_bo = sweeps.value("oldest_undistilled_seconds")
    await store.database.write("update lane_sessions set distilled_position = 1 where actor_id = 'bo'")
    await sweeps.sweep()

    assert nothing == 0
    assert of_bo == pytest.approx(300, abs=60)
    assert sweeps.value("oldest_undistilled_seconds") == pytest.approx(100, abs=60)
