"""`AsyncPostgresSaver` of LangGraph, in process: DSN WINDOW_S.

One saver serves all clients, as a graph is compiled with one; it does one thing at a time. An append is what the
simplest graph writes for a turn of two messages, in a conversation as long as those that are reloaded: three
checkpoints, the whole conversation in two of them, and the writes of two steps.

`alone` is the least that the saver can ever be made to do, which no graph does: each client has a saver of its own, and
an append is one checkpoint that holds nothing but the two messages.
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

from tests.bench.payload import ALONE, CLIENTS, ITEMS, RELOADED, SESSIONS_PER_CLIENT
from tests.bench.peers.windows_of import tell
from tests.bench.windows import Step

POOL = 8
TURN = [json.loads(item) for item in ITEMS]
CONVERSATION = [TURN[n % len(TURN)] for n in range(RELOADED)]


class Thread:
    """A conversation: each checkpoint follows on the one before."""

    def __init__(self, saver: AsyncPostgresSaver, name: str) -> None:
        self._saver = saver
        self._config: Any = {"configurable": {"thread_id": name, "checkpoint_ns": ""}}
        self._versions: dict[str, Any] = {}
        self._step = 0

    async def turn(self) -> None:
        question, answer = TURN
        await self.put({"__start__": {"messages": [question]}}, source="input")
        await self._write([("messages", [question]), ("branch:to:agent", None)])
        await self.put({"messages": [*CONVERSATION[2:], question], "branch:to:agent": None})
        await self._write([("messages", [answer])])
        await self.put({"messages": [*CONVERSATION[2:], question, answer]})

    async def put(self, values: dict[str, Any], source: Any = "loop") -> None:
        changed = {channel: self._saver.get_next_version(self._versions.get(channel), None) for channel in values}
        self._versions |= changed
        checkpoint = empty_checkpoint() | {"channel_values": values, "channel_versions": {**self._versions}}
        self._step += 1
        self._config = await self._saver.aput(
            self._config, checkpoint, {"source": source, "step": self._step, "parents": {}}, changed
        )

    async def _write(self, writes: list[tuple[str, Any]]) -> None:
        await self._saver.aput_writes(self._config, writes, f"step-{self._step}")

    async def messages(self) -> list[Any]:
        thread = self._config["configurable"]["thread_id"]
        found = await self._saver.aget_tuple({"configurable": {"thread_id": thread, "checkpoint_ns": ""}})
        return list(found.checkpoint["channel_values"]["messages"]) if found else []


async def main(dsn: str, window_s: float) -> None:
    settings = {"autocommit": True, "prepare_threshold": 0, "row_factory": dict_row}
    async with AsyncConnectionPool(dsn, min_size=POOL, max_size=POOL, kwargs=settings) as pool:
        shared = AsyncPostgresSaver(pool)
        await shared.setup()

        def threads(saver: AsyncPostgresSaver, name: str) -> "itertools.cycle[Thread]":
            return itertools.cycle([Thread(saver, f"{name}-{n}") for n in range(SESSIONS_PER_CLIENT)])

        def append(name: str) -> Step:
            own = threads(shared, name)
            return lambda: next(own).turn()

        def append_alone(name: str) -> Step:
            own = threads(AsyncPostgresSaver(pool), name)
            return lambda: next(own).put({"messages": TURN})

        async def reload(saver: AsyncPostgresSaver, name: str) -> Step:
            thread = Thread(saver, name)
            await thread.put({"messages": CONVERSATION})
            assert await thread.messages() == CONVERSATION
            return thread.messages

        loads = {f"append {count}": [append(f"append-{count}-{n}") for n in range(count)] for count in CLIENTS}
        loads |= {
            f"reload {count}": [await reload(shared, f"reload-{count}-{n}") for n in range(count)] for count in CLIENTS
        }
        loads[f"append {ALONE} alone"] = [append_alone(f"append-alone-{n}") for n in range(ALONE)]
        loads[f"reload {ALONE} alone"] = [
            await reload(AsyncPostgresSaver(pool), f"reload-alone-{n}") for n in range(ALONE)
        ]
        await tell(loads, window_s)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], float(sys.argv[2])))
