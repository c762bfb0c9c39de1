"""One workspace has 10,000 lanes behind: how long a single line of another takes until it is searchable."""

import asyncio
from collections.abc import Mapping
from statistics import median
from typing import Any

import httpx

from libs.contracts.routes import BASE
from tests.bench.client import BadAnswer
from tests.bench.report import Row, at_most
from tests.bench.stand import Stand

LANES = 10_000
AT_ONCE = 16
PROBES = 20
LINE = {"type": "message", "role": "user", "content": "I like tea."}


class Tenant:
    """A workspace with a pair of stores and a pipeline between them."""

    def __init__(self, stand: Stand, headers: Mapping[str, str], trigger: str) -> None:
        self._stand = stand
        self._trigger = trigger
        self._client = httpx.AsyncClient(timeout=60, headers=headers)
        self._pipeline = ""

    async def open(self) -> None:
        await self._ask("session", "/session-stores?session_store_id=crowd", {})
        await self._ask("memory", "/memory-stores", {"display_name": "facts"})
        policy = {"trigger": self._trigger, "quiet_period_s": 0}
        body = {"session_store": "crowd", "memory_store": "facts", "dreamer_policy": policy}
        self._pipeline = (await self._ask("distiller", "/memory-pipelines", body))["name"]

    async def close(self) -> None:
        await self._client.aclose()

    async def append(self, name: str) -> None:
        """A session and an actor of that name, with one line."""
        await self._ask("session", f"/session-stores/crowd/sessions?session_id={name}", {"actor_id": name})
        await self._ask("session", f"/session-stores/crowd/sessions/{name}/items:append", {"items": [{"data": LINE}]})

    async def probe(self, name: str) -> float:
        """Seconds from an append until it is searchable."""
        loop = asyncio.get_running_loop()
        begun = loop.time()
        await self.append(name)
        wait_for = {"session_store": "crowd", "session_id": name, "position": 1}
        body = {"actor_id": name, "query": "tea", "wait_for": wait_for, "max_wait_ms": 30_000}
        answer = await self._ask("memory", "/memory-stores/facts/entries:search", body)
        if not answer["settled"] or not answer["results"]:
            raise BadAnswer(f"the line of {name} was not searchable within 30 s")
        return loop.time() - begun

    async def run(self) -> str:
        name: str = (await self._ask("distiller", f"/{self._pipeline}/run", {}))["name"]
        return name

    async def state(self, run: str) -> str:
        answer = await self._client.get(f"{self._stand.url('distiller')}{BASE}/{run}")
        return str(answer.raise_for_status().json()["state"])

    async def _ask(self, service: str, path: str, body: Any) -> Any:
        answer = await self._client.post(f"{self._stand.url(service)}{BASE}{path}", json=body)
        if answer.status_code != 200:
            raise BadAnswer(f"{path}: {answer.status_code} {answer.text[:200]}")
        return answer.json()


async def fairness_rows(stand: Stand) -> list[Row]:
    crowded = Tenant(stand, stand.headers, "MANUAL_ONLY")
    other = Tenant(stand, stand.neighbour, "CONTINUOUS")
    await crowded.open()
    await other.open()
    alone = [await other.probe(f"alone-{number}") for number in range(PROBES)]
    turns = asyncio.Semaphore(AT_ONCE)

    async def append(number: int) -> None:
        async with turns:
            await crowded.append(f"a{number}")

    await asyncio.gather(*(append(number) for number in range(LANES)))
    run = await crowded.run()
    beside = [await other.probe(f"beside-{number}") for number in range(PROBES)]
    state = await crowded.state(run)
    if state != "RUNNING":
        raise BadAnswer(f"the backlog was over before the probes were: its run is {state}")
    await crowded.close()
    await other.close()
    note = f"p50 of {PROBES}, one after the other, quiet period 0; the reference is the same before the other's run"
    name = f"a line alone → searchable, beside another workspace's {LANES:,} lanes behind"
    return [Row(name, "ms", median(beside) * 1e3, median(alone) * 1e3, at_most(2), note)]
