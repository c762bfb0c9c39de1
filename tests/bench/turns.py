"""A turn of an agent through the Agents SDK's `Session`: a new object, the newest 50 items read, three appended."""

import json
from itertools import cycle, islice
from typing import Any

from memstream import AsyncAgentKitClient
from memstream.openai import session_store
from tests.bench.payload import APPENDED, ITEMS, RELOADED, TURN_CLIENTS
from tests.bench.peer import measured
from tests.bench.report import Row
from tests.bench.stand import SESSION_STORE, Stand
from tests.bench.windows import FEWER, Step, Window, side_by_side


async def turn_rows(stand: Stand, window_s: float) -> list[Row]:
    items: list[Any] = [json.loads(item) for item in islice(cycle(ITEMS), RELOADED)]
    token = stand.headers["Authorization"].removeprefix("Bearer ")
    async with AsyncAgentKitClient(base_url=stand.url("session"), token=token) as client:

        def turn(name: str) -> Step:
            async def take() -> None:
                session = session_store(name, store=SESSION_STORE, client=client)
                assert len(await session.get_items(RELOADED)) == RELOADED
                await session.add_items(items[:APPENDED])

            return take

        for number in range(max(TURN_CLIENTS)):
            await session_store(f"turn-{number}", store=SESSION_STORE, client=client).add_items(items)
        loads = {f"{count}": [turn(f"turn-{number}") for number in range(count)] for count in TURN_CLIENTS}
        ours = await side_by_side(loads, window_s, windows=FEWER)
    told = await measured("sqlalchemy_turn", stand.peers_dsn, str(window_s))
    peer = {count: Window(**window) for count, window in told.items()}
    return [
        Row(
            f"turn through session_store, {count} client{'s' * (count > 1)}, against SQLAlchemySession",
            "/s",
            ours[f"{count}"].per_s,
            peer[f"{count}"].per_s,
            None,
            f"open, read {RELOADED} items, append {APPENDED}; ours are three requests over HTTP, the peer in process; "
            f"p50 {ours[f'{count}'].p50_ms:.1f} ms against {peer[f'{count}'].p50_ms:.1f}; "
            f"client {ours[f'{count}'].client_share:.0%} of a processor",
        )
        for count in TURN_CLIENTS
    ]
