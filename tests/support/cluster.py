"""The real thing as processes: Postgres, NATS, the three services with any number of replicas, and who restarts them.

A killed replica comes back by itself after a short random pause, as under an orchestrator. Requests are routed as the
edge does, by `owner_of`, to each replica of the owner in turn.
"""

import asyncio
import atexit
import itertools
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import asyncpg
import httpx
import msgspec
import psutil

from libs.chassis.command import revisions
from libs.contracts.routes import BASE, owner_of
from services.standalone.embedded import EmbeddedNats, EmbeddedPostgres
from tests.support.ledger import Distilled, StoredEntry, StoredItem
from tests.support.servers import (
    TEST_SETTINGS,
    PostgresServer,
    copy_database,
    drop_database,
    free_port,
    server_directory,
)
from tests.support.service import Keys, database, key_directory, until

SERVICES = ("session", "distiller", "memory")
ROOT = Path(__file__).parents[2]
READY_DEADLINE_S = 90.0
STOP_DEADLINE_S = 20.0
REST_DEADLINE_S = 60.0
SESSION_STORE, MEMORY_STORE = "chats", "facts"
SESSIONS = f"{BASE}/session-stores/{SESSION_STORE}/sessions"
ENTRIES = f"{BASE}/memory-stores/{MEMORY_STORE}/entries"

# What a healthy system does within a minute or more, a test wants within seconds.
QUICK = {"SWEEP_INTERVAL_S": "2", "UNANSWERED_AFTER_S": "4", "LEASE_S": "4"}


class _Item(msgspec.Struct):
    position: int
    data: msgspec.Raw
    create_time: str


class _Items(msgspec.Struct):
    session_items: list[_Item]
    next_page_token: str | None = None


class Forker:
    """Starts processes through `tests.support.forker`, and tells how they ended."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.forker"],
            cwd=ROOT,
            env={"PATH": os.defpath},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def start(self, service: str, environment: Mapping[str, str], log: Path, kill_points: Path | None) -> int:
        points = None if kill_points is None else str(kill_points)
        return self._ask({"service": service, "environment": dict(environment), "log": str(log), "kill_points": points})

    def reap(self, pid: int) -> int:
        """The exit status of a process that ended; its pid is free from then on."""
        return self._ask({"reap": pid})

    def close(self) -> None:
        """Kills what is left."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(STOP_DEADLINE_S)
        self._process.stdout.close()

    def _ask(self, request: Mapping[str, Any]) -> int:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())


@cache
def _forker() -> Forker:
    """One for all clusters of a worker: it imports everything, which takes longer than a cluster's start."""
    forker = Forker()
    atexit.register(forker.close)
    return forker


@dataclass(eq=False)
class Replica:
    """One process of a service, on a port that stays the same over restarts."""

    service: str
    environment: Mapping[str, str]
    log: Path
    forker: Forker
    kill_points: Path | None = None
    port: int = field(default_factory=free_port)
    pid: int | None = None
    statuses: list[int] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def is_running(self) -> bool:
        """False from the moment when it ended; its exit status is then the last of `statuses`."""
        if self.pid is None:
            return False
        if psutil.Process(self.pid).status() != psutil.STATUS_ZOMBIE:
            return True
        self.statuses.append(self.forker.reap(self.pid))
        self.pid = None
        return False

    def start(self) -> None:
        environment = {**self.environment, "HTTP_PORT": str(self.port)}
        self.pid = self.forker.start(self.service, environment, self.log, self.kill_points)

    def send(self, number: signal.Signals) -> None:
        if self.is_running and self.pid is not None:
            os.kill(self.pid, number)

    async def ended(self, deadline_s: float) -> int:
        """The exit status, once it has ended."""
        await until(lambda: not self.is_running, deadline_s=deadline_s)
        return self.statuses[-1]


class Cluster:
    """Open it with `cluster(...)`. `kill` is SIGKILL, and something else starts the replica again."""

    def __init__(
        self,
        postgres: PostgresServer,
        nats: EmbeddedNats,
        keys: Keys,
        dsns: Mapping[str, str],
        replicas: Sequence[Replica],
        rng: random.Random,
    ) -> None:
        self.postgres = postgres
        self.nats = nats
        self.keys = keys
        self.dsns = dsns
        self.replicas = replicas
        self.kills: Counter[str] = Counter()
        self.pipeline = ""
        self.edges: dict[str, str] = {}  # the URL of a service whose requests go through a balancer instead
        self._rng = rng
        self._turns = {service: itertools.cycle(self.of(service)) for service in SERVICES if self.of(service)}
        self._halted: set[str] = set()
        self._dumps: set[str] = set()
        self._client = httpx.AsyncClient(
            headers=keys.header(), timeout=10, limits=httpx.Limits(max_connections=100, max_keepalive_connections=50)
        )

    def of(self, service: str) -> list[Replica]:
        return [replica for replica in self.replicas if replica.service == service]

    # Processes

    async def keep_running(self) -> None:
        """The orchestrator: a replica that ended is started again after a short random pause."""
        async with asyncio.TaskGroup() as tasks:
            for replica in self.replicas:
                tasks.create_task(self._keep(replica))

    async def _keep(self, replica: Replica) -> None:
        while True:
            if replica.service not in self._halted and not replica.is_running:
                await asyncio.sleep(self._rng.uniform(0.0, 0.4))
                if replica.service not in self._halted:
                    replica.start()
            await asyncio.sleep(0.02)

    def kill(self, service: str) -> None:
        """SIGKILL to a random running replica of a service, if there is one."""
        if running := [each for each in self.of(service) if each.is_running]:
            self._rng.choice(running).send(signal.SIGKILL)
            self.kills[service] += 1

    async def ready(self, *replicas: Replica, bus: bool = True) -> None:
        """Until these, or all, serve HTTP; with `bus`, until they also hear NATS."""
        wanted = ("ready",) if bus else ("ready", "degraded")
        await until(lambda: self._are_ready(replicas or self.replicas, wanted), deadline_s=READY_DEADLINE_S)

    async def is_ready(self, replica: Replica) -> bool:
        return await self._are_ready([replica], ("ready",))

    async def _are_ready(self, replicas: Collection[Replica], wanted: Collection[str]) -> bool:
        for replica in replicas:
            try:
                answer = await self._client.get(f"{replica.url}/readyz", timeout=5)
            except httpx.TransportError:
                return False
            if answer.json().get("status") not in wanted:
                return False
        return True

    async def halt(self, service: str) -> None:
        """SIGKILL to every replica of a service, and nobody starts it again before `resume`."""
        self._halted.add(service)
        for replica in self.of(service):
            replica.send(signal.SIGKILL)
            await replica.ended(STOP_DEADLINE_S)

    def terminate(self, service: str) -> None:
        """SIGTERM to every replica of a service, and nobody starts it again before `resume`."""
        self._halted.add(service)
        for replica in self.of(service):
            replica.send(signal.SIGTERM)

    def resume(self, service: str) -> None:
        self._halted.discard(service)

    async def dump(self, service: str) -> str:
        """A dump of a service's database, for `restore`; the service is away for as long as it takes."""
        await self.halt(service)
        name = urlsplit(self.dsns[service]).path.lstrip("/")
        dump = f"{name}_dump"
        await copy_database(self.postgres, name, self.postgres.dsn(dump))
        self._dumps.add(dump)
        self.resume(service)
        await self.ready()
        return dump

    async def restore(self, service: str, dump: str) -> None:
        """The service's database is as it was at the dump."""
        await self.halt(service)
        await copy_database(self.postgres, dump, self.dsns[service])
        self.resume(service)
        await self.ready()

    async def drop_dumps(self) -> None:
        for dump in self._dumps:
            await drop_database(self.postgres, self.postgres.dsn(dump))

    async def stop(self) -> list[int]:
        """SIGTERM to all; the exit statuses. A replica that does not end in time is killed, and that is a failure."""
        self._halted.update(SERVICES)
        running = [replica for replica in self.replicas if replica.is_running]
        for replica in running:
            replica.send(signal.SIGTERM)
        try:
            return await asyncio.gather(*(each.ended(STOP_DEADLINE_S) for each in running))
        finally:
            for replica in running:
                replica.send(signal.SIGKILL)
            await self._client.aclose()

    # HTTP

    async def request(self, method: str, path: str, **request: Any) -> httpx.Response:
        """One try at one replica; raises `httpx.TransportError` when the connection fails."""
        owner = owner_of(path)
        assert owner is not None, path
        url = self.edges.get(owner) or next(self._turns[owner]).url
        return await self._client.request(method, url + path, **request)

    async def call(self, method: str, path: str, **request: Any) -> bytes:
        """Repeats an idempotent request until it succeeds; anything but unavailability fails the test."""
        async with asyncio.timeout(READY_DEADLINE_S):
            while True:
                try:
                    answer = await self.request(method, path, **request)
                except httpx.TransportError:
                    await asyncio.sleep(0.1)
                    continue
                if answer.status_code == 200:
                    return answer.content
                assert answer.status_code in (500, 503), answer.text
                await asyncio.sleep(0.1)

    async def answer(self, method: str, path: str, **request: Any) -> Any:
        return msgspec.json.decode(await self.call(method, path, **request))

    async def set_up(self, *, quiet_period_s: float = 0.1, max_wait_s: float = 1.0) -> None:
        """The two stores and a continuous pipeline between them."""
        await self.make_session_store()
        await self.answer(
            "POST",
            f"{BASE}/memory-stores",
            json={"display_name": MEMORY_STORE},
            headers={"Idempotency-Key": "memory store"},
        )
        policy = {"trigger": "CONTINUOUS", "quiet_period_s": quiet_period_s, "max_wait_s": max_wait_s}
        made = await self.answer(
            "POST",
            f"{BASE}/memory-pipelines",
            json={"session_store": SESSION_STORE, "memory_store": MEMORY_STORE, "dreamer_policy": policy},
            headers={"Idempotency-Key": "pipeline"},
        )
        self.pipeline = made["name"]

    async def metric(self, replica: Replica, name: str) -> float:
        """The sum of a metric's series in one replica."""
        lines = (await self._client.get(f"{replica.url}/metrics")).text.splitlines()
        return sum(float(line.rpartition(" ")[2]) for line in lines if line.partition("{")[0].split(" ")[0] == name)

    async def make_session_store(self) -> None:
        await self.answer(
            "POST",
            f"{BASE}/session-stores",
            params={"session_store_id": SESSION_STORE},
            json={},
            headers={"Idempotency-Key": "session store"},
        )

    async def make_session(self, session: str, actor: str) -> None:
        await self.answer(
            "POST",
            SESSIONS,
            params={"session_id": session},
            json={"actor_id": actor},
            headers={"Idempotency-Key": session},
        )

    async def items(self, session: str) -> list[StoredItem]:
        """All items of a session as the service lists them, oldest first."""
        return [StoredItem(item.position, bytes(item.data).decode()) for item in await self._items(session)]

    async def _items(self, session: str) -> list[_Item]:
        found: list[_Item] = []
        token: dict[str, str] = {}
        while True:
            params = {"page_size": "100", "order_by": "create_time asc", **token}
            page = msgspec.json.decode(
                await self.call("GET", f"{SESSIONS}/{session}/items", params=params), type=_Items
            )
            found += page.session_items
            if page.next_page_token is None:
                return found
            token = {"page_token": page.next_page_token}

    async def entries(self, actor: str) -> list[StoredEntry]:
        """All current entries of an actor as the service lists them."""
        return [
            StoredEntry(
                path=entry["path"],
                statement=entry["content"],
                version=entry["version"],
                evidence=tuple((proof["session_id"], tuple(proof["positions"])) for proof in entry["evidence"]),
            )
            for entry in await self._entries(actor)
        ]

    async def _entries(self, actor: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        token: dict[str, str] = {}
        while True:
            params = {"actor_id": actor, "page_size": "100", **token}
            page = await self.answer("GET", ENTRIES, params=params)
            found += page["managed_memory_entries"]
            if "next_page_token" not in page:
                return found
            token = {"page_token": page["next_page_token"]}

    # What no client sees: read from the databases, never from a service's counters

    async def rows(self, service: str, sql: str, *args: Any) -> list[asyncpg.Record]:
        connection = await asyncpg.connect(self.dsns[service], timeout=10)
        try:
            return await connection.fetch(sql, *args, timeout=30)
        finally:
            await connection.close()

    async def count(self, service: str, table: str, where: str = "true") -> int:
        return int((await self.rows(service, f"select count(*) from {table} where {where}"))[0][0])

    async def left(self) -> dict[str, int]:
        """What must be empty when everything has come to rest."""
        left = {f"{service}: outbox": await self.count(service, "outbox") for service in SERVICES}
        for service in SERVICES:
            left[f"{service}: parked messages"] = await self.count(service, "parked_messages")
        left["distiller: unsettled batches"] = await self.count("distiller", "batches", "state <> 'settled'")
        left["distiller: lanes at work"] = await self.count(
            "distiller", "lanes", "due_at is not null or pending_batch is not null or parked_at is not null"
        )
        behind = "known_position > distilled_position or again <> '{}'"
        left["distiller: sessions behind"] = await self.count("distiller", "lane_sessions", behind)
        appended = {
            row[0]: row[1] for row in await self.rows("session", "select session_uid, last_position from sessions")
        }
        searchable = {row[0]: row[1] for row in await self.rows("memory", "select session_uid, position from progress")}
        left["memory: items not searchable"] = sum(
            max(0, position - searchable.get(session, 0)) for session, position in appended.items()
        )
        return left

    async def at_rest(self, deadline_s: float = REST_DEADLINE_S) -> bool:
        """Waits until everything that was appended is searchable and nothing is on its way; False when it stays so.

        Parked messages are at rest, too.
        """

        async def is_at_rest() -> bool:
            left = await self.left()
            return not any(count for what, count in left.items() if not what.endswith("parked messages"))

        try:
            await until(is_at_rest, deadline_s=deadline_s)
        except TimeoutError:
            return False
        return True

    async def distilled(self) -> list[Distilled]:
        """What the settled batches cover."""
        rows = await self.rows(
            "distiller",
            "select r->>'session_id' as session, (r->>'after')::bigint as after, (r->>'through')::bigint as through"
            " from batches, jsonb_array_elements(ranges) r where state = 'settled'",
        )
        return [Distilled(row["session"], row["after"], row["through"]) for row in rows]

    async def freshness_s(self, sessions: Collection[str], actors: Collection[str]) -> list[float]:
        """From each fact's append to its being searchable, by the times that the two services show."""
        appended = {
            (session, item.position): item.create_time for session in sessions for item in await self._items(session)
        }
        pairs = [
            (appended[proof["session_id"], position], entry["create_time"])
            for actor in actors
            for entry in await self._entries(actor)
            for proof in entry["evidence"]
            for position in proof["positions"]
        ]
        return sorted((_instant(found) - _instant(said)) for said, found in pairs)

    def tail(self, lines: int = 40) -> str:
        """The last lines of each replica's log."""
        parts = []
        for replica in self.replicas:
            text = replica.log.read_text(errors="replace") if replica.log.exists() else ""
            parts.append(f"--- {replica.log.name}\n" + "\n".join(text.splitlines()[-lines:]))
        return "\n".join(parts)


def _instant(time: str) -> float:
    return datetime.fromisoformat(time).timestamp()


@asynccontextmanager
async def own_postgres() -> AsyncIterator[EmbeddedPostgres]:
    """A Postgres that a test may kill."""
    with server_directory() as directory:
        server = EmbeddedPostgres(directory / "postgres", fsync=False, settings=TEST_SETTINGS)
        await server.start()
        try:
            yield server
        finally:
            await server.stop(immediate=True)


@asynccontextmanager
async def own_nats() -> AsyncIterator[EmbeddedNats]:
    """A NATS that a test may stop, kill and empty."""
    with server_directory() as directory:
        server = EmbeddedNats(directory / "nats", port=free_port())
        await server.start()
        try:
            yield server
        finally:
            await server.stop()


async def lose_all(nats: EmbeddedNats) -> None:
    """NATS dies and its directory is gone; an empty one takes its place."""
    nats.kill()
    await asyncio.to_thread(shutil.rmtree, nats.data_dir)
    await nats.start()


@asynccontextmanager
async def cluster(
    postgres: PostgresServer,
    *,
    replicas: Mapping[str, int] | None = None,
    settings: Mapping[str, Mapping[str, str]] | None = None,
    seed: int = 0,
    kill_points: Path | None = None,
) -> AsyncIterator[Cluster]:
    """Everything running and ready, with the two stores and the pipeline. `settings` are variables by service."""
    async with AsyncExitStack() as stack:
        keys = stack.enter_context(key_directory())
        nats = await stack.enter_async_context(own_nats())
        logs = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="memstream-logs-")))
        dsns = {
            service: await stack.enter_async_context(database(postgres, service, revisions(service)))
            for service in SERVICES
        }
        processes = [
            Replica(
                service,
                _environment(service, dsns[service], nats, keys, settings),
                logs / f"{service}-{number}.log",
                _forker(),
                kill_points,
            )
            for service in SERVICES
            for number in range((replicas or {}).get(service, 1))
        ]
        running = Cluster(postgres, nats, keys, dsns, processes, random.Random(seed))
        keeper = asyncio.create_task(running.keep_running())
        try:
            await running.ready()
            await running.set_up()
            yield running
        except BaseException:
            print(running.tail())
            raise
        finally:
            keeper.cancel()
            await asyncio.gather(keeper, return_exceptions=True)
            await running.stop()
            await running.drop_dumps()


def _environment(
    service: str, dsn: str, nats: EmbeddedNats, keys: Keys, settings: Mapping[str, Mapping[str, str]] | None
) -> dict[str, str]:
    own = QUICK if service == "distiller" else {}
    return {
        "PATH": os.defpath,
        "DATABASE_URL": dsn,
        "NATS_URL": nats.url,
        "HTTP_HOST": "127.0.0.1",
        "KEY_DIR": str(keys.directory),
        "HOUSEKEEPING_INTERVAL_S": "5",
        **own,
        **(settings or {}).get(service, {}),
    }
