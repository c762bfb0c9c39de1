"""LangGraph's `AsyncPostgresStore` with vectors: `store_search.py DSN SECONDS` fills it, searches, prints a line."""

import asyncio
import sys
import time

from langgraph.store.base import PutOp
from langgraph.store.postgres.aio import AsyncPostgresStore

from tests.bench.peers.corpus import (
    CLIENTS,
    DIMENSIONS,
    ENTRIES,
    HITS,
    QUERIES,
    actor,
    queries,
    report,
    statements,
    vector,
)


async def embed(texts: list[str]) -> list[list[float]]:
    return [vector(text) for text in texts]


async def main(dsn: str, seconds: float) -> None:
    pool = {"min_size": CLIENTS, "max_size": CLIENTS}
    index = {"dims": DIMENSIONS, "embed": embed, "fields": ["content"]}
    async with AsyncPostgresStore.from_conn_string(dsn, pool_config=pool, index=index) as store:
        await store.setup()
        puts = [
            PutOp(("memories", actor(number)), str(number), {"content": statement})
            for number, statement in enumerate(statements(ENTRIES))
        ]
        for start in range(0, ENTRIES, 500):
            await store.abatch(puts[start : start + 500])
        asked, took = queries(), []
        end = time.perf_counter() + seconds

        async def client(number: int) -> None:
            while (begun := time.perf_counter()) < end:
                number += CLIENTS
                await store.asearch(("memories", actor(number)), query=asked[number % QUERIES], limit=HITS)
                took.append(time.perf_counter() - begun)

        begun = time.perf_counter()
        await asyncio.gather(*(client(number) for number in range(CLIENTS)))
        report(took, time.perf_counter() - begun)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], float(sys.argv[2])))
