"""A turn through `SQLAlchemySession`, in process, a new object for each on one engine: DSN WINDOW_S."""

import asyncio
import itertools
import json
import sys

from agents.extensions.memory import SQLAlchemySession
from sqlalchemy.ext.asyncio import create_async_engine

from tests.bench.payload import APPENDED, ITEMS, RELOADED, TURN_CLIENTS
from tests.bench.peers.windows_of import tell
from tests.bench.windows import Step

POOL = 8


async def main(dsn: str, window_s: float) -> None:
    engine = create_async_engine(
        dsn.replace("postgresql:", "postgresql+asyncpg:", 1), pool_size=POOL, max_overflow=0, pool_timeout=30
    )
    items = [json.loads(item) for item in itertools.islice(itertools.cycle(ITEMS), RELOADED)]

    def turn(name: str) -> Step:
        async def take() -> None:
            session = SQLAlchemySession(name, engine=engine)
            assert len(await session.get_items(RELOADED)) == RELOADED
            await session.add_items(items[:APPENDED])

        return take

    try:
        for number in range(max(TURN_CLIENTS)):
            await SQLAlchemySession(f"turn-{number}", engine=engine, create_tables=True).add_items(items)
        await tell(
            {f"{count}": [turn(f"turn-{number}") for number in range(count)] for count in TURN_CLIENTS}, window_s
        )
    finally:
        await engine.dispose()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], float(sys.argv[2])))
