"""`AsyncPostgresSaver` of LangGraph, in process: DSN WINDOW_S.

An append is one checkpoint whose channel holds the two items of the turn: the least that it ever writes, for a growing
conversation is written whole with each. A saver does one thing at a time, so that each client has its own, on one pool.
"""

import asyncio
import itertools
import json
import sys
from typing import Any

from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from psycopg.rows import dict_row
from psycopg_pool import AsyncConnectionPool

from tests.bench.payload import CLIENTS, ITEMS, RELOADED, SESSIONS_PER_CLIENT
from tests.bench.peers.windows_of import tell
from tests.bench.windows import Step

POOL = 8


class Thread:
    """A conversation: each checkpoint follows on the one before."""

    def __init__(self, saver: AsyncPostgresSaver, name: str) -> None:
        self._saver = saver
        self._config: Any = {"configurable": {"thread_id": name, "checkpoint_ns": ""}}
        self._version: Any = None
        self._step = 0

    async def put(self, messages: list[Any]) -> None:
        self._version = self._saver.get_next_version(self._version, None)
        checkpoint = empty_checkpoint()
        checkpoint["channel_values"] = {"messages": messages}
        checkpoint["channel_versions"] = versions = {"messages": self._version}
        self._step += 1
        self._config = await self._saver.aput(
            self._config, checkpoint, {"source": "loop", "step": self._step, "parents": {}}, versions
        )

    async def messages(self) -> list[Any]:
        thread = self._config["configurable"]["thread_id"]
        found = await self._saver.aget_tuple({"configurable": {"thread_id": thread, "checkpoint_ns": ""}})
        return list(found.checkpoint["channel_values"]["messages"]) if found else []


async def main(dsn: str, window_s: float) -> None:
    items = [json.loads(item) for item in ITEMS]
    settings = {"autocommit": True, "prepare_threshold": 0, "row_factory": dict_row}
    async with AsyncConnectionPool(dsn, min_size=POOL, max_size=POOL, kwargs=settings) as pool:
        await AsyncPostgresSaver(pool).setup()

        def append(name: str) -> Step:
            saver = AsyncPostgresSaver(pool)
            threads = itertools.cycle([Thread(saver, f"{name}-{n}") for n in range(SESSIONS_PER_CLIENT)])
            return lambda: next(threads).put(items)

        async def reload(name: str) -> Step:
            thread = Thread(AsyncPostgresSaver(pool), name)
            await thread.put([items[n % len(items)] for n in range(RELOADED)])
            assert len(await thread.messages()) == RELOADED
            return thread.messages

        loads = {f"append {count}": [append(f"append-{count}-{n}") for n in range(count)] for count in CLIENTS}
        loads |= {f"reload {count}": [await reload(f"reload-{count}-{n}") for n in range(count)] for count in CLIENTS}
        await tell(loads, window_s)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], float(sys.argv[2])))
