"""Append of two items with an Idempotency-Key, at 1, 8 and 32 clients, in turns with the limit; and the peers'."""

from tests.bench.client import connections
from tests.bench.limit import POOL, limit
from tests.bench.payload import CLIENTS, ITEMS, SESSIONS_PER_CLIENT
from tests.bench.report import Row, at_least, at_most
from tests.bench.session_peers import Peers, peer_rows
from tests.bench.sessions import append_step, make_sessions
from tests.bench.stand import Stand
from tests.bench.windows import Window, side_by_side

PARTS = "Postgres, NATS, session with relay, auth and metrics"


async def append_rows(stand: Stand, window_s: float, peers: Peers) -> list[Row]:
    names = {
        clients: [[f"append-{clients}-{client}-{n}" for n in range(SESSIONS_PER_CLIENT)] for client in range(clients)]
        for clients in CLIENTS
    }
    async with limit(stand.limit_dsn) as bare, connections(stand.url("session"), max(CLIENTS)) as opened:
        for sessions in names.values():
            for own in sessions:
                await make_sessions(stand, opened[0], own)
        loads = {
            f"{clients}": [
                append_step(stand, connection, own) for connection, own in zip(opened, sessions, strict=False)
            ]
            for clients, sessions in names.items()
        }
        loads["limit 1"] = await bare.appends(1, ITEMS, 1000)
        loads[f"limit {POOL}"] = await bare.appends(POOL, ITEMS, 2000)
        found = await side_by_side(loads, window_s)
    waiting = await stand.unpublished("session")
    alone, most = found["limit 1"], found[f"limit {POOL}"]
    return [
        Row("append 2 items, 1 client, p50", "ms", found["1"].p50_ms, alone.p50_ms, at_most(5), _note(found["1"])),
        Row("append 2 items, 8 clients", "/s", found["8"].per_s, most.per_s, at_least(0.18), _note(found["8"])),
        Row(
            "append 2 items, 32 clients",
            "/s",
            found["32"].per_s,
            most.per_s,
            None,
            f"{_note(found['32'])}; {waiting} events unpublished at the end",
        ),
        *peer_rows("append", "append 2 items", found, peers),
    ]


def _note(window: Window) -> str:
    return f"{PARTS}; p95 {window.p95_ms:.1f} ms; the client used {window.client_share:.0%} of a processor"
