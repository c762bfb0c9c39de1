"""What a turn (append 2, reload the newest 20) costs in a short and in a long session, turn by turn in alternation."""

import time
from statistics import median

import asyncpg

from tests.bench.appends import PARTS
from tests.bench.client import Connection, connections
from tests.bench.report import Row, at_most
from tests.bench.sessions import append_request, make_sessions, reload_request
from tests.bench.stand import SESSION_STORE, Stand

SHORT, LONG, FULL_LONG = 10, 10_000, 100_000
CROWD = 1_000_000
LONG_SESSIONS = 4
TURNS = 400
WARM_UP = 40
NEWEST_FIRST = "&order_by=create_time%20desc"


async def growth_rows(stand: Stand, *, full: bool) -> list[Row]:
    rows = []
    async with connections(stand.url("session"), 1) as (connection,):
        for size in (LONG, FULL_LONG) if full else (LONG,):
            short = [f"short-{size}-{turn}" for turn in range(TURNS + WARM_UP)]
            long = [f"long-{size}-{n}" for n in range(LONG_SESSIONS)]
            await make_sessions(stand, connection, short, items=SHORT)
            await make_sessions(stand, connection, long, items=size)
            took: dict[str, list[float]] = {"short": [], "long": []}
            for turn, session in enumerate(short):
                for name, chosen in (("short", session), ("long", long[turn % LONG_SESSIONS])):
                    took[name].append(await _turn(stand, connection, chosen))
            grown, small = median(took["long"][WARM_UP:]), median(took["short"][WARM_UP:])
            target = at_most(1.2) if size == LONG else None
            name = f"turn (append 2, reload 20) at {size:,} items against {SHORT}"
            rows.append(Row(name, "ms", grown * 1e3, small * 1e3, target, f"{PARTS}; 1 client, {TURNS} turns each"))
    return rows


async def _turn(stand: Stand, connection: Connection, session: str) -> float:
    append, reload = append_request(stand, session), reload_request(stand, session, 20, NEWEST_FIRST)
    begun = time.perf_counter()
    await connection.ask(append)
    await connection.ask(reload)
    return time.perf_counter() - begun


async def crowd_rows(stand: Stand) -> list[Row]:
    """The newest 20 of a long session, before and after its store has a million sessions."""
    async with connections(stand.url("session"), 1) as (connection,):
        await make_sessions(stand, connection, ["crowded"], items=FULL_LONG)
        alone = await _newest(stand, connection)
    await _crowd(stand.dsns["session"])
    async with connections(stand.url("session"), 1) as (connection,):
        crowded = await _newest(stand, connection)
    name = f"newest 20 of {FULL_LONG:,} items, {CROWD:,} sessions in the store against some"
    return [Row(name, "ms", crowded * 1e3, alone * 1e3, at_most(1.2), f"{PARTS}; 1 client, {TURNS} reads each")]


async def _newest(stand: Stand, connection: Connection) -> float:
    request, took = reload_request(stand, "crowded", 20, NEWEST_FIRST), []
    for _ in range(TURNS + WARM_UP):
        begun = time.perf_counter()
        await connection.ask(request)
        took.append(time.perf_counter() - begun)
    return median(took[WARM_UP:])


async def _crowd(dsn: str) -> None:
    """A million sessions of one item each."""
    connection = await asyncpg.connect(dsn)
    try:
        await connection.execute(
            "insert into sessions (store_uid, session_uid, session_id, actor_id, root_session_id, create_time,"
            " update_time, last_activity_time, last_position)"
            " select store_uid, gen_random_uuid(), 'crowd-' || n, 'crowd', 'crowd-' || n, now(), now(), now(), 1"
            " from session_stores, generate_series(1, $1::int) n where store_id = $2",
            CROWD,
            SESSION_STORE,
        )
        await connection.execute(
            "insert into session_items (store_uid, session_uid, position, data, create_time)"
            " select store_uid, session_uid, 1, '\"hello\"', now() from sessions where actor_id = 'crowd'"
        )
        await connection.execute("vacuum analyze sessions, session_items")
    finally:
        await connection.close()
