"""Turns through LangGraph's `AsyncPostgresSaver`, in process: DSN WINDOW_S CLIENTS..."""

import asyncio
import sys

from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from psycopg.rows import dict_row
from psycopg_pool import AsyncConnectionPool

from tests.bench.langgraph_turn import turns
from tests.bench.peers.windows_of import tell

POOL = 8


async def main(dsn: str, window_s: float, clients: list[int]) -> None:
    settings = {"autocommit": True, "prepare_threshold": 0, "row_factory": dict_row}
    async with AsyncConnectionPool(dsn, min_size=POOL, max_size=POOL, kwargs=settings) as pool:
        await AsyncPostgresSaver(pool).setup()
        # A saver does one thing at a time, so that each client has its own.
        loads = {
            f"{count}": [await turns(AsyncPostgresSaver(pool), f"turn-{count}-{client}") for client in range(count)]
            for count in clients
        }
        await tell(loads, window_s)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], float(sys.argv[2]), [int(count) for count in sys.argv[3:]]))
