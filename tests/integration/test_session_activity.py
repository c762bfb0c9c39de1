"""Sessions by their last activity: whole pages in order, by an index that the appends of a turn leave alone."""

import json
from collections.abc import AsyncIterator

import pytest

from services.session.store.activity import active_in
from tests.support.plans import nodes
from tests.support.servers import PostgresServer
from tests.support.session import SessionService, session_service

NOON = "timestamptz '2026-05-01T12:00:00Z'"


@pytest.fixture
async def service(postgres: PostgresServer) -> AsyncIterator[SessionService]:
    async with session_service(postgres) as running:
        yield running


async def crowd(service: SessionService, sessions: int, every: str) -> str:
    """A store with sessions `0`, `1`, … that were active one after the other, each that long after the one before."""
    store = await service.store()
    await service.session(store, "0")
    await service.database.write(
        "insert into sessions (store_uid, session_uid, session_id, actor_id, root_session_id, create_time, update_time,"
        f" last_activity_time) select store_uid, gen_random_uuid(), n::text, 'ana', n::text, {NOON}, {NOON},"
        f" {NOON} + n * interval '{every}' from sessions, generate_series(1, {sessions - 1}) n"
    )
    await service.database.write(
        f"update sessions set last_activity_time = {NOON}, create_time = {NOON} where session_id = '0'"
    )
    return store


@pytest.mark.parametrize("direction", ["asc", "desc"])
@pytest.mark.parametrize("every", ["3 seconds", "1 minute", "10 milliseconds"])
async def test_pages_by_activity_are_whole_and_in_order(service: SessionService, every: str, direction: str) -> None:
    store = await crowd(service, 47, every)

    found: list[str] = []
    token = ""
    while True:
        page = await service.call(
            "GET",
            f"{store}/sessions",
            params={"order_by": f"last_activity_time {direction}", "page_size": 10, "page_token": token},
        )
        found += [session["name"].rpartition("/")[2] for session in page["sessions"]]
        token = page.get("next_page_token", "")
        if not token:
            break

    wanted = [str(n) for n in range(47)]
    assert found == (wanted if direction == "asc" else wanted[::-1])


async def test_a_page_by_activity_reads_little_more_than_it_shows(service: SessionService) -> None:
    await crowd(service, 20_000, "1 second")
    await service.database.write("analyze sessions")
    (row,) = await service.database.fetch("select store_uid from sessions limit 1")
    time = f"({NOON} + interval '4 hours')"

    plan = await service.database.fetchval(
        "explain (analyze, format json) select session_id from sessions where store_uid = $1"
        f" and (active_in, last_activity_time, session_uid) < ({active_in(time)}, {time}, '{row['store_uid']}')"
        " order by active_in desc, last_activity_time desc, session_uid desc limit 20",
        row["store_uid"],
    )

    [scan] = [node for node in nodes(json.loads(plan)[0]["Plan"]) if "Relation Name" in node]
    assert scan["Index Name"] == "sessions_active"
    assert scan["Actual Rows"] <= 60


async def test_the_appends_of_ten_seconds_touch_no_index_of_sessions(service: SessionService) -> None:
    await crowd(service, 1, "1 second")

    async with service.database.transaction() as connection:
        for seconds in (1, 2, 3):
            await connection.execute(
                f"update sessions set last_activity_time = {NOON} + interval '{seconds} s', last_position = {seconds}"
            )
        counted = "select pg_stat_get_xact_tuples_hot_updated('sessions'::regclass)"
        assert await connection.fetchval(counted) == 3
