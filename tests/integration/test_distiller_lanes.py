"""Lanes: what is due, who may work on it, and what a late or repeated word changes."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import partial
from itertools import count
from uuid import UUID

import pytest
from prometheus_client import CollectorRegistry

from libs.chassis.errors import Contended
from libs.chassis.outbox import OutboxRow
from libs.contracts.events import MemoriesDistilled, Range, SessionActorErased
from libs.contracts.ids import uuid7
from libs.contracts.requests import ChangedSession
from libs.contracts.topology import CONSUMERS
from services.distiller.domain import Fenced, Lease, Pipeline, Question, batch_of
from services.distiller.handlers import Unanswered
from services.distiller.metrics import Metrics
from services.distiller.settings import DistillerSettings
from services.distiller.store import Batches, Leases, batches, lanes
from services.distiller.store.patience import ALONE_PATIENCE_MS, PATIENCE_MS
from services.distiller.store.usage import Spent
from tests.support.distiller import DistillerStore, distiller_store
from tests.support.servers import PostgresServer
from tests.support.service import until


@pytest.fixture
async def store(postgres: PostgresServer) -> AsyncIterator[DistillerStore]:
    async with distiller_store(postgres) as opened:
        yield opened


async def leased(store: DistillerStore, lease_s: float = 30) -> Lease:
    """A lease of the one lane that is due."""
    [(pipeline_uid, actor_id, _, token)] = await store.leases.due(10, 10, ())
    [lease] = await store.leases.take(pipeline_uid, {actor_id: token}, lease_s)
    return lease


def session_of(store: DistillerStore, of: Pipeline, actor: str) -> UUID:
    """The uid of the actor's session `s1`."""
    return store.sessions[of.session_store_uid, actor, "s1"]


async def hand_over(
    store: DistillerStore,
    of: Pipeline,
    lease: Lease,
    through: int,
    *,
    more: bool = False,
    again_taken: Sequence[int] = (),
) -> bool:
    """Commits a batch of the actor's session `s1` up to a position; False when the lease was lost."""
    session = session_of(store, of, lease.actor_id)
    batch_id = uuid7()
    event = MemoriesDistilled(
        event_id=batch_id,
        workspace_id=of.workspace_id,
        batch_id=batch_id,
        store_uid=of.memory_store_uid,
        actor_id=lease.actor_id,
        pipeline_uid=of.pipeline_uid,
        session_store_uid=of.session_store_uid,
        session_store_id=of.session_store_id,
        source_epoch=0,
        memory_epoch=0,
        oldest_appended_at=None,
        ranges=[Range(session_uid=session, session_id="s1", after=0, through=through)],
        changes=[],
    )
    return await store.batches.emit(lease, event, OutboxRow.of(event), more=more, again_taken={session: [*again_taken]})


async def settle(store: DistillerStore, of: Pipeline, actor: str) -> None:
    await store.batches.settle(of.memory_store_uid, await pending(store, of, actor), "[]", changed=1)


async def pending(store: DistillerStore, of: Pipeline, actor: str) -> UUID:
    """The batch that a lane waits for."""
    found = await store.database.fetchval(
        "select pending_batch from lanes where pipeline_uid = $1 and actor_id = $2", of.pipeline_uid, actor
    )
    return UUID(str(found))


async def due_actors(store: DistillerStore, limit: int = 100) -> set[str]:
    return {actor for _, actor, _, _ in await store.leases.due(limit, limit, ())}


async def test_a_marked_lane_is_due_after_its_quiet_period(store: DistillerStore) -> None:
    eager = await store.pipeline()
    patient = await store.pipeline(quiet_period_s=60, max_wait_s=600)

    _, due_in_s = await store.lanes.mark([store.mark(eager, "ana", 3), store.mark(patient, "bo", 3)])

    assert due_in_s is not None
    assert due_in_s <= 0
    assert await due_actors(store) == {"ana"}
    assert (
        50
        < await store.database.fetchval(
            "select extract(epoch from due_at - now())::float8 from lanes where actor_id = 'bo'"
        )
        <= 60
    )


async def test_marks_during_the_quiet_period_never_put_a_lane_off_beyond_its_maximum_wait(
    store: DistillerStore,
) -> None:
    pipeline = await store.pipeline(quiet_period_s=60, max_wait_s=60)

    await store.lanes.mark([store.mark(pipeline, "ana", 1)])
    first = await store.database.fetchval("select due_at from lanes")
    await store.lanes.mark([store.mark(pipeline, "ana", 2)])

    assert await store.database.fetchval("select due_at from lanes") == first


async def test_what_is_said_during_a_distillation_waits_its_own_quiet_period(store: DistillerStore) -> None:
    pipeline = await store.pipeline(quiet_period_s=60, max_wait_s=600)
    await store.lanes.mark([store.mark(pipeline, "ana", 1)])
    await store.database.write("update lanes set due_at = now(), first_due_at = now()")  # after much talk

    for position in range(2, 5):
        lease = await leased(store)
        await store.lanes.mark([store.mark(pipeline, "ana", position)])
        await hand_over(store, pipeline, lease, position - 1)
        await settle(store, pipeline, "ana")

        next_due_s = await store.leases.next_due_s()
        assert next_due_s is not None
        assert 30 < next_due_s <= 60
        await store.database.write("update lanes set due_at = now()")


async def test_a_repeated_or_older_mark_is_no_news(store: DistillerStore) -> None:
    pipeline = await store.pipeline()
    await store.lanes.mark([store.mark(pipeline, "ana", 5)])
    lease = await leased(store)
    await hand_over(store, pipeline, lease, 5)
    await settle(store, pipeline, "ana")

    news, _ = await store.lanes.mark([store.mark(pipeline, "ana", 5), store.mark(pipeline, "ana", 2)])

    assert news == 0
    assert await due_actors(store) == set()


async def test_a_mark_for_a_manual_pipeline_is_known_but_not_due(store: DistillerStore) -> None:
    pipeline = await store.pipeline(trigger="MANUAL_ONLY")

    news, due_in_s = await store.lanes.mark([store.mark(pipeline, "ana", 5)])

    assert (news, due_in_s) == (1, None)
    assert await due_actors(store) == set()
    [lane] = await store.lanes.page(pipeline.pipeline_uid, None, None, None, 10)
    assert (lane.state, lane.behind) == ("waiting", 5)


async def test_a_line_that_is_marked_while_its_pipeline_becomes_continuous_is_made_due_later(
    store: DistillerStore,
) -> None:
    pipeline = await store.pipeline(trigger="MANUAL_ONLY")
    async with store.unit_of_work.begin() as tx:
        await store.pipelines.update(tx, pipeline.pipeline_uid, pipeline.revision, {"trigger": "CONTINUOUS"})
        await store.lanes.make_due(tx, pipeline.pipeline_uid)
        await store.lanes.mark([store.mark(pipeline, "ana", 1)])
    neither = await due_actors(store)

    assert await store.lanes.make_lost_due(pipeline.pipeline_uid) == 1

    assert (neither, await due_actors(store)) == (set(), {"ana"})


@pytest.mark.parametrize(
    "waits",
    [
        "due_at = now() + interval '1 hour'",
        "due_at = null, pending_batch = gen_random_uuid()",
        "due_at = null, lease_until = now() + interval '1 minute'",
        "due_at = null, held_by = gen_random_uuid()",
    ],
    ids=["due", "unanswered", "at work", "held"],
)
async def test_a_lane_that_waits_for_something_is_not_made_due(store: DistillerStore, waits: str) -> None:
    pipeline = await store.pipeline()
    await store.lanes.mark([store.mark(pipeline, "ana", 1)])
    await store.database.write(f"update lanes set {waits}")

    assert await store.lanes.make_lost_due(pipeline.pipeline_uid) == 0


@pytest.mark.parametrize(("trigger", "position"), [("MANUAL_ONLY", 1), ("SCHEDULED", 1), ("CONTINUOUS", 0)])
async def test_only_a_continuous_lane_that_is_behind_is_made_due(
    store: DistillerStore, trigger: str, position: int
) -> None:
    pipeline = await store.pipeline(trigger=trigger)
    await store.lanes.mark([store.mark(pipeline, "ana", position)])
    await store.database.write("update lanes set due_at = null")

    assert await store.lanes.make_lost_due(pipeline.pipeline_uid) == 0


@pytest.mark.parametrize(
    ("trigger", "is_replays", "is_due", "is_wanted"),
    [
        ("CONTINUOUS", False, True, True),
        ("MANUAL_ONLY", False, False, True),
        ("SCHEDULED", False, False, True),
        ("MANUAL_ONLY", True, False, False),
    ],
    ids=["continuous", "manual", "scheduled", "of a replay"],
)
async def test_enough_changes_make_only_a_continuous_lane_due_and_a_replays_own_is_never_put_in_order(
    store: DistillerStore, trigger: str, is_replays: bool, is_due: bool, is_wanted: bool
) -> None:
    pipeline = await store.pipeline(trigger=trigger)
    await store.lanes.mark([store.mark(pipeline, "ana", 5)])
    await store.database.write("update lanes set due_at = now()")
    if is_replays:
        parent = await store.pipeline()
        await store.database.write(
            "update pipelines set parent_uid = $1 where pipeline_uid = $2", parent.pipeline_uid, pipeline.pipeline_uid
        )
    await hand_over(store, pipeline, await leased(store), 5)

    assert (
        await store.batches.settle(pipeline.memory_store_uid, await pending(store, pipeline, "ana"), "[]", changed=50)
        == is_due
    )

    assert await due_actors(store) == ({"ana"} if is_due else set())
    assert await store.database.fetchval("select consolidate from lanes") == is_wanted


async def test_one_lane_is_leased_once_however_many_ask(store: DistillerStore) -> None:
    pipeline = await store.pipeline()
    await store.lanes.mark([store.mark(pipeline, "ana", 1)])
    [(uid, actor, _, token)] = await store.leases.due(10, 10, ())

    leases = await asyncio.gather(*(store.leases.take(uid, {actor: token}, 30) for _ in range(8)))

    assert sum(map(len, leases)) == 1
    assert await due_actors(store) == set()


async def test_the_successor_of_a_silent_worker_fences_it(store: DistillerStore) -> None:
    pipeline = await store.pipeline()
    await store.lanes.mark([store.mark(pipeline, "ana", 1)])
    silent = await leased(store, lease_s=0)
    successor = await leased(store)

    assert not await hand_over(store, pipeline, silent, 1)
    assert not await store.leases.renew(silent, 30)
    assert await hand_over(store, pipeline, successor, 1)


async def test_an_event_during_a_distillation_is_not_forgotten(store: DistillerStore) -> None:
    pipeline = await store.pipeline()
    await store.lanes.mark([store.mark(pipeline, "ana", 1)])
    lease = await leased(store)

    await store.lanes.mark([store.mark(pipeline, "ana", 2)])
    await hand_over(store, pipeline, lease, 1)

    assert await due_actors(store) == set(), "an unanswered batch keeps the lane from being leased"
    await settle(store, pipeline, "ana")
    assert await due_actors(store) == {"ana"}
    [behind] = await store.leases.behind(await leased(store), 10)
    assert (behind.after, behind.wanted) == (1, 2)


async def test_a_lane_with_more_than_one_batch_of_lines_is_due_at_once(store: DistillerStore) -> None:
    pipeline = await store.pipeline()
    await store.lanes.mark([store.mark(pipeline, "ana", 100)])
    lease = await leased(store)

    await hand_over(store, pipeline, lease, 40, more=True)
    await settle(store, pipeline, "ana")

    assert await due_actors(store) == {"ana"}


async def test_workspaces_take_turns_however_many_lanes_one_has(store: DistillerStore) -> None:
    crowded = await store.pipeline(workspace_id=1)
    lone = await store.pipeline(workspace_id=2)
    await store.lanes.mark([store.mark(crowded, f"actor-{n:04}", 1) for n in range(500)])
    await store.lanes.mark([store.mark(lone, "bo", 1)])

    turn = await store.leases.due(2, 16, ())
    without_the_first = await store.leases.due(2, 16, {1})
    with_little_room = await store.leases.due(8, 2, ())

    assert sorted(workspace for _, _, workspace, _ in turn) == [1, 1, 2]
    assert [actor for _, actor, _, _ in without_the_first] == ["bo"]
    assert sorted(workspace for _, _, workspace, _ in with_little_room) == [1, 2]


async def test_a_failing_lane_comes_again_later_and_a_redrive_makes_it_due(store: DistillerStore) -> None:
    pipeline = await store.pipeline()
    await store.lanes.mark([store.mark(pipeline, "ana", 1)])
    await store.leases.put_off(await leased(store), 3600, reason="not JSON", attempts=6, parked=True)

    await store.lanes.mark([store.mark(pipeline, "ana", 2)])

    assert await due_actors(store) == set(), "new items do not wake a parked lane"
    [lane] = await store.lanes.page(pipeline.pipeline_uid, "parked", None, None, 10)
    assert (lane.actor_id, lane.reason, lane.attempts) == ("ana", "not JSON", 6)
    assert await store.lanes.redrive(pipeline.pipeline_uid) == 1
    assert await due_actors(store) == {"ana"}


async def test_a_lane_whose_budget_is_spent_comes_again_at_the_databases_midnight(store: DistillerStore) -> None:
    pipeline = await store.pipeline()
    await store.lanes.mark([store.mark(pipeline, "ana", 1)])

    await store.leases.put_off_to_the_next_day(await leased(store), "the budget is spent")

    [row] = await store.database.fetch(
        "select due_at > now() + interval '50 seconds' as is_later, due_at < now() + interval '25 hours' as is_soon,"
        " due_at < date_trunc('day', due_at, 'UTC') + interval '2 minutes' as is_about_midnight from lanes"
    )
    assert tuple(row) == (True, True, True)
    [lane] = await store.lanes.page(pipeline.pipeline_uid, None, None, None, 10)
    assert (lane.state, lane.reason, lane.attempts) == ("due", "the budget is spent", 0)


async def test_lanes_that_wait_for_a_provider_go_on_together(store: DistillerStore) -> None:
    pipelines = [await store.pipeline(), await store.pipeline(workspace_id=2)]
    for pipeline, actor, provider in zip([*pipelines, pipelines[0]], ("ana", "bo", "cy"), "eeo", strict=True):
        await store.lanes.mark([store.mark(pipeline, actor, 1)])
        await store.leases.put_off(await leased(store), 3600, reason="429", provider=provider)
    assert {lane.state for lane in await store.lanes.page(pipelines[0].pipeline_uid, None, None, None, 10)} == {
        "waiting_provider"
    }

    await store.lanes.wake_provider("e")

    assert await due_actors(store) == {"ana", "bo"}
    assert [await store.lanes.has_recovered(each, 60) for each in "eo"] == [True, False]
    assert not await store.lanes.has_recovered("e", 0), "it failed here since"


async def test_a_batch_is_told_and_covered_or_nothing_happens(store: DistillerStore) -> None:
    pipeline = await store.pipeline()
    await store.lanes.mark([store.mark(pipeline, "ana", 3)])
    silent = await leased(store, lease_s=0)
    successor = await leased(store)

    assert not await hand_over(store, pipeline, silent, 3)
    assert await store.database.fetchval("select count(*) from outbox") == 0
    assert await store.database.fetchval("select count(*) from batches") == 0
    assert await hand_over(store, pipeline, successor, 3)

    [told] = await store.database.fetch("select subject, payload from outbox")
    assert told["subject"] == MemoriesDistilled.subject
    positions = "select distilled_position, applied_position from lane_sessions"
    assert tuple((await store.database.fetch(positions))[0]) == (3, 0)
    await settle(store, pipeline, "ana")
    assert tuple((await store.database.fetch(positions))[0]) == (3, 3)
    assert await store.database.fetchval("select event from batches"), "kept, should memory be restored to before it"


async def ask_again(
    store: DistillerStore, of: Pipeline, *positions: int, limit: int | None = 3, after: UUID | None = None
) -> set[int]:
    """Has lines of ana's session asked again, once a batch is settled; returns those that will be."""
    session = session_of(store, of, "ana")
    async with store.unit_of_work.begin() as tx:
        if after is not None:
            assert await store.batches.settle_in(tx, of.memory_store_uid, after, "[]", changed=1)
        lines = [(session, position) for position in positions]
        return (await store.lanes.ask_again(tx, of.pipeline_uid, "ana", lines, limit)).get(session, set())


async def to_be_asked_again(store: DistillerStore) -> list[int]:
    found: list[int] = await store.database.fetchval("select again from lane_sessions")
    return found


async def test_a_line_in_conflict_is_asked_again_three_times_and_no_more(store: DistillerStore) -> None:
    pipeline = await store.pipeline()
    await store.lanes.mark([store.mark(pipeline, "ana", 3)])
    asked = []

    for _ in range(4):
        await hand_over(store, pipeline, await leased(store), 3, again_taken=await to_be_asked_again(store))
        asked.append(await ask_again(store, pipeline, 2, after=await pending(store, pipeline, "ana")))

    assert asked == [{2}, {2}, {2}, set()]
    assert await ask_again(store, pipeline, 2) == {2}, "whoever has it distilled anew has it so from the beginning"


async def test_each_line_in_conflict_is_counted_by_itself_and_anew_once_an_answer_left_it_alone(
    store: DistillerStore,
) -> None:
    pipeline = await store.pipeline()
    await store.lanes.mark([store.mark(pipeline, "ana", 9)])
    conflicts = [(1, 2, 3, 4, 5), (1, 2), (1,), (6, 7), (8,), (9,), (1,)]
    asked = []

    for positions in conflicts:
        await hand_over(store, pipeline, await leased(store), 9, again_taken=await to_be_asked_again(store))
        asked.append(await ask_again(store, pipeline, *positions, after=await pending(store, pipeline, "ana")))

    assert asked == [set(positions) for positions in conflicts]


async def test_lines_that_are_redriven_are_asked_again_however_often_they_were(store: DistillerStore) -> None:
    pipeline = await store.pipeline()
    await store.lanes.mark([store.mark(pipeline, "ana", 3)])
    await hand_over(store, pipeline, await leased(store), 3)
    await settle(store, pipeline, "ana")
    for _ in range(3):
        await ask_again(store, pipeline, 2)

    assert await ask_again(store, pipeline, 2, 3, limit=None) == {2, 3}

    assert [await ask_again(store, pipeline, 2, 3) for _ in range(2)] == [{2, 3}] * 2, "and counted anew"


async def test_nothing_is_asked_again_of_a_session_that_is_gone_or_of_an_actor_who_is_erased(
    store: DistillerStore,
) -> None:
    pipeline = await store.pipeline()
    await store.lanes.mark([store.mark(pipeline, "ana", 3)])
    async with store.unit_of_work.begin() as tx:
        await store.erasures.forget_session(tx, session_of(store, pipeline, "ana"))

    assert await ask_again(store, pipeline, 2) == set()

    async with store.unit_of_work.begin() as tx:
        await store.erasures.forget_said(tx, pipeline.session_store_uid, "ana")
    assert await ask_again(store, pipeline, 2) == set()


async def test_a_parked_lane_is_not_woken_to_ask_again(store: DistillerStore) -> None:
    pipeline = await store.pipeline()
    await store.lanes.mark([store.mark(pipeline, "ana", 3)])
    await store.leases.put_off(await leased(store), 3600, reason="not JSON", attempts=6, parked=True)

    assert await ask_again(store, pipeline, 2) == {2}

    assert await due_actors(store) == set()


async def test_what_is_to_be_asked_again_since_a_worker_read_its_lines_outlives_its_batch(
    store: DistillerStore,
) -> None:
    pipeline = await store.pipeline()
    await store.lanes.mark([store.mark(pipeline, "ana", 3)])
    await hand_over(store, pipeline, await leased(store), 3)
    await ask_again(store, pipeline, 1, after=await pending(store, pipeline, "ana"))
    lease = await leased(store)
    [read] = await store.leases.behind(lease, 20)
    await ask_again(store, pipeline, 2)  # as a repair does meanwhile

    assert await hand_over(store, pipeline, lease, 3, again_taken=read.again)
    await settle(store, pipeline, "ana")

    assert await to_be_asked_again(store) == [2]
    assert await due_actors(store) == {"ana"}


async def test_a_paid_answer_takes_no_more_lines_than_it_was_asked_about(store: DistillerStore) -> None:
    pipeline = await store.pipeline()
    await store.lanes.mark([store.mark(pipeline, "ana", 3)])
    await hand_over(store, pipeline, await leased(store), 3)
    await ask_again(store, pipeline, 1, after=await pending(store, pipeline, "ana"))
    session, batch_id = session_of(store, pipeline, "ana"), uuid7()
    asked = Question(
        lines=[],
        ranges=[Range(session_uid=session, session_id="s1", after=3, through=3)],
        complete=True,
        oldest_appended_at=None,
        related=[],
        source_epoch=0,
        memory_epoch=0,
        again_taken={session: [1]},
    )
    await store.answers.asked(await leased(store, lease_s=0), pipeline, batch_id, asked)
    async with store.unit_of_work.begin() as tx:
        await store.answers.answered(tx, batch_id, "{}", Spent("scripted", "answered"))
    await ask_again(store, pipeline, 2)

    successor = await leased(store)
    kept = await store.answers.kept(successor)
    assert kept is not None
    assert isinstance(kept.question, Question)
    await hand_over(store, pipeline, successor, 3, again_taken=kept.question.again_taken[session])

    assert await to_be_asked_again(store) == [2]


@pytest.mark.parametrize(
    ("state", "age", "is_wanted", "stays"),
    [
        ("asked", "23 hours", True, True),
        ("asked", "25 hours", True, False),
        ("answered", "6 days", False, True),
        ("answered", "8 days", False, False),
        ("answered", "80 days", True, True),
    ],
)
async def test_an_answer_that_was_paid_for_stays_while_its_lane_could_use_it_and_a_week_at_least(
    store: DistillerStore, state: str, age: str, is_wanted: bool, stays: bool
) -> None:
    pipeline = await store.pipeline()
    await store.lanes.mark([store.mark(pipeline, "ana", 3)])
    session = session_of(store, pipeline, "ana")
    asked = Question(
        lines=[],
        ranges=[Range(session_uid=session, session_id="s1", after=0 if is_wanted else 1, through=3)],
        complete=True,
        oldest_appended_at=None,
        related=[],
        source_epoch=0,
        memory_epoch=0,
        again_taken={},
    )
    batch_id = uuid7()
    await store.answers.asked(await leased(store), pipeline, batch_id, asked)
    async with store.unit_of_work.begin() as tx:
        if state == "answered":
            await store.answers.answered(tx, batch_id, "{}", Spent("scripted", "answered"))
        await tx.execute(f"update batches set created_at = now() - interval '{age}'")

        await batches.expired(tx)

    assert await store.database.fetchval("select count(*) from batches") == int(stays)


async def test_lines_that_were_too_many_become_more_again_little_by_little_with_every_full_batch(
    store: DistillerStore,
) -> None:
    pipeline = await store.pipeline()
    await store.lanes.mark([store.mark(pipeline, "ana", 1000)])
    await store.leases.put_off(await leased(store), 0, reason="truncated", max_lines=20)
    seen = []

    for more in (False, *[True] * 7):
        lease = await leased(store)
        seen.append(lease.max_lines)
        await hand_over(store, pipeline, lease, 3, more=more)
        await settle(store, pipeline, "ana")
        await store.database.write("update lanes set due_at = now()")

    assert seen == [20, 20, 22, 24, 27, 30, 33, 37]
    assert (await leased(store)).max_lines is None, "as many as the settings say"


async def test_a_sweep_that_died_or_failed_begins_again_where_it_began(store: DistillerStore) -> None:
    await store.pipeline()
    sweep = partial(store.pipelines.claim_sweep, 0.0, 600.0, 86_400.0)

    killed = await sweep()
    failed = await sweep()
    assert failed is not None
    await store.pipelines.put_off_sweep(failed, 0.0, 0.0)
    whole = await sweep()
    assert whole is not None
    await store.pipelines.end_sweep(whole)
    later = await sweep()

    assert killed is not None
    assert (killed.since, failed.since, whole.since) == (None, None, None), "the whole walk, until it was walked"
    assert later is not None
    assert later.since == whole.started - timedelta(seconds=600)


async def test_a_repeated_erasure_leaves_what_came_after_it_and_another_one_does_not_whatever_its_epoch(
    store: DistillerStore,
) -> None:
    pipeline = await store.pipeline()
    positions = count(1)

    def erasure(epoch: int) -> SessionActorErased:
        return SessionActorErased(
            workspace_id=1, store_uid=pipeline.session_store_uid, actor_id="ana", epoch=epoch, erasure_id=uuid7()
        )

    async def erase(event: SessionActorErased) -> tuple[int, int]:
        """How many lanes went, and the epoch since."""
        await store.lanes.mark([store.mark(pipeline, "ana", next(positions))])
        async with store.unit_of_work.begin() as tx:
            is_news, epoch = await store.erasures.begin(tx, event)
            return await store.erasures.forget_said(tx, event.store_uid, "ana") if is_news else 0, epoch

    first, second, after_a_restore = erasure(1), erasure(2), erasure(1)

    assert [await erase(event) for event in (first, first, second, first)] == [(1, 1), (0, 1), (1, 2), (0, 2)]
    assert [await erase(event) for event in (after_a_restore, after_a_restore, second)] == [(1, 3), (0, 3), (0, 3)]


async def test_an_erasure_of_which_only_the_epoch_was_noted_is_no_news_either(store: DistillerStore) -> None:
    store_uid = uuid7()
    await store.database.write(
        "insert into erased_actors (store_uid, actor_id, epoch) values ($1, 'ana', 2)", store_uid
    )

    async def is_news(epoch: int) -> bool:
        event = SessionActorErased(workspace_id=1, store_uid=store_uid, actor_id="ana", epoch=epoch, erasure_id=uuid7())
        async with store.unit_of_work.begin() as tx:
            return (await store.erasures.begin(tx, event))[0]

    assert [await is_news(epoch) for epoch in (1, 2, 3)] == [False, False, True]


async def test_an_erasure_that_comes_after_a_later_one_leaves_what_came_after_that(store: DistillerStore) -> None:
    store_uid = uuid7()
    first, second = (
        SessionActorErased(workspace_id=1, store_uid=store_uid, actor_id="ana", epoch=epoch, erasure_id=uuid7())
        for epoch in (1, 2)
    )
    restored = first.model_copy(update={"erasure_id": uuid7()})
    async with store.unit_of_work.begin() as tx:
        begun = [await store.erasures.begin(tx, event) for event in (second, first, first, restored)]

    assert begun == [(True, 2), (False, 2), (False, 2), (True, 3)], "a store that gives an epoch again was restored"


async def test_an_erasure_takes_the_lease_so_that_no_line_is_kept_after_it(store: DistillerStore) -> None:
    pipeline = await store.pipeline()
    await store.lanes.mark([store.mark(pipeline, "ana", 1)])
    lease = await leased(store)
    async with store.unit_of_work.begin() as tx:
        await store.erasures.forget_said(tx, pipeline.session_store_uid, "ana")
    question = Question(
        lines=[],
        ranges=[],
        complete=True,
        oldest_appended_at=None,
        related=[],
        source_epoch=0,
        memory_epoch=0,
    )

    with pytest.raises(Fenced):
        await store.answers.asked(lease, pipeline, uuid7(), question)

    assert await store.database.fetchval("select count(*) from batches") == 0


async def test_who_worked_on_a_lane_before_an_erasure_has_nothing_to_say_on_the_one_that_is_made_anew(
    store: DistillerStore,
) -> None:
    pipeline = await store.pipeline()
    await store.lanes.mark([store.mark(pipeline, "ana", 2)])
    before = await leased(store)
    async with store.unit_of_work.begin() as tx:
        await store.erasures.forget_said(tx, pipeline.session_store_uid, "ana")
    await store.lanes.mark([store.mark(pipeline, "ana", 3)])
    after = await leased(store)

    assert not await store.leases.renew(before, 30)
    assert not await hand_over(store, pipeline, before, 2)
    assert await hand_over(store, pipeline, after, 3)


@pytest.mark.parametrize("by", ["an erasure", "a loss"])
async def test_a_run_does_not_wait_for_a_batch_that_is_gone(store: DistillerStore, by: str) -> None:
    pipeline = await store.pipeline(trigger="MANUAL_ONLY")
    mark = store.mark(pipeline, "ana", 2)
    async with store.unit_of_work.begin() as tx:
        run = await store.runs.start(tx, pipeline.pipeline_uid)
        assert run is not None
        changed = ChangedSession(
            session_uid=mark.session_uid,
            session_id=mark.session_id,
            actor_id="ana",
            last_position=2,
            last_activity_time=mark.appended_at,
        )
        await store.runs.fix_goals(tx, run, pipeline, [changed], None)
    assert await hand_over(store, pipeline, await leased(store), 2)
    before = await store.runs.progress(run)

    if by == "an erasure":
        async with store.unit_of_work.begin() as tx:
            await store.erasures.forget_remembered(tx, pipeline.memory_store_uid, "ana")
    else:
        await store.database.write("delete from batches")
        await Unanswered(store.batches, store.unit_of_work, Metrics(CollectorRegistry()), after_s=60).send_again()

    assert (before, await store.runs.progress(run)) == ((1, 0), (0, 0))


async def test_a_lane_at_work_does_not_hide_when_the_next_one_is_due(store: DistillerStore) -> None:
    eager, patient = await store.pipeline(), await store.pipeline(quiet_period_s=60, max_wait_s=60)
    await store.lanes.mark([store.mark(eager, "ana", 1)])
    await leased(store)
    await store.lanes.mark([store.mark(patient, "bo", 1)])

    next_due_s = await store.leases.next_due_s()

    assert next_due_s is not None
    assert 50 < next_due_s <= 60


async def test_of_lanes_that_are_handed_over_at_once_only_the_lost_one_fails(store: DistillerStore) -> None:
    pipeline = await store.pipeline()
    actors = ["ana", "bo", "cy"]
    await store.lanes.mark([store.mark(pipeline, actor, 2) for actor in actors])
    tokens = {actor: token for _, actor, _, token in await store.leases.due(10, 10, ())}
    leases = {lease.actor_id: lease for lease in await store.leases.take(pipeline.pipeline_uid, tokens, 30)}
    await store.leases.put_off(leases["bo"], 0)

    handed = await asyncio.gather(*(hand_over(store, pipeline, leases[actor], 2) for actor in actors))
    await asyncio.gather(settle(store, pipeline, "ana"), settle(store, pipeline, "cy"))

    lanes = await store.lanes.page(pipeline.pipeline_uid, None, None, None, 10)
    assert handed == [True, False, True]
    assert [(lane.actor_id, lane.state, lane.behind) for lane in lanes] == [
        ("ana", "settled", 0),
        ("bo", "due", 2),
        ("cy", "settled", 0),
    ]


async def emitted(store: DistillerStore, of: Pipeline, actors: Sequence[str]) -> None:
    """A batch of each actor on its way."""
    await store.lanes.mark([store.mark(of, actor, 2) for actor in actors])
    tokens = {actor: token for _, actor, _, token in await store.leases.due(10, 10, ())}
    for lease in await store.leases.take(of.pipeline_uid, tokens, 30):
        await hand_over(store, of, lease, 2)


async def one_waits_for_a_lock(store: DistillerStore) -> bool:
    waiting = "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()"
    return bool(await store.database.fetchval(waiting))


async def test_an_answer_does_not_deadlock_with_an_erasure(
    store: DistillerStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    endless = batches.SETTLE.replace(f"'{ALONE_PATIENCE_MS}'", "'0'")
    assert endless != batches.SETTLE
    monkeypatch.setattr(batches, "SETTLE", endless)
    pipeline = await store.pipeline()
    await emitted(store, pipeline, ["ana"])

    async with store.unit_of_work.begin() as tx:
        await tx.execute("select from lanes where actor_id = 'ana' for no key update")
        answer = asyncio.ensure_future(settle(store, pipeline, "ana"))
        await until(lambda: one_waits_for_a_lock(store))
        erased = await store.erasures.forget_remembered(tx, pipeline.memory_store_uid, "ana")
    await answer

    assert erased == 1
    assert await store.database.fetchval("select count(*) from lanes where pending_batch is null") == 1


async def lost_lanes(store: DistillerStore) -> list[str]:
    """Whose lane waits for a batch that is no more."""
    rows = await store.database.fetch(
        "select actor_id from lanes where pending_batch is not null"
        " and pending_batch not in (select batch_id from batches)"
    )
    return [row["actor_id"] for row in rows]


async def test_a_batch_handed_over_during_an_erasure_leaves_no_lane_waiting_for_it(
    store: DistillerStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = await store.pipeline()
    await store.lanes.mark([store.mark(pipeline, "ana", 2)])
    lease = await leased(store)
    handed: list[asyncio.Future[bool]] = []

    async with store.unit_of_work.begin() as tx:
        execute = tx.execute

        async def is_handed_over_or_waits() -> bool:
            return handed[0].done() or await one_waits_for_a_lock(store)

        async def hand_over_after(sql: str, *args: object) -> int:
            touched = await execute(sql, *args)
            if not handed:
                handed.append(asyncio.ensure_future(hand_over(store, pipeline, lease, 2)))
                await until(is_handed_over_or_waits)
            return touched

        monkeypatch.setattr(tx, "execute", hand_over_after)
        await store.erasures.forget_remembered(tx, pipeline.memory_store_uid, "ana")
    await handed[0]

    assert await lost_lanes(store) == []


async def test_a_lane_whose_batch_is_gone_goes_on(store: DistillerStore) -> None:
    pipeline = await store.pipeline()
    await emitted(store, pipeline, ["ana", "bo"])
    await store.database.write("delete from batches where actor_id = 'ana'")
    await store.lanes.mark([store.mark(pipeline, actor, 3) for actor in ("ana", "bo")])
    lost = await lost_lanes(store)

    await Unanswered(store.batches, store.unit_of_work, Metrics(CollectorRegistry()), after_s=60).send_again()

    assert (lost, await lost_lanes(store)) == (["ana"], [])
    assert await due_actors(store) == {"ana"}, "the other one still waits for its answer"


async def test_what_memory_does_not_answer_is_sent_again_and_counted(store: DistillerStore) -> None:
    pipeline = await store.pipeline()
    await emitted(store, pipeline, ["ana", "bo"])
    await settle(store, pipeline, "bo")
    registry = CollectorRegistry()
    unanswered = Unanswered(store.batches, store.unit_of_work, Metrics(registry), after_s=60)

    async def sent_again() -> float | None:
        await unanswered.send_again()
        return registry.get_sample_value("memstream_batches_reemitted_total")

    assert await sent_again() == 0
    await store.database.write("update batches set emitted_at = emitted_at - interval '61 seconds'")
    assert await sent_again() == 1
    assert await sent_again() == 1, "60 seconds later, not at once"


async def test_the_lane_of_a_killed_worker_goes_on_within_30_seconds(store: DistillerStore) -> None:
    defaults = DistillerSettings(database_url="postgresql://unused")  # type: ignore[arg-type]
    pipeline = await store.pipeline()
    await store.lanes.mark([store.mark(pipeline, "ana", 1)])
    await leased(store, defaults.lease_s)
    at_once = await due_actors(store)

    looked_after_s = 30 - 2 * defaults.poll_interval_s
    await store.database.write("update lanes set lease_until = lease_until - make_interval(secs => $1)", looked_after_s)

    assert (at_once, await due_actors(store)) == (set(), {"ana"})
    assert max(consumer.ack_wait_s for consumer in CONSUMERS) <= 30, "what it had not acknowledged comes again"


async def test_a_lane_that_is_held_keeps_no_other_workspace_waiting(store: DistillerStore) -> None:
    held, other = await store.pipeline(), await store.pipeline(workspace_id=2)
    await store.lanes.mark([store.mark(held, "ana", 1)])

    def mark(of: Pipeline, actor: str, position: int) -> "asyncio.Future[float | None]":
        return asyncio.ensure_future(store.lanes.mark_one(store.mark(of, actor, position)))

    async with store.unit_of_work.begin() as tx:
        await tx.execute("select from lanes where actor_id = 'ana' for update")
        async with asyncio.timeout(10):
            waiting = [mark(held, "ana", position) for position in (2, 3)]
            await mark(other, "bo", 1)
            waiting.append(mark(held, "ana", 4))
            await until(lambda: one_waits_for_a_lock(store))
            await mark(other, "cy", 1)
            outcomes = await asyncio.gather(*waiting, return_exceptions=True)

    known = await store.database.fetch("select actor_id, known_position from lane_sessions order by actor_id")
    assert [type(outcome) for outcome in outcomes] == [Contended] * 3, "each comes again, and the next wave goes on"
    assert [tuple(row) for row in known] == [("ana", 1), ("bo", 1), ("cy", 1)]


async def test_nothing_that_a_message_asks_for_waits_long_for_a_lane_that_is_held(store: DistillerStore) -> None:
    pipeline = await store.pipeline()
    await emitted(store, pipeline, ["ana", "bo"])
    sent = {actor: await pending(store, pipeline, actor) for actor in ("ana", "bo")}
    store_uid = pipeline.memory_store_uid

    async def settle_in(batch_id: UUID) -> None:
        async with store.unit_of_work.begin() as tx:
            await store.batches.settle_in(tx, store_uid, batch_id, "[]", changed=1)

    async def erase() -> None:
        async with store.unit_of_work.begin(patience_ms=PATIENCE_MS) as tx:
            await store.erasures.forget_said(tx, pipeline.session_store_uid, "ana")

    async with store.unit_of_work.begin() as tx:
        await tx.execute("select from lanes where actor_id = 'ana' for update")
        async with asyncio.timeout(10):
            outcomes = await asyncio.gather(
                store.batches.settle(store_uid, sent["bo"], "[]", changed=1),
                store.batches.settle(store_uid, sent["ana"], "[]", changed=1),
                settle_in(sent["ana"]),
                store.lanes.hasten(pipeline.pipeline_uid, "ana", "s1"),
                erase(),
                return_exceptions=True,
            )

    assert [type(outcome) for outcome in outcomes] == [bool, *[Contended] * 4]
    assert await store.batches.settle(store_uid, sent["ana"], "[]", changed=1) is False
    assert await store.database.fetchval("select count(*) from batches where state = 'settled'") == 2


async def test_a_due_lane_that_is_held_keeps_no_other_from_being_leased(store: DistillerStore) -> None:
    pipeline = await store.pipeline()
    await store.lanes.mark([store.mark(pipeline, actor, 1) for actor in ("ana", "bo")])
    tokens = {actor: token for _, actor, _, token in await store.leases.due(10, 10, ())}

    async with store.unit_of_work.begin() as tx:
        await tx.execute("select from lanes where actor_id = 'ana' for update")
        async with asyncio.timeout(10):
            meanwhile = await store.leases.take(pipeline.pipeline_uid, tokens, 30)
    later = await store.leases.take(pipeline.pipeline_uid, tokens, 30)

    assert [[lease.actor_id for lease in leases] for leases in (meanwhile, later)] == [["bo"], ["ana"]]


async def test_a_look_for_due_lanes_that_are_all_held_takes_less_than_a_message_may(store: DistillerStore) -> None:
    pipeline = await store.pipeline()
    await store.lanes.mark([store.mark(pipeline, f"a{number}", 1) for number in range(8)])
    tokens = {actor: token for _, actor, _, token in await store.leases.due(10, 10, ())}

    async with store.unit_of_work.begin() as tx:
        await tx.execute("select from lanes for update")
        async with asyncio.timeout(PATIENCE_MS / 1000):
            assert await store.leases.take(pipeline.pipeline_uid, tokens, 30) == []


async def test_held_lanes_of_one_store_delay_no_mark_of_another(store: DistillerStore) -> None:
    held, other = await store.pipeline(), await store.pipeline(workspace_id=2)
    await store.lanes.mark([store.mark(held, f"a{number}", 1) for number in range(40)])
    ended: list[str] = []

    async def mark(of: Pipeline, actor: str) -> str:
        try:
            await store.lanes.mark_one(store.mark(of, actor, 2))
        finally:
            ended.append(actor)
        return actor

    async with store.unit_of_work.begin() as tx:
        await tx.execute("select from lanes for update")
        marks = [mark(held, f"a{number}") for number in range(40)] + [mark(other, f"b{number}") for number in range(10)]
        outcomes = await asyncio.gather(*marks, return_exceptions=True)

    assert [type(outcome) for outcome in outcomes] == [Contended] * 40 + [str] * 10
    assert {actor[0] for actor in ended[:10]} == {"b"}


async def test_no_mark_of_another_store_waits_with_those_of_a_store_whose_lanes_were_just_held(
    store: DistillerStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    held, other = await store.pipeline(), await store.pipeline(workspace_id=2)
    await store.lanes.mark([store.mark(held, "ana", 1)])

    async with store.unit_of_work.begin() as tx:
        await tx.execute("select from lanes for update")
        with pytest.raises(Contended):
            await store.lanes.mark_one(store.mark(held, "ana", 2))
        monkeypatch.setattr(lanes, "SEVERAL_MARKS_MS", 60_000)
        waiting = [asyncio.ensure_future(store.lanes.mark_one(store.mark(held, "ana", n))) for n in (3, 4)]
        async with asyncio.timeout(10):
            await store.lanes.mark_one(store.mark(other, "bo", 1))
        assert not any(each.done() for each in waiting)
    await asyncio.gather(*waiting)


async def test_of_two_readings_of_a_lane_at_once_each_has_its_own(store: DistillerStore) -> None:
    pipeline = await store.pipeline()
    await store.lanes.mark([store.mark(pipeline, "ana", 1, session) for session in ("s1", "s2", "s3")])
    lease = await leased(store)

    few, many = await asyncio.gather(store.leases.behind(lease, 1), store.leases.behind(lease, 10))

    assert (len(few), len(many)) == (1, 3)


async def test_a_session_is_not_set_back_while_a_replay_meets_its_watermark(store: DistillerStore) -> None:
    pipeline = await store.pipeline()
    await emitted(store, pipeline, ["ana"])
    await settle(store, pipeline, "ana")
    begun = Range(
        session_uid=store.sessions[pipeline.session_store_uid, "ana", "s1"], session_id="s1", after=0, through=0
    )

    async def rewind() -> bool:
        event = batch_of(pipeline, uuid7(), "ana", source_epoch=0, memory_epoch=0, ranges=[begun], rewound=True)
        return await store.batches.rewind(event, OutboxRow.of(event), begun, 2, 1)

    await store.database.write("update lanes set held_by = $1", uuid7())
    assert not await rewind()
    await store.database.write("update lanes set held_by = null")
    assert await rewind()
    assert not await rewind(), "the watermark is another"


async def test_only_the_store_that_a_batch_went_to_can_answer_it(store: DistillerStore) -> None:
    pipeline = await store.pipeline()
    await emitted(store, pipeline, ["ana"])
    batch = await pending(store, pipeline, "ana")

    await store.batches.settle(uuid7(), batch, "[]", changed=1)
    async with store.unit_of_work.begin() as tx:
        assert await store.batches.settle_in(tx, uuid7(), batch, "[]", changed=1) is None

    assert await pending(store, pipeline, "ana") == batch
    assert await store.database.fetchval("select state from batches") == "emitted"


async def test_concurrent_marks_and_commits_neither_deadlock_nor_lose_a_position(store: DistillerStore) -> None:
    pipeline = await store.pipeline()
    actors = [f"actor-{n}" for n in range(6)]
    for actor in actors:
        store.mark(pipeline, actor, 1)

    async def mark() -> None:
        for position in range(1, 40):
            await store.lanes.mark([store.mark(pipeline, actor, position) for actor in actors])

    async def distil_one(replica: DistillerStore, lease: Lease) -> None:
        if behind := await replica.leases.behind(lease, 10):
            await hand_over(replica, pipeline, lease, behind[0].wanted)
            await settle(replica, pipeline, lease.actor_id)
        else:
            await replica.leases.release(lease)

    async def distil() -> None:
        replica = replace(store, leases=Leases(store.database), batches=Batches(store.database, 50, 40))
        for _ in range(120):
            tokens = {actor: token for _, actor, _, token in await replica.leases.due(4, 4, ())}
            leases = await replica.leases.take(pipeline.pipeline_uid, tokens, 30)
            await asyncio.gather(*(distil_one(replica, lease) for lease in leases))

    await asyncio.gather(mark(), mark(), distil(), distil())
    await distil()

    lanes = await store.lanes.page(pipeline.pipeline_uid, None, None, None, 100)
    assert {(lane.state, lane.behind) for lane in lanes} == {("settled", 0)}
    assert len(lanes) == len(actors)
