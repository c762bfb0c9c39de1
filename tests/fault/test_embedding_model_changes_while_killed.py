"""Another embedding model, of another dimension, while facts are written and recalled and replicas die by kill -9."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from libs.contracts.routes import BASE
from tests.support.cluster import ENTRIES, MEMORY_STORE, SESSIONS, Cluster, cluster
from tests.support.embedder import Embedder, embedder
from tests.support.servers import PostgresServer
from tests.support.service import until

FACTS = 300  # three kills, each after sixty more
STORE = f"{BASE}/memory-stores/{MEMORY_STORE}"
KILLS = 3


async def embed_with(running: Cluster, model: str) -> dict[str, Any]:
    shown: dict[str, Any] = await running.answer(
        "PATCH", STORE, params={"update_mask": "embedding_model"}, json={"embedding_model": model}
    )
    return shown


async def progress(running: Cluster) -> dict[str, Any]:
    shown: dict[str, Any] = (await running.answer("GET", STORE))["embedding"]
    return shown


async def is_whole(running: Cluster, space: str) -> bool:
    """Every actor's searches use this space, and no entry waits."""
    others = f"embedding_space <> '{space}' or vectors_due"
    return await running.count("memory", "actor_stats", others) == 0


@asynccontextmanager
async def used(running: Cluster) -> AsyncIterator[list[int]]:
    """Two appends and five recalls a second meanwhile; yields how many facts each recall found."""
    found: list[int] = []

    async def append() -> None:
        for number in range(10_000):
            text = f"My neighbour number {number} is called Berta."
            item = {"data": {"type": "message", "role": "user", "content": text}}
            await running.answer(
                "POST",
                f"{SESSIONS}/s/items:append",
                json={"items": [item]},
                headers={"Idempotency-Key": f"append {number}"},
            )
            await asyncio.sleep(0.5)

    async def recall() -> None:
        while True:
            body = {"actor_id": "ana", "query": "feline", "page_size": 5}
            found.append(len((await running.answer("POST", f"{ENTRIES}:search", json=body))["results"]))
            await asyncio.sleep(0.2)

    tasks = [asyncio.create_task(append()), asyncio.create_task(recall())]
    try:
        yield found
        for task in tasks:
            assert not task.done(), task.exception()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def test_a_switch_of_the_embedding_model_is_survived_by_kill_9(postgres: PostgresServer, tmp_path: Path) -> None:
    async with embedder() as endpoint:
        settings = {
            "MODELS_FILE": str(endpoint.models_file(tmp_path)),
            "EMBEDDING_BATCH": "20",
            "EMBEDDING_INTERVAL_S": "0.5",
            "EMBEDDING_TIMEOUT_S": "2",  # a dead replica's claim ends after twice that
            "EMBEDDING_QUERY_TIMEOUT_S": "2",
        }
        async with cluster(postgres, replicas={"memory": 3}, settings={"memory": settings}) as running:
            await embed_with(running, "small")
            await running.make_session("s", "ana")
            for number in range(FACTS):
                body = {"actor_id": "ana", "path": f"/{number}.md", "content": f"A cat with the number {number}"}
                await running.answer("POST", ENTRIES, json=body, headers={"Idempotency-Key": f"fact {number}"})
            await until(lambda: is_whole(running, "small:384"), deadline_s=60)

            async with used(running) as found:
                endpoint.slow_s = 0.2
                shown = await embed_with(running, "large")
                seen = await interrupted(running, endpoint)
                endpoint.slow_s = 0.0
                await until(lambda: is_whole(running, "large:768"), deadline_s=90)
            await running.at_rest()
            await until(lambda: is_whole(running, "large:768"), deadline_s=60)
            rows = await running.rows("memory", "select space, vector_dims(vector) as dimensions from entry_vectors")
            live = await running.count("memory", "entries", "not retired")
            again = await progress(running)

    assert shown["embedding"]["done"] < FACTS
    assert any(0 < done < FACTS for done in seen), f"progress was seen: {seen}"
    assert set(found) == {5}, "recalls found by meaning throughout"
    assert {(row["space"], row["dimensions"]) for row in rows} == {("large:768", 768)}
    assert len(rows) == live > FACTS, "the facts of the switch are embedded too"
    assert again == {"model": "large", "dimensions": 768, "done": live, "total": live}
    assert running.kills["memory"] == KILLS


async def interrupted(running: Cluster, endpoint: Embedder) -> list[int]:
    """Kills a replica each time when some more is embedded; how much was done, as the store showed it."""
    seen = []
    for _ in range(KILLS):
        wanted = len(endpoint.texts("large")) + 60

        def more_is_embedded(wanted: int = wanted) -> bool:
            return len(endpoint.texts("large")) >= wanted

        await until(more_is_embedded, deadline_s=30)
        running.kill("memory")
        seen.append((await progress(running))["done"])
    return seen
