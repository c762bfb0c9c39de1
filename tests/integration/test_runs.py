"""Runs: when a scheduled one starts, what it covers, and why it fails."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any, cast

import pytest

from libs.chassis.errors import Retry
from libs.chassis.housekeeping import Pass, run_pass
from libs.contracts.ids import uuid7
from libs.contracts.requests import ChangedSession
from services.distiller.access import Access
from services.distiller.domain import Lease, Pipeline
from services.distiller.lanes import LaneWorkers
from services.distiller.llm import Models
from services.distiller.runs import Runner
from services.distiller.settings import DistillerSettings
from services.distiller.store import Run
from services.distiller.store.runs import expired
from tests.support import scripted_model as scripted
from tests.support.distiller import DistillerStore, distiller_store
from tests.support.replaying import Gate
from tests.support.scripted_model import ScriptedModel, scripted_model
from tests.support.servers import NatsServer, PostgresServer
from tests.support.service import chassis_of, until
from tests.support.system import Open, System, system

DAY_S = 86_400.0
FRIEND = "friend@example.com"


@pytest.fixture
async def store(postgres: PostgresServer) -> AsyncIterator[DistillerStore]:
    async with distiller_store(postgres) as opened:
        yield opened


async def nobody(*_: Any, **__: Any) -> Any:
    raise Retry("nobody answers")


def runner(store: DistillerStore, access: Any = None) -> Runner:
    """Of one replica; a schedule asks nobody and wakes no worker."""
    settings = DistillerSettings(database_url="postgresql://unused")  # type: ignore[arg-type]
    return Runner(settings, store.runs, store.pipelines, cast(LaneWorkers, None), store.unit_of_work, access, nobody)


async def test_one_replica_starts_a_scheduled_run_and_the_next_comes_a_day_later(store: DistillerStore) -> None:
    pipeline = await store.pipeline(trigger="SCHEDULED")
    manual = await store.pipeline(trigger="MANUAL_ONLY")
    replicas = [runner(store) for _ in range(4)]

    async def after(seconds: float) -> list[str]:
        """The states of the pipeline's runs when so much time has passed and every replica has looked."""
        await store.database.write(
            "update pipelines set next_run_at = next_run_at - make_interval(secs => $1) returning 1", seconds
        )
        await asyncio.gather(*(replica.schedule() for replica in replicas))
        return [run.state for run in await store.runs.page(pipeline.pipeline_uid, None, 10)]

    for each in (pipeline, manual):
        async with store.unit_of_work.begin() as tx:
            await store.pipelines.set_next_run(tx, each.pipeline_uid, DAY_S)
    assert await after(0.94 * DAY_S) == []
    assert await after(0.07 * DAY_S) == ["PENDING"]
    assert await after(0.94 * DAY_S) == ["PENDING"]
    assert await after(0.12 * DAY_S) == ["PENDING"], "one that is still active is left alone"
    [run] = await store.runs.page(pipeline.pipeline_uid, None, 10)
    async with store.unit_of_work.begin() as tx:
        await store.runs.end(tx, run.run_id, "SUCCEEDED", None)
    assert await after(1.06 * DAY_S) == ["PENDING", "SUCCEEDED"]
    assert await store.runs.page(manual.pipeline_uid, None, 10) == []


async def test_the_goals_of_a_run_go_long_after_its_end_and_the_run_stays(store: DistillerStore) -> None:
    runs = []
    for _ in range(3):
        pipeline = await store.pipeline(trigger="MANUAL_ONLY")
        async with store.unit_of_work.begin() as tx:
            await store.runs.start(tx, pipeline.pipeline_uid)
        runs += await store.runs.page(pipeline.pipeline_uid, None, 10)
    old, recent, active = (run.run_id for run in runs)
    for run_id in (old, recent):
        async with store.unit_of_work.begin() as tx:
            await store.runs.end(tx, run_id, "SUCCEEDED", None)
    await store.database.write("update runs set end_time = end_time - interval '31 days' where run_id = $1", old)
    await store.database.write(
        "insert into run_lanes (run_id, actor_id, session_uid, goal_position)"
        " select run_id, 'ana', gen_random_uuid(), 1 from runs"
    )

    await run_pass(store.unit_of_work, Pass("expire", expired))

    kept = await store.database.fetch("select run_id from run_lanes")
    assert {row["run_id"] for row in kept} == {recent, active}
    assert await store.database.fetchval("select count(*) from runs") == 3


async def ended(memstream: System, run: str) -> dict[str, Any]:
    found: dict[str, Any] = {}

    async def has_ended() -> bool:
        found.update(await memstream.call("GET", f"/{run}"))
        return found["state"] in ("SUCCEEDED", "FAILED")

    await until(has_ended)
    return found


async def test_a_run_covers_what_was_there_when_it_started_and_no_more(
    postgres: PostgresServer, nats: NatsServer
) -> None:
    go_on = asyncio.Event()

    async def wait_then_answer(body: dict[str, Any]) -> Any:
        await go_on.wait()
        return await scripted.valid(body)

    async with scripted_model() as model:
        model.behave(wait_then_answer)
        async with system(postgres, nats, models=model.models()) as memstream:
            pipeline = await memstream.pipeline(trigger="MANUAL_ONLY")
            await memstream.say("ana", "s1", "Tea is what I drink")
            run = (await memstream.call("POST", f"/{pipeline}/run", json={}))["name"]
            await until(lambda: model.calls == 1)
            await memstream.say("ana", "s1", "Rain or shine")
            await memstream.say("bo", "s2", "Coffee is what I drink")
            go_on.set()

            assert (await ended(memstream, run))["state"] == "SUCCEEDED"
            assert list((await memstream.memories("ana")).values()) == ["Tea is what I drink"]
            assert await memstream.memories("bo") == {}

            second = (await memstream.call("POST", f"/{pipeline}/run", json={}))["name"]

            assert (await ended(memstream, second))["state"] == "SUCCEEDED"
            assert len(await memstream.memories("ana")) == 2
            assert len(await memstream.memories("bo")) == 1


async def started(store: DistillerStore, pipeline: Pipeline, *actors: str) -> Run:
    """A run that waits for a line of each actor."""
    sessions = [
        ChangedSession(
            session_uid=uuid7(), session_id="s1", actor_id=actor, last_position=1, last_activity_time=datetime.now(UTC)
        )
        for actor in actors
    ]
    async with store.unit_of_work.begin() as tx:
        run = await store.runs.start(tx, pipeline.pipeline_uid)
        assert run is not None
        assert await store.runs.fix_goals(tx, run, pipeline, sessions, None)
    return run


async def leases(store: DistillerStore) -> dict[str, Lease]:
    """Of all lanes that are due, by actor."""
    tokens = {actor: (uid, token) for uid, actor, _, token in await store.leases.due(100, 100, ())}
    taken = [await store.leases.take(uid, {actor: token}, 30) for actor, (uid, token) in tokens.items()]
    return {lease.actor_id: lease for [lease] in taken}


async def looked(store: DistillerStore, run: Run) -> tuple[str, str | None]:
    """State and error once a replica has looked after all runs."""
    await runner(store, Anybody()).step()
    found = await store.runs.get(run.pipeline_uid, run.run_id)
    assert found is not None
    return found.state, found.error


class Anybody:
    """Whoever asks may."""

    async def check(self, *_: Any, **__: Any) -> None: ...


async def test_a_run_fails_with_the_reasons_once_whoever_is_not_parked_has_settled(store: DistillerStore) -> None:
    pipeline = await store.pipeline(trigger="MANUAL_ONLY")
    run = await started(store, pipeline, "ana", "bo", "cy", "di")
    taken = await leases(store)
    for actor, reason in (("ana", "not JSON"), ("bo", "deadline"), ("cy", "not JSON")):
        await store.leases.put_off(taken[actor], 3600, reason=reason, attempts=6, parked=True)

    working = await looked(store, run)
    await store.database.write("update lane_sessions set applied_position = 1 where actor_id = 'di'")

    assert working == ("RUNNING", None)
    assert await looked(store, run) == ("FAILED", "3 actors not distilled: not JSON; deadline")


async def test_a_run_waits_an_hour_for_an_endpoint_and_then_fails(store: DistillerStore) -> None:
    pipeline = await store.pipeline(trigger="MANUAL_ONLY")
    run = await started(store, pipeline, "ana")
    waiting = []
    for minutes in (0, 59, 2):
        await store.database.write(
            "update lanes set due_at = now(), provider_since = provider_since - make_interval(mins => $1)", minutes
        )
        await store.leases.put_off((await leases(store))["ana"], 3600, reason="http_429", provider="small")
        waiting.append(await looked(store, run))

    assert waiting == [("RUNNING", None), ("RUNNING", None), ("FAILED", "1 actor not distilled: http_429")]


async def test_nothing_is_said_against_a_pipeline_while_nobody_can_say(store: DistillerStore) -> None:
    models = Models.of(DistillerSettings(database_url="postgresql://unused"))  # type: ignore[arg-type]

    assert await Access(nobody, models).obstacle(await store.pipeline()) is None


@pytest.mark.parametrize("name", ["session-stores/chats", "memory-stores/facts"])
async def test_a_store_made_again_under_its_name_is_another_one(memstream: System, name: str) -> None:
    pipeline = await memstream.pipeline(trigger="MANUAL_ONLY")
    await memstream.say("ana", "s1", "I am allergic to peanuts.")
    run = (await memstream.call("POST", f"/{pipeline}/run", json={}))["name"]
    assert (await ended(memstream, run))["state"] == "SUCCEEDED"
    await memstream.call("DELETE", f"/{name}")
    await memstream.call("POST", "/session-stores?session_store_id=chats", json={}) if "session" in name else (
        await memstream.call("POST", "/memory-stores?managed_memory_store_id=facts", json={"display_name": "facts"})
    )
    shown = await memstream.call("GET", f"/{pipeline}")

    second = (await memstream.call("POST", f"/{pipeline}/run", json={}))["name"]

    failed = await ended(memstream, second)
    assert failed["state"] == "FAILED"
    assert f"{name} of this pipeline was deleted; a new one of that name is another" in failed["error"]
    assert shown["error"] == failed["error"]
    assert await memstream.call("GET", "/memory-pipelines") == {"memory_pipelines": [shown]}
    policy = {"dreamer_policy": {"enabled": False}}
    paused = await memstream.call("PATCH", f"/{pipeline}?update_mask=dreamer_policy.enabled", json=policy)
    assert paused["error"] == failed["error"]


@pytest.mark.parametrize(
    ("store", "needed"), [("session-stores/chats", "READ"), ("memory-stores/facts", "WRITE")], ids=["source", "target"]
)
async def test_a_run_fails_when_the_pipelines_creator_has_lost_a_right(
    memstream: System, store: str, needed: str
) -> None:
    await memstream.call("POST", "/session-stores?session_store_id=chats", json={})
    await memstream.call("POST", "/memory-stores?managed_memory_store_id=facts", json={"display_name": "facts"})
    friend = {"principal_type": "USER", "name": FRIEND}
    for name in ("session-stores/chats", "memory-stores/facts"):
        await memstream.call("POST", f"/{name}/permissions:grant", json={"principal": friend, "permission": "WRITE"})
    header = memstream.keys.header(FRIEND)
    body = {"session_store": "chats", "memory_store": "facts"}
    pipeline = (await memstream.call("POST", "/memory-pipelines", json=body, headers=header))["name"]
    await memstream.say("ana", "s1", "I am allergic to peanuts.")
    await memstream.call("POST", f"/{store}/permissions:revoke", json={"principal": friend})

    shown = await memstream.call("GET", f"/{pipeline}", headers=header)
    run = (await memstream.call("POST", f"/{pipeline}/run", json={}, headers=header))["name"]

    boss = memstream.keys.header("boss@example.com", admin=True)
    memstream.client.headers.update(boss)
    failed = await ended(memstream, run)
    assert failed["state"] == "FAILED"
    assert f"PERMISSION_DENIED: the pipeline's creator needs {needed} on {store}" in failed["error"]
    assert shown["error"] == failed["error"]


@pytest.mark.parametrize("trigger", ["CONTINUOUS", "MANUAL_ONLY"])
async def test_positions_that_the_session_database_lost_before_they_were_distilled_hold_nothing_up(
    opened: Open, model: ScriptedModel, trigger: str
) -> None:
    gate = Gate(scripted.valid)
    gate.close()
    model.behave(gate)
    async with opened(sweep_interval_s=0.5) as memstream:
        database = chassis_of(memstream.apps["distiller"]).database
        pipeline = await memstream.pipeline(trigger=trigger)
        await memstream.say("ana", "s1", "Tea is what I drink")
        if trigger == "MANUAL_ONLY":
            run = (await memstream.call("POST", f"/{pipeline}/run", json={}))["name"]
        await until(lambda: gate.waiting)

        # Four more were told of, and then the session database fell back to before them.
        await database.write("update lane_sessions set known_position = 5, goal_position = goal_position * 5")
        await database.write("update run_lanes set goal_position = 5")
        await memstream.say("ana", "s1", "Rain or shine")
        gate.open()

        if trigger == "MANUAL_ONLY":
            assert (await ended(memstream, run))["state"] == "SUCCEEDED"
            run = (await memstream.call("POST", f"/{pipeline}/run", json={}))["name"]
            assert (await ended(memstream, run))["state"] == "SUCCEEDED"
        await memstream.settled(pipeline)
        assert len(await memstream.memories("ana")) == 2
        assert await database.fetchval("select known_position from lane_sessions") == 2


async def test_a_sweep_finds_what_was_marked_while_its_pipeline_became_continuous(opened: Open) -> None:
    async with opened(sweep_interval_s=0.5) as memstream:
        database = chassis_of(memstream.apps["distiller"]).database
        pipeline = await memstream.pipeline(trigger="MANUAL_ONLY")
        await memstream.say("ana", "s1", "Tea is what I drink")
        await until(lambda: database.fetchval("select exists (select from lane_sessions)"))

        # As a mark leaves it that did not see the new trigger yet.
        await database.write("update pipelines set trigger = 'CONTINUOUS'")

        await memstream.settled(pipeline)
        assert len(await memstream.memories("ana")) == 1
