"""`SQLAlchemySession` of the OpenAI Agents SDK, in process, its object kept: DSN WINDOW_S."""

import asyncio
import itertools
import json
import sys

from agents.extensions.memory import SQLAlchemySession
from sqlalchemy.ext.asyncio import create_async_engine

from tests.bench.payload import CLIENTS, ITEMS, RELOADED, SESSIONS_PER_CLIENT
from tests.bench.peers.windows_of import tell
from tests.bench.windows import Step

POOL = 8


async def main(dsn: str, window_s: float) -> None:
    engine = create_async_engine(
        dsn.replace("postgresql:", "postgresql+asyncpg:", 1), pool_size=POOL, max_overflow=0, pool_timeout=30
    )
    items = [json.loads(item) for item in ITEMS]

    def session(name: str) -> SQLAlchemySession:
        return SQLAlchemySession(name, engine=engine, create_tables=True)

    def append(name: str) -> Step:
        sessions = itertools.cycle([session(f"{name}-{n}") for n in range(SESSIONS_PER_CLIENT)])
        return lambda: next(sessions).add_items(items)

    async def reload(name: str) -> Step:
        kept = session(name)
        await kept.add_items([items[n % len(items)] for n in range(RELOADED)])
        assert len(await kept.get_items()) == RELOADED
        return kept.get_items

    try:
        await session("first").add_items(items)  # makes the tables
        loads = {f"append {count}": [append(f"append-{count}-{n}") for n in range(count)] for count in CLIENTS}
        loads |= {f"reload {count}": [await reload(f"reload-{count}-{n}") for n in range(count)] for count in CLIENTS}
        await tell(loads, window_s)
    finally:
        await engine.dispose()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], float(sys.argv[2])))
