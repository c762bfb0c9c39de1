"""Workspaces take turns: one that is far behind does not keep another waiting. By order, not by time."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from itertools import count
from typing import Any, cast

import pytest
from prometheus_client import CollectorRegistry

from services.distiller import lanes
from services.distiller.distil import Distiller
from services.distiller.domain import Lease, Pipeline
from services.distiller.lanes import LaneWorkers
from services.distiller.metrics import Metrics
from services.distiller.settings import DistillerSettings
from tests.support.distiller import DistillerStore, distiller_store
from tests.support.servers import PostgresServer
from tests.support.service import until

CROWD, LONE = 1, 2
LANES = 10_000


@pytest.fixture
async def store(postgres: PostgresServer) -> AsyncIterator[DistillerStore]:
    async with distiller_store(postgres) as opened:
        yield opened


class Recorded:
    """Takes its time, finds nothing, and knows whose turn it was and how many of each were at work at once."""

    def __init__(self) -> None:
        self.turns: list[int] = []
        self.at_work: Counter[int] = Counter()
        self.most_at_work = 0

    async def distil(self, lease: Lease) -> bool:
        workspace = lease.pipeline.workspace_id
        self.turns.append(workspace)
        self.at_work[workspace] += 1
        self.most_at_work = max(self.most_at_work, self.at_work[CROWD])
        await asyncio.sleep(0.02)
        self.at_work[workspace] -= 1
        return False


@asynccontextmanager
async def at_work(store: DistillerStore, distiller: Any, **settings: Any) -> AsyncIterator[LaneWorkers]:
    chosen = DistillerSettings(database_url="postgresql://unused", **settings)  # type: ignore[arg-type]
    workers = LaneWorkers(chosen, store.leases, cast(Distiller, distiller), Metrics(CollectorRegistry()))
    running = asyncio.create_task(workers.run())
    try:
        yield workers
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_ten_thousand_lanes_of_a_workspace_delay_another_by_no_more_than_a_turn(store: DistillerStore) -> None:
    crowd = await store.pipeline(workspace_id=CROWD)
    lone = await store.pipeline(workspace_id=LONE)
    for start in range(0, LANES, 1000):
        await store.lanes.mark([store.mark(crowd, f"actor-{n:05}", 1) for n in range(start, start + 1000)])
    settings = DistillerSettings(database_url="postgresql://unused")  # type: ignore[arg-type]
    recorded = Recorded()
    async with at_work(store, recorded) as workers:
        for _ in range(5):
            begun = len(recorded.turns)
            await until(lambda begun=begun: len(recorded.turns) >= begun + 20)
            _, due_in_s = await store.lanes.mark([store.mark(lone, "bo", len(recorded.turns))])
            marked = len(recorded.turns)
            workers.due_in(due_in_s or 0)
            await until(lambda marked=marked: LONE in recorded.turns[marked:])

            before_it = recorded.turns[marked:].index(LONE)
            assert before_it <= 2 * settings.lanes_per_workspace
            await until(lambda: not recorded.at_work[LONE])
    assert recorded.most_at_work <= settings.lanes_per_workspace


@pytest.mark.parametrize("workspaces", [3, 20])
async def test_of_however_many_workspaces_all_are_served_without_a_look_at_the_table_now_and_then(
    store: DistillerStore, workspaces: int
) -> None:
    pipelines = [await store.pipeline(workspace_id=number) for number in range(workspaces)]
    actors = range(48 // workspaces)
    await store.lanes.mark([store.mark(pipeline, f"a{actor}", 1) for pipeline in pipelines for actor in actors])
    recorded = Recorded()

    async with at_work(store, recorded, poll_interval_s=3600):
        await until(lambda: len(recorded.turns) == workspaces * len(actors))


async def test_a_lane_that_is_due_since_the_last_look_is_taken_without_a_look_at_the_table_now_and_then(
    store: DistillerStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = await store.pipeline()
    next_due_s = store.leases.next_due_s
    recorded = Recorded()

    async def marked_before(full: Sequence[int]) -> float | None:
        await store.lanes.mark([store.mark(pipeline, "ana", 1)])
        return await next_due_s(full)

    monkeypatch.setattr(store.leases, "next_due_s", marked_before)
    async with at_work(store, recorded, poll_interval_s=3600):
        await until(lambda: recorded.turns)


async def test_while_one_workspace_is_full_anothers_lane_is_taken_when_it_is_due(store: DistillerStore) -> None:
    crowd = await store.pipeline(workspace_id=CROWD)
    lone = await store.pipeline(workspace_id=LONE, quiet_period_s=0.2, max_wait_s=5)
    await store.lanes.mark([store.mark(crowd, f"a{number}", 1) for number in range(20)])
    taken: list[str] = []

    class Stuck:
        async def distil(self, lease: Lease) -> bool:
            taken.append(lease.actor_id)
            return await asyncio.Future() if lease.pipeline.workspace_id == CROWD else False

    async with at_work(store, Stuck(), poll_interval_s=3600) as workers:
        await until(lambda: len(taken) == 8)
        for actor in ("bo", "cy"):  # the second is due after the first, for which there is a timer already
            _, due_in_s = await store.lanes.mark([store.mark(lone, actor, 1)])
            workers.due_in(due_in_s or 0)
            await asyncio.sleep(0.1)
        await until(lambda: taken[8:] == ["bo", "cy"])


@pytest.mark.parametrize(("room", "lanes"), [("lanes_per_process", 1), ("lanes_per_workspace", 2)])
async def test_a_lane_that_is_held_back_is_not_looked_for_again_and_again(
    store: DistillerStore, monkeypatch: pytest.MonkeyPatch, room: str, lanes: int
) -> None:
    pipeline = await store.pipeline()
    await store.lanes.mark([store.mark(pipeline, f"a{number}", 1) for number in range(lanes + 1)])
    due = store.leases.due
    looks = count(1)
    is_hot = asyncio.Event()

    class Slow:
        async def distil(self, lease: Lease) -> bool:
            return await asyncio.Future()

    async def counted(*room: Any) -> Any:
        if next(looks) == 5:
            is_hot.set()
        return await due(*room)

    monkeypatch.setattr(store.leases, "due", counted)
    async with at_work(store, Slow(), poll_interval_s=3600, **{room: lanes}):
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(is_hot.wait(), timeout=1)

    assert await store.leases.next_due_s() == pytest.approx(0, abs=60), "there is one more"


async def test_two_workspaces_whose_model_is_slow_leave_room_for_a_third_and_one_alone_has_all_that_it_may(
    store: DistillerStore,
) -> None:
    first, second, third = [await store.pipeline(workspace_id=number) for number in (1, 2, 3)]
    distilling: list[int] = []

    class Slow:
        async def distil(self, lease: Lease) -> bool:
            distilling.append(lease.pipeline.workspace_id)
            return await asyncio.Future()

    async def mark(pipeline: Pipeline) -> None:
        await store.lanes.mark([store.mark(pipeline, f"a{actor}", 1) for actor in range(20)])
        workers.due_in(0)

    async with at_work(store, Slow(), poll_interval_s=3600) as workers:
        await mark(first)
        await until(lambda: Counter(distilling) == {1: 8})
        await mark(second)
        await until(lambda: Counter(distilling) == {1: 8, 2: 4})
        await mark(third)
        await until(lambda: Counter(distilling) == {1: 8, 2: 4, 3: 1})


async def test_what_comes_while_a_workspace_rests_is_taken_together_and_what_comes_alone_at_once(
    store: DistillerStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lanes, "REST_S", 3600)
    first, second = [await store.pipeline(workspace_id=number) for number in (1, 2)]
    recorded = Recorded()
    ticking = iter(range(100))

    async def mark(pipeline: Pipeline, lanes_of_it: int) -> None:
        await store.lanes.mark([store.mark(pipeline, f"a{next(ticking)}", 1) for _ in range(lanes_of_it)])
        workers.due_in(0)

    async with at_work(store, recorded, poll_interval_s=3600) as workers:
        await mark(first, 1)
        await until(lambda: recorded.turns == [1])
        await mark(first, 2)
        await until(lambda: recorded.turns == [1] * 3)
        await mark(first, 1)
        await mark(second, 1)
        await until(lambda: recorded.turns == [1, 1, 1, 2])
        monkeypatch.setattr(workers, "_resting", {})
        workers.due_in(0)
        await until(lambda: recorded.turns == [1, 1, 1, 2, 1])
