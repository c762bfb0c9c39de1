"""What a turn (append 2, reload the newest 20) costs in a short and in a long session, turn by turn in alternation."""

import time
from statistics import median

from tests.bench.appends import PARTS
from tests.bench.client import Connection, connections
from tests.bench.report import Row, at_most
from tests.bench.sessions import append_request, make_sessions, reload_request
from tests.bench.stand import Stand

SHORT, LONG, FULL_LONG = 10, 10_000, 100_000
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
