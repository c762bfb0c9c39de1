"""LangGraph turns through our checkpointer, against its own on the same Postgres; and their cost as a thread grows."""

import asyncio

from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from memstream.client import AgentKitClient
from memstream.langgraph import MemstreamSaver, thread_config
from memstream.langgraph.threads import Threads
from tests.bench.appends import PARTS
from tests.bench.langgraph_turn import APPENDED, METADATA, checkpoint, turns
from tests.bench.payload import RELOADED
from tests.bench.peer import measured
from tests.bench.report import Row, at_most
from tests.bench.stand import SESSION_STORE, Stand
from tests.bench.windows import FEWER, Window, side_by_side
from tests.support.counted import CountedTransport, Traffic

CLIENTS = (1, 8)
LENGTHS = (10, 100, 1000)


async def langgraph_rows(stand: Stand, window_s: float) -> list[Row]:
    peers = await measured("langgraph_turns", stand.peers_dsn, str(window_s), *map(str, CLIENTS))
    token = stand.headers["Authorization"].removeprefix("Bearer ")
    async with MemstreamSaver(SESSION_STORE, stand.url("session"), token) as saver:
        loads = {
            f"{clients}": [await turns(saver, f"turn-{clients}-{client}") for client in range(clients)]
            for clients in CLIENTS
        }
        found = await side_by_side(loads, window_s, windows=FEWER)
    wire = CountedTransport()
    with AgentKitClient(base_url=stand.url("session"), token=token, http_transport=wire) as client:
        costs = await asyncio.to_thread(_costs, Threads(client, SESSION_STORE, transcript=False), wire)
    rows = [_row(clients, found[f"{clients}"], Window(**peers[f"{clients}"])) for clients in CLIENTS]
    return [*rows, *_growth(costs[LENGTHS[0]], costs[LENGTHS[-1]])]


def _row(clients: int, ours: Window, peer: Window) -> Row:
    return Row(
        f"LangGraph turn (load {RELOADED} messages, append {APPENDED}), {clients} client{'s' * (clients > 1)}, "
        "against AsyncPostgresSaver",
        "/s",
        ours.per_s,
        peer.per_s,
        None,
        f"{PARTS}; ours over HTTP in one process, the peer in process with a pool of 8; "
        f"p50 {ours.p50_ms:.1f} ms against {peer.p50_ms:.1f}; our client used {ours.client_share:.0%} of a processor",
    )


def _growth(short: Traffic, long: Traffic) -> list[Row]:
    note = f"read the newest checkpoint, put the next, at {', '.join(map(str, LENGTHS))} checkpoints"
    figures = (
        ("requests", long.requests, short.requests, at_most(1)),
        ("items", long.items_read + long.items_appended, short.items_read + short.items_appended, at_most(1)),
        ("bytes", long.bytes, short.bytes, at_most(1.05)),
    )
    return [
        Row(f"{unit} of a LangGraph turn at {LENGTHS[-1]:,} checkpoints", unit, ours, least, target, note)
        for unit, ours, least, target in figures
    ]


def _costs(threads: Threads, wire: CountedTransport) -> dict[int, Traffic]:
    """Of a turn with one message, by the number of checkpoints before it."""
    serde, costs = JsonPlusSerializer(), {}
    for number in range(LENGTHS[-1] + 1):
        versions = {"messages": f"{number:032}"}
        wire.take()
        newest = threads.get_tuple(serde, thread_config("growing"))
        config = newest.config if newest else thread_config("growing")
        threads.put(serde, config, checkpoint(1, versions), METADATA, {**versions})
        costs[number] = wire.take()
    return costs
