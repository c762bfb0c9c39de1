"""Reload of a session of 50 items, at 1, 8 and 32 clients, in turns with the limit, and beside the peers."""

from itertools import cycle, islice

from tests.bench.appends import PARTS
from tests.bench.client import BadAnswer, connections
from tests.bench.limit import POOL, limit
from tests.bench.payload import CLIENTS, ITEMS
from tests.bench.payload import RELOADED as SIZE
from tests.bench.report import Row, at_least
from tests.bench.session_peers import Peers, peer_rows
from tests.bench.sessions import count_items, make_sessions, reload_request, reload_step
from tests.bench.stand import Stand
from tests.bench.windows import side_by_side

TARGETS = {8: at_least(0.18), 32: at_least(0.28)}


async def reload_rows(stand: Stand, window_s: float, peers: Peers) -> list[Row]:
    names = [f"reload-{client}" for client in range(max(CLIENTS))]
    async with limit(stand.limit_dsn) as bare, connections(stand.url("session"), max(CLIENTS)) as opened:
        await make_sessions(stand, opened[0], names, items=SIZE)
        answered = count_items(await opened[0].ask(reload_request(stand, names[0], SIZE)))
        if answered != SIZE:
            raise BadAnswer(f"a reload answered {answered} items instead of {SIZE}")
        for append in await bare.appends(POOL, list(islice(cycle(ITEMS), SIZE)), 3000):
            await append()
        loads = {
            f"{clients}": [reload_step(stand, opened[client], names[client], SIZE) for client in range(clients)]
            for clients in CLIENTS
        }
        loads["limit"] = await bare.reloads(POOL, 3000)
        found = await side_by_side(loads, window_s)
    rows = [
        Row(
            f"reload {SIZE} items, {clients} client{'s' * (clients > 1)}",
            "/s",
            found[f"{clients}"].per_s,
            found["limit"].per_s,
            TARGETS.get(clients),
            f"{PARTS}; p95 {found[f'{clients}'].p95_ms:.1f} ms; "
            f"the client used {found[f'{clients}'].client_share:.0%} of a processor",
        )
        for clients in CLIENTS
    ]
    return rows + peer_rows("reload", f"reload {SIZE} items", found, peers)
