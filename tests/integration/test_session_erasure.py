"""Erasure and retention over a real broker."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import nats as nats_client
import pytest

from libs.chassis.outbox import OutboxRow
from libs.contracts.events import DistillerActorErased, Event, MemoryActorErased, SessionActorErased
from libs.contracts.requests import ReadTranscript, Transcript
from tests.support.servers import NatsServer, PostgresServer
from tests.support.service import chassis_of, running, until
from tests.support.session import STORES, SessionService, message, session_app, session_service

KEY = {"Idempotency-Key": "k1"}


@pytest.fixture(scope="module")
async def service(postgres: PostgresServer, nats: NatsServer) -> AsyncIterator[SessionService]:
    async with session_service(postgres, nats, erasure_repeat_s=0.3) as started:
        yield started


@pytest.fixture
async def store(service: SessionService) -> str:
    return await service.store(f"chats-{uuid4().hex[:8]}")


async def store_uid(service: SessionService, store: str) -> UUID:
    uid = await service.database.fetchval("select store_uid from session_stores where store_id = $1", store[1:])
    assert isinstance(uid, UUID)
    return uid


async def erase(service: SessionService, store: str, actor: str = "ana", **request: Any) -> Any:
    return await service.call("POST", f"{store}/actors:erase", json={"actor_id": actor}, **request)


async def receipt(service: SessionService, store: str, erasure: Any) -> Any:
    return await service.call("GET", f"{store}/erasures/{erasure['erasure_id']}")


async def publish(service: SessionService, event: Event) -> None:
    await chassis_of(service.app).bus.publish(OutboxRow.of(event))


async def left(service: SessionService, store: str, table: str) -> int:
    uid = await store_uid(service, store)
    return int(await service.database.fetchval(f"select count(*) from {table} where store_uid = $1", uid))


async def test_an_erasure_takes_everything_of_the_actor_and_nothing_else(service: SessionService, store: str) -> None:
    await service.append(await service.session(store, "a1"), *range(5), headers=KEY)
    await service.session(store, "a2", parent_session_id="a1")
    await service.append(await service.session(store, "b1", "bo"), *range(3), headers=KEY)
    await service.call("POST", f"{store}/sessions/a1/items:pop", headers=KEY)

    erasure = await erase(service, store)
    sessions = await service.call("GET", f"{store}/sessions")
    await until(lambda: _purged(service, store))

    assert erasure["state"] == "PENDING"
    assert erasure["counts"] == {"sessions": 2, "items": 4}
    assert [session["session_id"] for session in sessions["sessions"]] == ["b1"]
    assert await left(service, store, "session_items") == 3
    assert await left(service, store, "idempotency_keys") == 1


async def _purged(service: SessionService, store: str) -> bool:
    return await left(service, store, "item_purges") == 0


async def test_an_erasure_is_repeated_until_everybody_confirmed(
    service: SessionService, nats: NatsServer, store: str
) -> None:
    await service.append(await service.session(store), message("a"))
    client = await nats_client.connect(nats.url)
    try:
        subscription = await client.jetstream().subscribe(SessionActorErased.subject, ordered_consumer=True)
        erasure = await erase(service, store)
        await chassis_of(service.app).relay._sweep_once()
        announced: list[SessionActorErased] = []
        while len(announced) < 2:
            event = SessionActorErased.model_validate_json((await subscription.next_msg(timeout=10)).data)
            if str(event.erasure_id) == erasure["erasure_id"]:
                announced.append(event)
    finally:
        await client.close()
    first = announced[0]
    facts: dict[str, Any] = {
        "workspace_id": 1,
        "store_uid": first.store_uid,
        "actor_id": "ana",
        "epoch": first.epoch,
        "erasure_id": first.erasure_id,
    }

    for _ in range(2):
        await publish(service, DistillerActorErased(**facts, removed=3))
    await publish(service, MemoryActorErased(**facts, removed=7))
    await until(lambda: _is_done(service, store, erasure))

    assert first.epoch == 1
    assert (await receipt(service, store, erasure))["counts"] == {
        "sessions": 1,
        "items": 1,
        "distiller": 3,
        "memory": 7,
    }


async def _is_done(service: SessionService, store: str, erasure: Any) -> bool:
    return bool((await receipt(service, store, erasure))["state"] == "DONE")


async def test_a_restored_store_goes_on_after_the_epochs_that_others_know(service: SessionService, store: str) -> None:
    """Else all that the actor says from now on would pass for what was erased."""
    erasure = await erase(service, store)
    uid = await store_uid(service, store)

    async def epoch() -> int:
        return int(await service.database.fetchval("select epoch from actor_epochs where store_uid = $1", uid))

    facts: dict[str, Any] = {
        "workspace_id": 1,
        "store_uid": uid,
        "actor_id": "ana",
        "epoch": 1,
        "erasure_id": erasure["erasure_id"],
    }

    await publish(service, MemoryActorErased(**facts, known_epoch=3))
    await publish(service, DistillerActorErased(**facts, known_epoch=2))
    await until(lambda: _is_done(service, store, erasure))

    assert await epoch() == 3
    await erase(service, store)
    assert await epoch() == 4


async def test_a_second_erasure_is_legal_and_counts_nothing(service: SessionService, store: str) -> None:
    await service.append(await service.session(store), 1)

    first = await erase(service, store)
    second = await erase(service, store)

    assert second["erasure_id"] != first["erasure_id"]
    assert second["counts"] == {"sessions": 0, "items": 0}


async def test_what_comes_after_an_erasure_is_a_fresh_start(service: SessionService, store: str) -> None:
    await service.append(await service.session(store), message("old"))
    await erase(service, store)
    await erase(service, store)
    await service.append(await service.session(store), message("new"))
    uid = await store_uid(service, store)
    session_uid = await service.database.fetchval("select session_uid from sessions where store_uid = $1", uid)

    request = ReadTranscript(store_uid=uid, session_uid=session_uid, after=0)
    transcript = await chassis_of(service.app).bus.ask(request, Transcript)

    assert [line.text for line in transcript.lines] == ["new"]
    assert transcript.epoch == 2


async def test_a_repeated_erasure_with_its_key_is_the_first(service: SessionService, store: str) -> None:
    first = await erase(service, store, headers=KEY)
    second = await erase(service, store, headers=KEY)

    assert first["erasure_id"] == second["erasure_id"]


async def test_forks_under_way_do_not_outlive_an_erasure(service: SessionService, store: str) -> None:
    session = await service.session(store)
    for n in range(3):
        await service.append(session, *range(n * 1000, n * 1000 + 1000))

    async def fork(n: int) -> int:
        body = {"source_session_id": "s1", "actor_id": "ana", "session_id": f"f{n}"}
        return (await service.client.post(f"{STORES}{store}/sessions:fork", json=body)).status_code

    statuses = await asyncio.gather(*(fork(n) for n in range(4)), erase_soon(service, store))
    await until(lambda: _purged(service, store))

    assert set(statuses[:4]) <= {200, 404}
    assert await service.call("GET", f"{store}/sessions") == {"sessions": []}
    assert await left(service, store, "session_items") == 0


async def erase_soon(service: SessionService, store: str) -> int:
    await asyncio.sleep(0.01)
    await erase(service, store)
    return 200


async def test_who_may_erase(service: SessionService, store: str) -> None:
    async def attempt(**claims: Any) -> int:
        answer = await service.client.post(
            f"{STORES}{store}/actors:erase", json={"actor_id": "x"}, headers=service.keys.header(**claims)
        )
        return answer.status_code

    await service.call(
        "POST",
        f"{store}/permissions:grant",
        json={"principal": {"type": "USER", "name": "reader@example.com"}, "permission": "READ"},
    )

    assert await attempt() == 200
    assert await attempt(user="root@example.com", admin=True) == 200
    assert await attempt(user="reader@example.com") == 403
    assert await attempt(user="bo@example.com") == 403
    assert await attempt(workspace=2, admin=True) == 404


@pytest.mark.parametrize("body", [{}, {"actor_id": ""}, {"actor_id": "a\nb"}, [], {"actor_id": 1}])
async def test_a_wrong_erasure_is_400(service: SessionService, store: str, body: Any) -> None:
    assert (await service.client.post(f"{STORES}{store}/actors:erase", json=body)).status_code == 400


@pytest.mark.parametrize("erasure_id", ["x", "0198c3f0-0000-7000-8000-000000000000"])
async def test_an_unknown_erasure_is_404(service: SessionService, store: str, erasure_id: str) -> None:
    assert (await service.client.get(f"{STORES}{store}/erasures/{erasure_id}")).status_code == 404


async def age(service: SessionService, store: str, session: str, column: str, interval: str) -> None:
    await service.database.write(
        f"update sessions set {column} = {column} - $3::text::interval where store_uid = $1 and session_id = $2",
        await store_uid(service, store),
        session,
        interval,
    )


async def test_what_a_store_keeps_no_longer_goes_whole(service: SessionService, store: str) -> None:
    await service.call(
        "PATCH",
        store,
        params={"update_mask": "idle_ttl_minutes,retention_days"},
        json={"idle_ttl_minutes": 60, "retention_days": 1},
    )
    for name in ("idle", "busy", "parent"):
        await service.append(await service.session(store, name), 1)
    await service.session(store, "child", parent_session_id="parent")
    await age(service, store, "idle", "last_activity_time", "61 minutes")
    await age(service, store, "busy", "last_activity_time", "59 minutes")
    await age(service, store, "parent", "last_activity_time", "2 hours")

    await service.clean()

    kept = [session["session_id"] for session in (await service.call("GET", f"{store}/sessions"))["sessions"]]
    assert sorted(kept) == ["busy", "child", "parent"]
    assert await left(service, store, "session_items") == 2
    await age(service, store, "child", "last_activity_time", "2 hours")
    await service.clean()
    assert [s["session_id"] for s in (await service.call("GET", f"{store}/sessions"))["sessions"]] == ["busy"]


async def test_a_session_whose_metadata_was_touched_is_not_untouched(service: SessionService, store: str) -> None:
    await service.call("PATCH", store, params={"update_mask": "retention_days"}, json={"retention_days": 1})
    await service.session(store, "old")
    await service.session(store, "touched")
    for name, column in (("old", "last_activity_time"), ("old", "update_time"), ("touched", "last_activity_time")):
        await age(service, store, name, column, "25 hours")

    await service.clean()

    assert [s["session_id"] for s in (await service.call("GET", f"{store}/sessions"))["sessions"]] == ["touched"]


async def test_without_limits_everything_stays(service: SessionService, store: str) -> None:
    await service.session(store, "old")
    for column in ("last_activity_time", "update_time"):
        await age(service, store, "old", column, "10 years")

    await service.clean()

    assert len((await service.call("GET", f"{store}/sessions"))["sessions"]) == 1


async def test_events_of_retention_name_each_session(service: SessionService, store: str) -> None:
    await service.call("PATCH", store, params={"update_mask": "idle_ttl_minutes"}, json={"idle_ttl_minutes": 1})
    await service.session(store, "s1")
    await age(service, store, "s1", "last_activity_time", "2 minutes")
    subscription_client = await nats_client.connect(chassis_of(service.app).settings.nats_url.get_secret_value())
    try:
        subscription = await subscription_client.jetstream().subscribe(
            "session.session.deleted.v1", ordered_consumer=True
        )
        await service.clean()
        uid = str(await store_uid(service, store))
        while True:
            event = json.loads((await subscription.next_msg(timeout=10)).data)
            if event["store_uid"] == uid:
                break
    finally:
        await subscription_client.close()

    assert event["actor_id"] == "ana"


async def test_one_replica_at_a_time_sweeps(postgres: PostgresServer) -> None:
    async with session_service(postgres) as first:
        app = session_app(first.dsn, first.keys)
        async with running(app, first.keys) as client:
            second = SessionService(app, client, first.keys, first.dsn)
            for number in range(4):
                await first.session(await first.store(f"store{number}", idle_ttl_minutes=1))
            await first.database.write("update sessions set last_activity_time = now() - interval '1 hour'")
            holder = await asyncpg.connect(first.dsn)

            async with holder.transaction():
                await holder.execute("select from sessions for update")
                sweeping = asyncio.create_task(first.clean())
                await until(lambda: _waits(holder))
                async with asyncio.timeout(10):
                    await second.clean()
                assert not sweeping.done()
                assert await holder.fetchval("select count(*) from sessions") == 4
            await sweeping

            assert await holder.fetchval("select count(*) from sessions") == 0
            assert await holder.fetchval("select count(*) from outbox where subject like '%session.deleted%'") == 4
            await holder.close()


async def _waits(connection: "asyncpg.Connection[asyncpg.Record]") -> bool:
    return bool(
        await connection.fetchval(
            "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"
        )
    )
