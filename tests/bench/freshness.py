"""From an append to its statement's being searchable, at some appends a second over many actors.

Each append states one fact of its own. The clock starts when the append is due to be sent, whether or not it could be,
and stops when `memory.batches.applied` of its actor is heard, which memory publishes after its commit: polling a search
would slow down what it measures. Every tenth statement is searched for at that very moment, over HTTP, and must be
found; at the end every statement must be found. So no figure is earlier than the moment from which a search finds it.
"""

import asyncio
import json
import random
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any

import nats
from nats.aio.msg import Msg

from libs.contracts.events import BatchesApplied
from tests.bench.client import BadAnswer, Connection, connections, request_bytes
from tests.bench.report import Row, at_most
from tests.bench.stand import ENTRIES, MEMORY_STORE, SESSION_STORE, SESSIONS, Stand
from tests.bench.windows import percentile
from tests.support.load import Script
from tests.support.service import until

PER_S = 100
ACTORS = 1000
WARM_UP_S = 5
LASTS_S = 20
SEARCH_EACH = 10
CONNECTIONS = 16
SETTLE_DEADLINE_S = 60.0
PARTS = "Postgres, NATS, session, memory, distiller (quiet period 0) with"


@dataclass
class Told:
    """One append: what it states, and how long its ways took; infinite until known."""

    number: int
    actor: str
    statement: str
    request: bytes
    due: float = 0.0
    answered_s: float = float("inf")
    searchable_s: float = float("inf")


class Connections:
    """Kept connections, lent to one request each."""

    def __init__(self, opened: list[Connection]) -> None:
        self._free: asyncio.LifoQueue[Connection] = asyncio.LifoQueue()
        for connection in opened:
            self._free.put_nowait(connection)

    async def ask(self, request: bytes) -> bytes:
        connection = await self._free.get()
        try:
            return await connection.ask(request)
        finally:
            self._free.put_nowait(connection)


class Freshness:
    def __init__(self, stand: Stand, session: Connections, memory: Connections, per_s: int) -> None:
        self._stand = stand
        self._per_s = per_s
        self._session = session
        self._memory = memory
        self._waiting: defaultdict[str, deque[Told]] = defaultdict(deque)
        self._missed: list[str] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._script = Script(random.Random(1))
        self.late = 0

    async def run(self) -> list[Told]:
        """The appends after the warm-up, each with its times."""
        told = [self._told(number) for number in range((WARM_UP_S + LASTS_S) * self._per_s)]
        for actor in range(ACTORS):
            body = json.dumps({"actor_id": f"a{actor}"}).encode()
            request = request_bytes("POST", f"{SESSIONS}?session_id=s{actor}", self._stand.headers, body)
            await self._session.ask(request)
        async with self._listening():
            begun = asyncio.get_running_loop().time()
            for each in told:
                due = begun + each.number / self._per_s
                await asyncio.sleep(due - asyncio.get_running_loop().time())
                self._start(self._append(each, due))
            with suppress(TimeoutError):
                await until(lambda: not self._tasks and not any(self._waiting.values()), deadline_s=SETTLE_DEADLINE_S)
        late = [each for waiting in self._waiting.values() for each in waiting]
        for each in late:
            each.searchable_s = asyncio.get_running_loop().time() - each.due  # or more
        self.late = len(late)
        if not late:
            for each in told:
                await self._search(each)
        if self._missed:
            raise BadAnswer(f"{len(self._missed)} statements were not found, as: {self._missed[0]}")
        return told[WARM_UP_S * self._per_s :]

    def _told(self, number: int) -> Told:
        fact, answer = self._script.fact(), self._script.answer()
        actor = number % ACTORS
        body = f'{{"items":[{{"data":{fact.data}}},{{"data":{answer.data}}}]}}'.encode()
        headers = {**self._stand.headers, "Idempotency-Key": f"append {number}"}
        request = request_bytes("POST", f"{SESSIONS}/s{actor}/items:append", headers, body)
        assert fact.fact is not None
        return Told(number, f"a{actor}", fact.fact.statement, request)

    async def _append(self, told: Told, due: float) -> None:
        told.due = due
        self._waiting[told.actor].append(told)
        await self._session.ask(told.request)
        told.answered_s = asyncio.get_running_loop().time() - due

    @asynccontextmanager
    async def _listening(self) -> AsyncIterator[None]:
        client = await nats.connect(self._stand.nats_url)
        try:
            await client.subscribe(BatchesApplied.subject, cb=self._on_applied)
            await client.flush()
            yield
        finally:
            await client.close()

    async def _on_applied(self, message: Msg) -> None:
        """An actor's appends have one fact each and are distilled in order, so an applied change is its oldest."""
        now = asyncio.get_running_loop().time()
        applied = BatchesApplied.model_validate_json(message.data)
        for change in applied.outcomes:
            if change.outcome == "applied":
                told = self._waiting[applied.actor_id].popleft()
                told.searchable_s = now - told.due
                if told.number % SEARCH_EACH == 0:
                    self._start(self._search(told))

    async def _search(self, told: Told) -> None:
        body = json.dumps({"actor_id": told.actor, "query": told.statement, "page_size": 1}).encode()
        answer = await self._memory.ask(request_bytes("POST", f"{ENTRIES}:search", self._stand.headers, body))
        results = json.loads(answer)["results"]
        if not results or results[0]["managed_memory_entry"]["content"] != told.statement:
            self._missed.append(told.statement)

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (failed := task.exception()) is not None:
            self._missed.append(repr(failed))


async def stream_to_memory(stand: Stand) -> None:
    """A memory store, and a pipeline that fills it without a quiet period."""
    await stand.post("memory", "/memory-stores", {"display_name": MEMORY_STORE})
    policy = {"trigger": "CONTINUOUS", "quiet_period_s": 0}
    stores = {"session_store": SESSION_STORE, "memory_store": MEMORY_STORE}
    await stand.post("distiller", "/memory-pipelines", {**stores, "dreamer_policy": policy})


async def freshness_rows(
    stand: Stand, per_s: int = PER_S, *, model: str = "builtin.extractive", replicas: int = 1, latency_ms: float = 0
) -> list[Row]:
    """`latency_ms` is the model's own, which no figure counts."""
    await stream_to_memory(stand)
    async with (
        connections(stand.url("session"), CONNECTIONS) as session,
        connections(stand.url("memory"), CONNECTIONS) as memory,
    ):
        freshness = Freshness(stand, Connections(session), Connections(memory), per_s)
        told = await freshness.run()
    searchable = [each.searchable_s * 1e3 - latency_ms for each in told]
    answered = [each.answered_s * 1e3 for each in told]
    note = (
        f"{PARTS} {model}; {per_s} appends/s over {ACTORS} actors for {LASTS_S} s, from when an append is due until "
        "memory.batches.applied is heard; every tenth searched for at that moment and found; "
        f"append answered p50 {percentile(answered, 0.5):.1f}, p95 {percentile(answered, 0.95):.1f} ms"
    )
    if freshness.late:
        note += f"; {freshness.late} were not searchable after {SETTLE_DEADLINE_S:g} s more"
    p50, p95 = percentile(searchable, 0.5), percentile(searchable, 0.95)
    name = "append → searchable" if not latency_ms else f"append → searchable beyond a model's {latency_ms:g} ms"
    if (per_s, replicas) != (PER_S, 1):
        name += f", {per_s}/s, {replicas} distiller{'s' * (replicas > 1)}"
    target = at_most(250) if (per_s, replicas, latency_ms) == (PER_S, 1, 0) else None
    return [
        Row(f"{name}, p50", "ms", p50, None, None, note),
        Row(f"{name}, p95", "ms", p95, None, target, note),
    ]
