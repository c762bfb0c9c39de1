"""What the session service tells the others, over a real broker."""

import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import nats as nats_client
import pytest

from libs.chassis.bus import Bus
from libs.contracts.ids import uuid7
from libs.contracts.limits import REPLY_BYTES
from libs.contracts.requests import (
    AuthorizeSessionStore,
    ChangedSessions,
    ReadTranscript,
    SessionsChanged,
    StoreAuthorization,
    Transcript,
)
from tests.support.servers import NatsServer, PostgresServer
from tests.support.service import chassis_of, until
from tests.support.session import SessionService, message, session_service


@pytest.fixture(scope="module")
async def service(postgres: PostgresServer, nats: NatsServer) -> AsyncIterator[SessionService]:
    async with session_service(postgres, nats) as running:
        yield running


@pytest.fixture
async def store(service: SessionService) -> str:
    return await service.store(f"chats-{uuid4().hex[:8]}")


@pytest.fixture
def bus(service: SessionService) -> Bus:
    return chassis_of(service.app).bus


async def uids(service: SessionService, session: str) -> tuple[UUID, UUID]:
    _, store_id, _, session_id = session.split("/")
    row = await service.database.fetchrow(
        "select t.store_uid, t.session_uid from sessions t join session_stores s using (store_uid)"
        " where s.store_id = $1 and t.session_id = $2",
        store_id,
        session_id,
    )
    assert row is not None
    return row["store_uid"], row["session_uid"]


async def read(service: SessionService, session: str, after: int = 0, **limits: int) -> Transcript:
    store_uid, session_uid = await uids(service, session)
    request = ReadTranscript(store_uid=store_uid, session_uid=session_uid, after=after, **limits)
    return await chassis_of(service.app).bus.ask(request, Transcript)


async def test_an_append_is_told_on_the_stream(service: SessionService, nats: NatsServer, store: str) -> None:
    session = await service.session(store)
    client = await nats_client.connect(nats.url)
    try:
        subscription = await client.jetstream().subscribe("session.items.appended.v1", ordered_consumer=True)

        await service.append(session, message("hello"))

        while True:
            event = json.loads((await subscription.next_msg(timeout=10)).data)
            if event["store_uid"] == str((await uids(service, session))[0]):
                break
    finally:
        await client.close()
    assert (event["session_id"], event["actor_id"], event["last_position"]) == ("s1", "ana", 1)
    await until(lambda: _is_empty(service))


async def _is_empty(service: SessionService) -> bool:
    return not await service.database.fetchval("select count(*) from outbox")


async def test_a_transcript_has_the_readable_lines_only(service: SessionService, store: str) -> None:
    session = await service.session(store)
    said = "2026-05-01T09:30:00+02:00"
    parts = [{"type": "input_text", "text": "one"}, {"type": "input_image"}, {"type": "input_text", "text": "two"}]
    items: list[dict[str, Any]] = [
        {"data": message("hello"), "occurred_at": said},
        {"data": {"type": "function_call", "name": "f"}},
        {"data": message("\x00hi", "assistant")},
        {"data": message("you are helpful", "system")},
        {"data": {"type": "message", "role": "user", "content": parts}},
        {"data": message("half \ud800")},
        {"data": [1]},
        {"data": message("")},
    ]
    await service.client.post(
        f"/api/2.0/agents/session-stores{session}/items:append", content=json.dumps({"items": items}).encode()
    )

    transcript = await read(service, session)

    assert [(line.position, line.role, line.text) for line in transcript.lines] == [
        (1, "user", "hello"),
        (3, "assistant", "hi"),
        (5, "user", "one\ntwo"),
        (6, "user", "half \ufffd"),
    ]
    assert transcript.lines[0].said_at == datetime.fromisoformat(said)
    assert transcript.lines[0].said_at.utcoffset() == timedelta(hours=2)
    assert transcript.lines[1].said_at == transcript.lines[1].appended_at
    assert (transcript.last_position, transcript.read_through, transcript.epoch) == (8, 8, 0)
    assert [line.position for line in (await read(service, session, after=4)).lines] == [5, 6]


async def test_what_a_clock_that_runs_ahead_dates_was_said_when_it_was_appended(
    service: SessionService, store: str
) -> None:
    session = await service.session(store)
    item = {"data": message("hello"), "occurred_at": "2999-05-01T09:30:00+09:00"}
    await service.client.post(
        f"/api/2.0/agents/session-stores{session}/items:append", content=json.dumps({"items": [item]}).encode()
    )

    [line] = (await read(service, session)).lines

    assert line.said_at == line.appended_at
    assert line.said_at.utcoffset() == timedelta(hours=9), "still in the speaker's zone"


async def test_a_transcript_is_complete_up_to_where_it_says(service: SessionService, store: str) -> None:
    session = await service.session(store)
    for n in range(10):
        await service.append(session, message(f"line {n}"), {"tool": n})

    positions: list[int] = []
    after, rounds = 0, 0
    while after < 20:
        page = await read(service, session, after, limit=3)
        assert all(after < line.position <= page.read_through for line in page.lines)
        positions += [line.position for line in page.lines]
        after, rounds = page.read_through, rounds + 1

    assert positions == list(range(1, 20, 2))
    assert rounds == 4


async def test_huge_lines_fit_into_answers_with_a_visible_cut(service: SessionService, store: str) -> None:
    session = await service.session(store)
    for text in ("before", "x" * 900_000 + "END", "\x01" * 200_000, "after", "y" * 200_000, "z" * 200_000):
        await service.append(session, message(text))

    lines = []
    after = 0
    while after < 6:
        page = await read(service, session, after)
        assert len(page.model_dump_json()) <= REPLY_BYTES
        assert page.read_through > after
        lines += page.lines
        after = page.read_through

    assert [line.position for line in lines] == [1, 2, 3, 4, 5, 6]
    assert (lines[0].text, lines[3].text) == ("before", "after")
    assert " […cut…] " in lines[1].text
    assert lines[1].text.endswith("END")
    assert lines[5].text == "z" * 200_000


async def test_cleared_and_popped_items_are_not_read(service: SessionService, store: str) -> None:
    session = await service.session(store)
    await service.append(session, message("a"))
    await service.call("POST", f"{session}/items:clear")
    await service.append(session, message("b"), message("c"))
    await service.call("POST", f"{session}/items:pop", headers={"Idempotency-Key": "k"})

    transcript = await read(service, session)

    assert [line.text for line in transcript.lines] == ["b"]
    assert (transcript.last_position, transcript.read_through) == (3, 3)


async def test_a_session_that_is_gone_says_so(service: SessionService, bus: Bus, store: str) -> None:
    session = await service.session(store)
    store_uid, session_uid = await uids(service, session)
    await service.call("DELETE", session)

    answer = await bus.ask(ReadTranscript(store_uid=store_uid, session_uid=session_uid, after=0), Transcript)
    changed = await bus.ask(SessionsChanged(store_uid=uuid7()), ChangedSessions)

    assert answer == Transcript(gone=True)
    assert changed == ChangedSessions(gone=True)


async def test_changed_sessions_come_by_activity_page_by_page(service: SessionService, bus: Bus, store: str) -> None:
    for n in range(7):
        await service.append(await service.session(store, f"s{n}", "ana" if n % 2 else "bo"), n)
    await service.session(store, "empty")
    await service.append(f"{store}/sessions/s0", "again")
    store_uid, _ = await uids(service, f"{store}/sessions/s0")

    found: list[str] = []
    cursor = None
    while True:
        page = await bus.ask(SessionsChanged(store_uid=store_uid, cursor=cursor, limit=3), ChangedSessions)
        found += [session.session_id for session in page.sessions]
        cursor = page.cursor
        if cursor is None:
            break

    assert found == ["s1", "s2", "s3", "s4", "s5", "s6", "s0"]
    of_ana = await bus.ask(SessionsChanged(store_uid=store_uid, actor_id="ana"), ChangedSessions)
    assert [session.session_id for session in of_ana.sessions] == ["s1", "s3", "s5"]
    later = SessionsChanged(store_uid=store_uid, since=datetime.now(UTC) + timedelta(hours=1))
    assert await bus.ask(later, ChangedSessions) == ChangedSessions()


async def test_sessions_without_an_item_of_their_own_are_told_where_they_are_asked_for(
    service: SessionService, bus: Bus, store: str
) -> None:
    for name in ("empty", "said"):
        await service.session(store, name)
    await service.append(f"{store}/sessions/said", "tea", "milk")
    fork = {"source_session_id": "said", "session_id": "copied", "actor_id": "bo"}
    await service.call("POST", f"{store}/sessions:fork", json=fork)
    store_uid, _ = await uids(service, f"{store}/sessions/said")

    of_their_own = await bus.ask(SessionsChanged(store_uid=store_uid), ChangedSessions)
    first = await bus.ask(SessionsChanged(store_uid=store_uid, empty_too=True, limit=2), ChangedSessions)
    rest = await bus.ask(SessionsChanged(store_uid=store_uid, empty_too=True, cursor=first.cursor), ChangedSessions)

    assert [session.session_id for session in of_their_own.sessions] == ["said"]
    assert (len(first.sessions), rest.cursor) == (2, None)
    assert {(each.session_id, each.last_position, each.copied_through) for each in first.sessions + rest.sessions} == {
        ("empty", 0, 0),
        ("said", 2, 0),
        ("copied", 2, 2),
    }


async def test_another_service_asks_who_may_use_a_store(service: SessionService, bus: Bus, store: str) -> None:
    async def ask(principal: str, permission: Any, workspace: int = 1) -> StoreAuthorization:
        return await bus.ask(
            AuthorizeSessionStore(
                workspace_id=workspace,
                principal_type="USER",
                principal=principal,
                permission=permission,
                store_id=store[1:],
            ),
            StoreAuthorization,
        )

    await service.call(
        "POST",
        f"{store}/permissions:grant",
        json={"principal": {"type": "USER", "name": "bo@example.com"}, "permission": "READ"},
    )

    assert (await ask("ana@example.com", "WRITE")).allowed
    assert (await ask("bo@example.com", "READ")).allowed
    assert not (await ask("bo@example.com", "WRITE")).allowed
    assert (await ask("cy@example.com", "READ")).store_id == store[1:]
    assert await ask("ana@example.com", "READ", workspace=2) == StoreAuthorization()
