"""What a search costs over HTTP as an actor's memory grows, beside the peers' vector search; and what writes cost.

Entries come as batches of the distiller's, over NATS request and reply: that is the row of the apply rate.
"""

import asyncio
import itertools
import json
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from uuid import UUID

import asyncpg
import httpx
import nats

from libs.contracts.events import Change, Evidence, MemoriesDistilled, Range
from libs.contracts.ids import uuid7
from libs.contracts.requests import ApplyBatch
from libs.contracts.routes import BASE
from tests.bench import peer
from tests.bench.client import Connection, connections, request_bytes
from tests.bench.peers.corpus import ACTORS, CLIENTS, ENTRIES, HITS, QUERIES, actor, queries, statements
from tests.bench.report import Row, at_least
from tests.bench.stand import ENTRIES as ENTRIES_PATH
from tests.bench.stand import MEMORY_STORE, Stand
from tests.bench.windows import FEWER, Step, Window, side_by_side
from tests.support.service import WORKSPACE

SIZES = (10, 1_000, 10_000)
FULL_SIZE = 100_000
CHANGES = 100
APPLY_DEADLINE_S = 30.0
PEERS = {"mem0": "mem0_search", "AsyncPostgresStore": "store_search"}
PARTS = "Postgres, memory (words alone)"


class Filling:
    """Puts entries into the store as a distiller would, and knows how long that took."""

    def __init__(self, stand: Stand, store_uid: UUID) -> None:
        self._stand = stand
        self._store_uid = store_uid
        self.entries = 0
        self.seconds = 0.0

    async def fill(self, who: str, texts: Sequence[str]) -> None:
        client = await nats.connect(self._stand.nats_url)
        loop = asyncio.get_running_loop()
        try:
            begun = loop.time()
            for start in range(0, len(texts), CHANGES):
                request = ApplyBatch(batch=self._batch(who, start, texts[start : start + CHANGES]))
                payload = request.model_dump_json().encode()
                answer = await client.request(ApplyBatch.subject, payload, timeout=APPLY_DEADLINE_S)
                outcomes = [each["outcome"] for each in json.loads(answer.data)["outcomes"]]
                if set(outcomes) != {"applied"}:
                    raise RuntimeError(f"a batch was not applied: {outcomes[:3]}")
            self.seconds += loop.time() - begun
            self.entries += len(texts)
        finally:
            await client.close()

    def _batch(self, who: str, first: int, texts: Sequence[str]) -> MemoriesDistilled:
        session = uuid7()
        changes = [
            Change(
                op="set",
                path=f"/facts/{number}.md",
                statement=text,
                description=text.partition(" ")[0],
                kind="item",
                said_by="user",
                said_at=datetime(2026, 1, 1, tzinfo=UTC),
                evidence=[Evidence(session_uid=session, positions=[number + 1])],
            )
            for number, text in enumerate(texts, first)
        ]
        return MemoriesDistilled(
            workspace_id=WORKSPACE,
            batch_id=uuid7(),
            store_uid=self._store_uid,
            actor_id=who,
            pipeline_uid=UUID(int=1),
            session_store_uid=UUID(int=2),
            session_store_id="chats",
            source_epoch=0,
            memory_epoch=0,
            oldest_appended_at=None,
            ranges=[Range(session_uid=session, session_id="s", after=0, through=first + len(texts))],
            changes=changes,
        )


async def search_rows(stand: Stand, window_s: float, *, full: bool) -> list[Row]:
    await stand.post("memory", "/memory-stores", {"display_name": MEMORY_STORE})
    filling = Filling(stand, await store_uid(stand))
    rows = []
    for size in (*SIZES, *((FULL_SIZE,) if full else ())):
        await filling.fill(f"n{size}", statements(size))
        async with connections(stand.url("memory"), 1) as [one]:
            steps = {"ours": [searching(stand, one, itertools.repeat(f"n{size}"))]}
            found = (await side_by_side(steps, window_s, windows=FEWER))["ours"]
        note = f"{PARTS}; 1 client, {HITS} hits, queries of 4 words, {found.per_s:.0f}/s"
        for name, figure in (("p50", found.p50_ms), ("p95", found.p95_ms)):
            rows.append(Row(f"search, {size:,} entries of one actor, {name}", "ms", figure, None, None, note))
    rate = filling.entries / filling.seconds
    note = f"{CHANGES} changes a batch, one batch after the other, over NATS request and reply"
    rows.append(Row("batches applied", "changes/s", rate, None, None, note))
    rows.append(await _put_row(stand, window_s))
    return rows + await _peer_rows(stand, filling, window_s)


async def _peer_rows(stand: Stand, filling: Filling, window_s: float) -> list[Row]:
    texts = statements(ENTRIES)
    for number in range(ACTORS):
        await filling.fill(actor(number), texts[number::ACTORS])
    await _make_vector_extension(stand.peers_dsn)
    windows, theirs = [await _searched(stand, window_s)], {}
    for name, program in PEERS.items():
        theirs[name] = await peer.measured(program, stand.peers_dsn, str(window_s * 3))
        windows.append(await _searched(stand, window_s))
    ours = Window.middle(windows)
    rows = []
    for name, found in theirs.items():
        note = (
            f"{PARTS}; {ENTRIES:,} entries over {ACTORS} actors, {CLIENTS} clients, ours over HTTP, before, between and"
            f" after the peers, p50 {ours.p50_ms:.1f} ms; {name} in process, with vectors that cost nothing to make,"
            f" p50 {found['p50_ms']:.1f} ms"
        )
        rows.append(Row(f"search beside {name}", "/s", ours.per_s, found["per_s"], at_least(3), note))
    return rows


async def _searched(stand: Stand, window_s: float) -> Window:
    async with connections(stand.url("memory"), CLIENTS) as opened:
        steps = [
            searching(stand, each, (actor(turn) for turn in itertools.count(number, CLIENTS)))
            for number, each in enumerate(opened)
        ]
        return (await side_by_side({"ours": steps}, window_s, windows=FEWER))["ours"]


async def _put_row(stand: Stand, window_s: float) -> Row:
    texts = itertools.cycle(statements(QUERIES, seed=3))

    def client(number: int, connection: Connection) -> Step:
        paths = itertools.count()

        async def step() -> None:
            body = {"actor_id": f"p{number}", "path": f"/{next(paths)}.md", "content": next(texts)}
            payload = json.dumps(body).encode()
            await connection.ask(request_bytes("POST", f"{ENTRIES_PATH}:put", stand.headers, payload))

        return step

    async with connections(stand.url("memory"), CLIENTS) as opened:
        clients = [client(number, each) for number, each in enumerate(opened)]
        found = (await side_by_side({"ours": clients}, window_s, windows=FEWER))["ours"]
    note = f"{PARTS}; {CLIENTS} clients, an actor each, p50 {found.p50_ms:.1f} ms, p95 {found.p95_ms:.1f} ms"
    return Row("entries put", "/s", found.per_s, None, None, note)


def searching(stand: Stand, connection: Connection, actors: Iterator[str]) -> Step:
    asked = itertools.cycle(queries())

    async def step() -> None:
        body = json.dumps({"actor_id": next(actors), "query": next(asked), "page_size": HITS}).encode()
        await connection.ask(request_bytes("POST", f"{ENTRIES_PATH}:search", stand.headers, body))

    return step


async def store_uid(stand: Stand) -> UUID:
    async with httpx.AsyncClient(timeout=30, headers=stand.headers) as client:
        answer = await client.get(f"{stand.url('memory')}{BASE}/memory-stores/{MEMORY_STORE}")
    return UUID(answer.json()["storage_backend"]["backend_id"])


async def _make_vector_extension(dsn: str) -> None:
    connection = await asyncpg.connect(dsn, timeout=30)
    try:
        await connection.execute("create extension if not exists vector")
    finally:
        await connection.close()
