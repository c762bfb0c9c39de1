"""A session database that was restored gives positions again: what was distilled or asked of the old lines is void."""

from collections.abc import AsyncIterator
from typing import Any, cast

import pytest

from libs.chassis.metrics import Metrics
from libs.chassis.outbox import OutboxRow, Relay
from libs.contracts.events import MemoriesDistilled, Range
from libs.contracts.ids import uuid7
from libs.contracts.requests import ChangedSession, ReadTranscript, Related, Transcript
from services.distiller.domain import Lease, Pipeline, Question, batch_of
from services.distiller.leftovers import Leftovers
from services.distiller.restored import Restored
from services.distiller.store import ReplayActors
from services.distiller.store.usage import Spent
from tests.support.distiller import DistillerStore, NoBroker, distiller_store
from tests.support.servers import PostgresServer


@pytest.fixture
async def store(postgres: PostgresServer) -> AsyncIterator[DistillerStore]:
    async with distiller_store(postgres) as opened:
        yield opened


async def restored_to(store: DistillerStore, pipeline: Pipeline, last: int) -> int:
    """Ana's session holds so many items: how many sessions are distilled anew."""

    async def ask(question: Any, *_: Any) -> Any:
        return Transcript(last_position=last) if isinstance(question, ReadTranscript) else Related()

    relay = Relay("distiller", store.database, cast(Any, NoBroker()), Metrics())
    restored = Restored(
        store.lanes,
        store.batches,
        ReplayActors(store.database),
        cast(Leftovers, None),
        store.unit_of_work,
        relay,
        ask,
    )
    mark = store.mark(pipeline, "ana", last)
    session = ChangedSession(
        session_uid=mark.session_uid,
        session_id=mark.session_id,
        actor_id="ana",
        last_position=last,
        last_activity_time=mark.appended_at,
    )
    return await restored.rewind(pipeline, [session])


async def leased(store: DistillerStore) -> Lease:
    [(pipeline_uid, actor_id, _, token)] = await store.leases.due(10, 10, ())
    [lease] = await store.leases.take(pipeline_uid, {actor_id: token}, 30)
    return lease


def batch(store: DistillerStore, of: Pipeline, after: int, through: int) -> MemoriesDistilled:
    read = Range(session_uid=store.mark(of, "ana", through).session_uid, session_id="s1", after=after, through=through)
    return batch_of(of, uuid7(), "ana", source_epoch=0, memory_epoch=0, ranges=[read])


async def handed_over(store: DistillerStore, lease: Lease, event: MemoriesDistilled) -> bool:
    return await store.batches.emit(lease, event, OutboxRow.of(event), more=False, again_taken={})


async def settled(store: DistillerStore, pipeline: Pipeline) -> None:
    pending = await store.database.fetchval("select pending_batch from lanes where actor_id = 'ana'")
    await store.batches.settle(pipeline.memory_store_uid, pending, "[]", changed=0)


async def answered(store: DistillerStore, lease: Lease, asked: MemoriesDistilled) -> None:
    """The model has answered, and the worker has not gone on."""
    question = Question(
        lines=[],
        ranges=asked.ranges,
        complete=True,
        oldest_appended_at=None,
        related=[],
        source_epoch=0,
        memory_epoch=0,
    )
    await store.answers.asked(lease, lease.pipeline, asked.batch_id, question)
    async with store.unit_of_work.begin() as tx:
        assert await store.answers.answered(tx, asked.batch_id, "{}", Spent("scripted", "answered"))


@pytest.mark.parametrize("distilled", [0, 2], ids=["nothing was distilled", "some was distilled"])
async def test_an_answer_about_lines_that_are_lost_is_not_used_for_those_that_take_their_positions(
    store: DistillerStore, distilled: int
) -> None:
    pipeline = await store.pipeline()
    if distilled:
        await store.lanes.mark([store.mark(pipeline, "ana", distilled)])
        assert await handed_over(store, await leased(store), batch(store, pipeline, 0, distilled))
        await settled(store, pipeline)
    await store.lanes.mark([store.mark(pipeline, "ana", 4)])
    worker, asked = await leased(store), batch(store, pipeline, distilled, 4)
    await answered(store, worker, asked)

    assert await restored_to(store, pipeline, 0) == (distilled > 0)
    if distilled:
        await settled(store, pipeline)
    assert not await handed_over(store, worker, asked), "the lane was taken from whoever is at work"
    await store.lanes.mark([store.mark(pipeline, "ana", 4)])
    successor = await leased(store)

    assert await store.answers.kept(successor) is None
    assert [(each.after, each.wanted) for each in await store.leases.behind(successor, 10)] == [(0, 4)]
    if distilled:  # also when the watermark is again where it was asked
        assert await handed_over(store, successor, batch(store, pipeline, 0, distilled))
        await settled(store, pipeline)
        await store.lanes.mark([store.mark(pipeline, "ana", 5)])
        assert await store.answers.kept(await leased(store)) is None


@pytest.mark.parametrize("position", [1, 2], ids=["less", "all"])
async def test_an_answer_stays_while_its_session_holds_what_is_known_of_it(
    store: DistillerStore, position: int
) -> None:
    pipeline = await store.pipeline()
    await store.lanes.mark([store.mark(pipeline, "ana", position)])
    worker = await leased(store)
    await answered(store, worker, batch(store, pipeline, 0, position))

    assert await restored_to(store, pipeline, 2) == 0

    assert await store.answers.kept(worker)
