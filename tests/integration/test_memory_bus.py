"""The memory service on the real bus."""

import asyncio
from collections.abc import AsyncIterator, Awaitable
from uuid import UUID

import pytest
from nats.aio.msg import Msg

from libs.chassis.bus import REQUEST_WORKERS, Bus
from libs.chassis.errors import Retry
from libs.chassis.metrics import Metrics
from libs.chassis.outbox import OutboxRow
from libs.chassis.parked import ParkedMessages
from libs.contracts.events import BatchesApplied, Evidence, MemoriesDistilled
from libs.contracts.ids import uuid7
from libs.contracts.limits import REPLY_BYTES
from libs.contracts.requests import (
    ApplyBatch,
    AuthorizeMemoryStore,
    BatchApplied,
    ChangedSessions,
    Line,
    ReadTranscript,
    Related,
    RelatedEntries,
    SessionsChanged,
    StoreAuthorization,
    Transcript,
)
from tests.support.memory import Distiller, Memory, memory_service, moment, said
from tests.support.servers import NatsServer, PostgresServer
from tests.support.service import USER, WORKSPACE, Keys, chassis_of, until


@pytest.fixture
async def memory(postgres: PostgresServer, nats: NatsServer, keys: Keys) -> AsyncIterator[Memory]:
    async with memory_service(postgres, keys, nats.url) as memory:
        yield memory


async def test_a_batch_from_the_bus_is_applied_and_answered(memory: Memory) -> None:
    distiller = await Distiller.of(memory)
    bus = chassis_of(memory.app).bus
    batch = distiller.batch([said("/job.md", "Works at Northwind")])
    assert bus._client is not None
    answers = await bus._client.subscribe(BatchesApplied.subject)

    await bus.publish(OutboxRow.of(batch))
    await bus.publish(OutboxRow(uuid7(), batch.subject, batch.model_dump_json()))
    first = BatchesApplied.model_validate_json((await answers.next_msg(timeout=10)).data)
    second = BatchesApplied.model_validate_json((await answers.next_msg(timeout=10)).data)

    assert first.outcomes == second.outcomes
    assert [outcome.outcome for outcome in first.outcomes] == ["applied"]
    assert await memory.paths("ana", "Northwind") == ["/job.md"]


async def test_other_services_get_their_questions_answered(memory: Memory) -> None:
    bus = chassis_of(memory.app).bus
    store_uid = await memory.store_uid()
    await memory.add("ana", "/cat.md", "has a cat")

    related = await bus.ask(RelatedEntries(store_uid=store_uid, actor_id="ana", texts=["cat"]), Related)
    own = await bus.ask(
        AuthorizeMemoryStore(
            workspace_id=WORKSPACE, principal_type="USER", principal=USER, permission="WRITE", store_id="notes"
        ),
        StoreAuthorization,
    )
    foreign = await bus.ask(
        AuthorizeMemoryStore(
            workspace_id=WORKSPACE, principal_type="USER", principal="x", permission="READ", store_uid=store_uid
        ),
        StoreAuthorization,
    )
    nowhere = await bus.ask(
        AuthorizeMemoryStore(
            workspace_id=2, principal_type="USER", principal=USER, permission="READ", store_id="notes"
        ),
        StoreAuthorization,
    )

    assert [entry.path for entry in related.entries] == ["/cat.md"]
    assert own == StoreAuthorization(allowed=True, store_uid=store_uid, store_id="notes")
    assert foreign == StoreAuthorization(allowed=False, store_uid=store_uid, store_id="notes")
    assert nowhere == StoreAuthorization()


async def test_a_batch_can_be_applied_by_asking_and_a_repeat_gets_the_same_answer(memory: Memory) -> None:
    distiller = await Distiller.of(memory)
    bus = chassis_of(memory.app).bus
    request = ApplyBatch(batch=distiller.batch([said("/job.md", "Works at Northwind")]))

    first = await bus.ask(request, BatchApplied, timeout_s=10)
    second = await bus.ask(request, BatchApplied, timeout_s=10)

    assert [outcome.outcome for outcome in first.outcomes] == ["applied"]
    assert second == first


async def test_questions_that_are_asked_at_once_travel_together_and_each_has_its_own_answer(
    memory: Memory, nats: NatsServer
) -> None:
    known, hopeless, large = uuid7(), uuid7(), uuid7()
    travelled: list[bytes] = []
    answered: list[int] = []

    async def transcript(request: ReadTranscript) -> Transcript:
        answered.append(request.after)
        if request.session_uid == hopeless:
            raise RuntimeError
        text = "x" * (REPLY_BYTES - 1000) if request.session_uid == large else "x"
        line = Line(position=request.after + 1, role="user", text=text, said_at=then, appended_at=then)
        return Transcript(lines=[line])

    async def hear(message: Msg) -> None:
        travelled.append(message.data)

    def ask(uid: UUID, after: int) -> Awaitable[Transcript]:
        return chassis_of(memory.app).bus.ask(ReadTranscript(store_uid=store, session_uid=uid, after=after), Transcript)

    store, then = uuid7(), moment("2026-01-01")
    bus = Bus("session", nats.url, ParkedMessages(chassis_of(memory.app).database), Metrics())
    bus.answer(ReadTranscript, transcript)
    running = asyncio.ensure_future(bus.run())
    await until(lambda: bus.connected)
    assert bus._client is not None
    await bus._client.subscribe(ReadTranscript.subject, cb=hear)
    await bus._client.flush()

    small = await asyncio.gather(*(ask(known, after) for after in range(5)))
    at_once = len(travelled)
    mixed = await asyncio.gather(ask(known, 1), ask(hopeless, 2), ask(known, 3), return_exceptions=True)
    travelled.clear()
    answered.clear()
    heavy = await asyncio.gather(*(ask(large, after) for after in range(10)))

    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert [answer.lines[0].position for answer in small] == [1, 2, 3, 4, 5]
    assert at_once == 1
    assert [type(answer) for answer in mixed] == [Transcript, Retry, Transcript]
    assert [answer.lines[0].position for answer in heavy] == list(range(1, 11))
    assert (len(travelled), len(answered)) == (10, 19), "all together, then each but the first alone"


async def test_long_questions_do_not_pass_together_what_the_broker_carries(memory: Memory) -> None:
    bus = chassis_of(memory.app).bus
    texts = ["x" * (REPLY_BYTES // 2)]
    request = RelatedEntries(store_uid=await memory.store_uid(), actor_id="ana", texts=texts)

    answers = await asyncio.gather(*(bus.ask(request, Related, timeout_s=10) for _ in range(5)))

    assert answers == [Related(entries=[])] * 5


async def test_one_stores_questions_wait_for_no_others(memory: Memory, nats: NatsServer) -> None:
    slow, gate = uuid7(), asyncio.Event()

    async def changed(request: SessionsChanged) -> ChangedSessions:
        if request.store_uid == slow:
            await gate.wait()
        return ChangedSessions()

    asker = chassis_of(memory.app).bus
    bus = Bus("session", nats.url, ParkedMessages(chassis_of(memory.app).database), Metrics())
    bus.answer(SessionsChanged, changed)
    running = asyncio.ensure_future(bus.run())
    await until(lambda: bus.connected)

    waiting, other = [
        asyncio.ensure_future(asker.ask(SessionsChanged(store_uid=uid), ChangedSessions, timeout_s=10))
        for uid in (slow, uuid7())
    ]
    await other
    was_done = waiting.done()
    gate.set()
    await waiting

    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert not was_done


async def test_of_questions_that_came_together_no_more_are_answered_at_once_than_of_single_ones(
    memory: Memory, nats: NatsServer
) -> None:
    at_work, most = 0, 0

    async def changed(request: SessionsChanged) -> ChangedSessions:
        nonlocal at_work, most
        at_work += 1
        most = max(most, at_work)
        await asyncio.sleep(0.01)
        at_work -= 1
        return ChangedSessions()

    asker = chassis_of(memory.app).bus
    bus = Bus("session", nats.url, ParkedMessages(chassis_of(memory.app).database), Metrics())
    bus.answer(SessionsChanged, changed)
    running = asyncio.ensure_future(bus.run())
    await until(lambda: bus.connected)

    request = SessionsChanged(store_uid=uuid7())
    await asyncio.gather(*(asker.ask(request, ChangedSessions, timeout_s=20) for _ in range(64)))

    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert most == REQUEST_WORKERS


async def test_where_nobody_answers_whoever_asks_hears_of_it_within_the_time_that_he_gave_and_is_not_asked_again(
    memory: Memory,
) -> None:
    bus = chassis_of(memory.app).bus
    travelled: list[bytes] = []

    async def hear(message: Msg) -> None:
        travelled.append(message.data)

    assert bus._client is not None
    await bus._client.subscribe(SessionsChanged.subject, cb=hear)
    await bus._client.flush()
    request = SessionsChanged(store_uid=uuid7(), since=moment("2026-01-01"))

    few = await asyncio.gather(
        *(bus.ask(request, ChangedSessions, timeout_s=0.5) for _ in range(3)), return_exceptions=True
    )
    for_few = len(travelled)
    async with asyncio.timeout(8):
        many = await asyncio.gather(
            *(bus.ask(request, ChangedSessions, timeout_s=2) for _ in range(500)), return_exceptions=True
        )

    assert [type(answer) for answer in [*few, *many]] == [Retry] * 503
    assert for_few == 1


async def test_evidence_says_whether_its_lines_can_still_be_read(memory: Memory, nats: NatsServer) -> None:
    there, gone, then = uuid7(), uuid7(), moment("2026-01-01")

    async def transcript(request: ReadTranscript) -> Transcript:
        line = Line(position=request.after + 1, role="user", text="x", said_at=then, appended_at=then)
        return Transcript(lines=[line]) if request.session_uid == there else Transcript(gone=True)

    distiller = await Distiller.of(memory)
    evidence = [Evidence(session_uid=uid, positions=[3]) for uid in (there, gone)]
    batch = distiller.batch([said("/a.md", "x", evidence=evidence)])
    [outcome] = (await chassis_of(memory.app).bus.ask(ApplyBatch(batch=batch), BatchApplied, timeout_s=10)).outcomes
    url = memory.url(f"/entries/{outcome.entry_id}")
    unknown = await memory.ok("GET", url)
    bus = Bus("session", nats.url, ParkedMessages(chassis_of(memory.app).database), Metrics())
    bus.answer(ReadTranscript, transcript)
    running = asyncio.ensure_future(bus.run())
    await until(lambda: bus.connected)

    known = await memory.ok("GET", url)

    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert all("available" not in proof for proof in unknown["evidence"])
    assert sorted(proof["available"] for proof in known["evidence"]) == [False, True]


async def test_what_cannot_be_parsed_is_parked_and_what_can_is_answered(memory: Memory) -> None:
    bus = chassis_of(memory.app).bus
    distiller = await Distiller.of(memory)
    broken = f'{{"batch_id": 5, "only": "{uuid7()}"}}'  # the broker may hold what earlier tests left

    await bus.publish(OutboxRow(uuid7(), MemoriesDistilled.subject, broken))
    await bus.publish(OutboxRow.of(distiller.batch([said("no-slash", "x")], session_id="good")))

    await until(lambda: chassis_of(memory.app).database.fetchval("select count(*) from progress"))
    parked = "select count(*) from parked_messages where payload = $1"
    await until(lambda: chassis_of(memory.app).database.fetchval(parked, broken.encode()))
    assert await chassis_of(memory.app).database.fetchval(parked, broken.encode()) == 1
