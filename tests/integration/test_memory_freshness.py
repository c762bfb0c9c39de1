"""Waiting until what was said is searchable."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from libs.chassis.bus import Bus
from libs.chassis.metrics import Metrics
from libs.chassis.parked import ParkedMessages
from libs.contracts.ids import uuid7
from libs.contracts.requests import FindSession, FoundSession, HastenLane, LaneHastened
from services.memory import freshness
from services.memory.app import build
from tests.support.memory import Distiller, Memory, memory_service, said, settings
from tests.support.servers import NatsServer, PostgresServer
from tests.support.service import Keys, chassis_of, running, until
from tests.support.system import System


@pytest.fixture
async def memory(postgres: PostgresServer, nats: NatsServer, keys: Keys) -> AsyncIterator[Memory]:
    async with memory_service(postgres, keys, nats.url) as memory:
        yield memory


class Lanes:
    """Answers as the distiller would."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        self.asked: list[HastenLane] = []

    async def hasten(self, request: HastenLane) -> LaneHastened:
        self.asked.append(request)
        return LaneHastened.model_validate({"reason": self.reason})


class Sessions:
    """Hears every question and answers none."""

    def __init__(self) -> None:
        self.asked: list[FindSession] = []

    async def find(self, request: FindSession) -> FoundSession:
        self.asked.append(request)
        await asyncio.Event().wait()
        return FoundSession()


@asynccontextmanager
async def answering(
    service: str, memory: Memory, nats: NatsServer, question: type[Any], answer: Callable[[Any], Awaitable[Any]]
) -> AsyncIterator[None]:
    bus = Bus(service, nats.url, ParkedMessages(chassis_of(memory.app).database), Metrics())
    bus.answer(question, answer)
    running_bus = asyncio.ensure_future(bus.run())
    await until(lambda: bus.connected)
    yield
    running_bus.cancel()
    await asyncio.gather(running_bus, return_exceptions=True)


@pytest.fixture
async def lanes(memory: Memory, nats: NatsServer) -> AsyncIterator[Lanes]:
    lanes = Lanes("due")
    async with answering("distiller", memory, nats, HastenLane, lanes.hasten):
        yield lanes


@pytest.fixture
async def silent_sessions(memory: Memory, nats: NatsServer) -> AsyncIterator[Sessions]:
    sessions = Sessions()
    async with answering("session", memory, nats, FindSession, sessions.find):
        yield sessions


def waiting(position: int, **more: Any) -> dict[str, Any]:
    wait_for = {"session_store": "session-stores/chats", "session_id": "s1", "position": position}
    return {"actor_id": "ana", "query": "Northwind", "wait_for": wait_for, **more}


async def test_what_is_applied_already_is_answered_at_once(memory: Memory, lanes: Lanes) -> None:
    distiller = await Distiller.of(memory)
    await distiller.memory.handlers.on_memories_distilled(
        distiller.batch([said("/job.md", "Works at Northwind")], through=4)
    )

    answer = await memory.ok("POST", memory.url("/entries:search"), json=waiting(4))

    assert (answer["settled"], answer["behind"]) == (True, 0)
    assert "reason" not in answer
    assert lanes.asked == []


async def test_a_waiter_is_woken_when_the_position_is_applied(
    memory: Memory, lanes: Lanes, nats: NatsServer, keys: Keys
) -> None:
    distiller = await Distiller.of(memory)
    other_replica = build(settings(memory.dsn, keys, nats.url))
    async with running(other_replica, keys, bus=True) as client:
        searching = asyncio.ensure_future(
            client.post(memory.url("/entries:search"), json=waiting(4, max_wait_ms=20_000))
        )
        await until(lambda: lanes.asked)
        batch = distiller.batch([said("/job.md", "Works at Northwind")], through=4)
        await memory.handlers.on_memories_distilled(batch)

        answer = (await searching).json()

    assert (answer["settled"], answer["behind"]) == (True, 0)
    assert [hit["managed_memory_entry"]["path"] for hit in answer["results"]] == ["/job.md"]
    [asked] = lanes.asked
    assert (asked.session_store_id, asked.session_id, asked.actor_id) == ("chats", "s1", "ana")


@pytest.mark.parametrize("reason", ["manual", "parked", "none"])
async def test_waiting_that_is_useless_ends_at_once(memory: Memory, lanes: Lanes, reason: str) -> None:
    lanes.reason = reason
    started = time.monotonic()

    answer = await memory.ok("POST", memory.url("/entries:search"), json=waiting(4, max_wait_ms=20_000))

    assert time.monotonic() - started < 10
    assert (answer["settled"], answer["behind"], answer["reason"]) == (False, 4, reason)


async def test_the_time_to_wait_is_kept_and_the_answer_says_how_far_behind(memory: Memory, lanes: Lanes) -> None:
    distiller = await Distiller.of(memory)
    await memory.handlers.on_memories_distilled(distiller.batch([], session_uid=uuid7(), through=3))

    answer = await memory.ok("POST", memory.url("/entries:search"), json=waiting(5, max_wait_ms=300))

    assert (answer["settled"], answer["behind"], answer["reason"]) == (False, 2, "due")
    assert len(lanes.asked) == 1


async def test_the_session_service_is_asked_only_what_it_decides_and_not_waited_for_beyond_the_time(
    memory: Memory, lanes: Lanes, silent_sessions: Sessions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(freshness, "FIND_TIMEOUT_S", 20.0)
    distiller = await Distiller.of(memory)
    await memory.handlers.on_memories_distilled(distiller.batch([], session_uid=uuid7(), through=3))
    url = memory.url("/entries:search")

    assert (await memory.ok("POST", url, json=waiting(4, max_wait_ms=0)))["behind"] == 1
    assert silent_sessions.asked == []

    started = time.monotonic()
    assert (await memory.ok("POST", url, json=waiting(3, max_wait_ms=0)))["settled"]
    assert time.monotonic() - started < 10
    assert [asked.session_id for asked in silent_sessions.asked] == ["s1"]


@pytest.mark.parametrize("deleted", ["/sessions/s1", ""], ids=["session", "store"])
async def test_what_was_distilled_of_another_session_that_had_the_name_does_not_count(
    memstream: System, deleted: str
) -> None:
    pipeline = await memstream.pipeline(quiet_period_s=3, max_wait_s=3)
    await memstream.say("ana", "s1", "I work at Northwind.", "Hello?", "Hello?")
    await memstream.settled(pipeline)

    async def search(**more: Any) -> Any:
        return await memstream.call("POST", "/memory-stores/facts/entries:search", json=waiting(**more))

    await memstream.call("DELETE", f"/session-stores/chats{deleted}")
    if deleted:
        assert (await search(position=3, max_wait_ms=0))["settled"], "nobody else has the name"
    else:
        await memstream.call("POST", "/session-stores?session_store_id=chats", json={})
        between = {"session_store": "session-stores/chats", "memory_store": "memory-stores/facts"}
        policy = {"trigger": "CONTINUOUS", "quiet_period_s": 3, "max_wait_s": 3}
        await memstream.call("POST", "/memory-pipelines", json={**between, "dreamer_policy": policy})
    await memstream.say("ana", "s1", "I am allergic to peanuts.")

    answer = await search(position=1, query="peanuts", max_wait_ms=20_000)

    assert answer["settled"]
    assert [hit["managed_memory_entry"]["content"] for hit in answer["results"]] == ["I am allergic to peanuts."]


async def test_a_list_waits_too(memory: Memory, lanes: Lanes) -> None:
    distiller = await Distiller.of(memory)
    batch = distiller.batch([said("/job.md", "Works at Northwind")], through=4)
    await memory.handlers.on_memories_distilled(batch)
    params = {
        "actor_id": "ana",
        "wait_for_session_store": "chats",
        "wait_for_session_id": "s1",
        "wait_for_position": "4",
    }

    page = await memory.ok("GET", memory.url("/entries"), params=params)

    assert page["settled"]
    assert len(page["managed_memory_entries"]) == 1
    del params["wait_for_position"]
    assert await memory.code("GET", memory.url("/entries"), params=params) == (400, "INVALID_PARAMETER_VALUE")


async def test_a_wait_outside_the_rules_or_without_a_grant_is_refused(memory: Memory, lanes: Lanes) -> None:
    url = memory.url("/entries:search")
    for more in ({"max_wait_ms": 30_001}, {"max_wait_ms": -1}, {"wait_for": {"session_store": "x"}}):
        assert await memory.code("POST", url, json=waiting(1, **more)) == (400, "INVALID_PARAMETER_VALUE")
    stranger = memory.keys.header("stranger@example.com")

    assert await memory.code("POST", url, json=waiting(1), headers=stranger) == (403, "PERMISSION_DENIED")
    assert lanes.asked == []
