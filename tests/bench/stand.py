"""What is measured: embedded servers as in standalone, with fsync, and each service a process of its own."""

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import asyncpg
import httpx

from libs.contracts.routes import BASE
from services.standalone.databases import make_databases, migrate
from services.standalone.embedded import EmbeddedNats, EmbeddedPostgres, free_port
from tests.support.service import WORKSPACE, Keys, key_directory, until

ROOT = Path(__file__).parents[2]
BUILD = ROOT / "build"  # on the disk of `.memstream`: a RAM disk would make fsync free
SERVICES = ("session", "distiller", "memory")
SESSION_STORE, MEMORY_STORE = "chats", "facts"
SESSIONS = f"{BASE}/session-stores/{SESSION_STORE}/sessions"
ENTRIES = f"{BASE}/memory-stores/{MEMORY_STORE}/entries"
LIMIT_DATABASE, PEERS_DATABASE = "bench_limit", "bench_peers"
READY_DEADLINE_S = 60.0
STOP_DEADLINE_S = 15.0


@dataclass(frozen=True)
class Service:
    """A running process."""

    name: str
    url: str
    process: subprocess.Popen[bytes]
    log: Path

    @classmethod
    def start(cls, name: str, environment: Mapping[str, str], log: Path) -> "Service":
        port = free_port()
        with log.open("wb") as output:
            process = subprocess.Popen(
                [sys.executable, "-m", f"services.{name}"],
                cwd=ROOT,
                env={**environment, "HTTP_PORT": str(port), "PATH": os.defpath},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,  # Ctrl-C reaches it only through us
            )
        return cls(name, f"http://127.0.0.1:{port}", process, log)

    async def is_ready(self) -> bool:
        """Serves, and hears NATS; raises when it has ended."""
        if self.process.poll() is not None:
            raise RuntimeError(f"{self.name} ended with status {self.process.returncode}")
        try:
            async with httpx.AsyncClient(timeout=5) as client:
                answer = await client.get(f"{self.url}/readyz")
        except httpx.TransportError:
            return False
        return bool(answer.json().get("status") == "ready")

    async def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        try:
            await asyncio.to_thread(self.process.wait, STOP_DEADLINE_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            await asyncio.to_thread(self.process.wait, STOP_DEADLINE_S)


@dataclass(frozen=True)
class Stand:
    services: Mapping[str, Service]
    headers: dict[str, str]
    neighbour: dict[str, str]  # of another workspace
    postgres_dsn: str
    limit_dsn: str
    peers_dsn: str
    nats_url: str
    dsns: Mapping[str, str]

    def url(self, service: str) -> str:
        return self.services[service].url

    async def post(self, service: str, path: str, body: Any) -> None:
        async with httpx.AsyncClient(timeout=30, headers=self.headers) as client:
            answer = await client.post(f"{self.url(service)}{BASE}{path}", json=body)
        answer.raise_for_status()

    async def make_database(self, name: str) -> str:
        """The dsn of a fresh one, on the same server."""
        await _create_database(self.postgres_dsn, name)
        return self.limit_dsn.replace(LIMIT_DATABASE, name)

    async def unpublished(self, service: str) -> int:
        """Rows in its outbox."""
        connection = await asyncpg.connect(self.dsns[service], timeout=30)
        try:
            return int(await connection.fetchval("select count(*) from outbox"))
        finally:
            await connection.close()


@asynccontextmanager
async def stand(
    *services: str, variables: Mapping[str, str] | None = None, distillers: int = 1
) -> AsyncIterator[Stand]:
    """Servers with fresh databases, and these services ready; everything is stopped and removed at the end.

    `variables` are settings beyond the usual; of `distillers` beyond the first nobody asks anything.
    """
    async with AsyncExitStack() as stack:
        directory = stack.enter_context(_directory())
        keys = stack.enter_context(key_directory())
        postgres = EmbeddedPostgres(directory / "postgres")
        await postgres.start()
        stack.push_async_callback(postgres.stop, immediate=True)
        nats = EmbeddedNats(directory / "nats")
        await nats.start()
        stack.push_async_callback(nats.stop)
        dsns = await make_databases(postgres)
        await migrate(dsns)
        for database in (LIMIT_DATABASE, PEERS_DATABASE):
            await _create_database(postgres.dsn(), database)
        running: dict[str, Service] = {}
        more = [f"distiller-{number}" for number in range(2, distillers + 1)]
        for name in (*services, *more):
            kind, log = name.partition("-")[0], directory / f"{name}.log"
            environment = {**_environment(dsns[kind], nats, keys), **(variables or {})}
            running[name] = Service.start(kind, environment, log)
            stack.push_async_callback(running[name].stop)
        try:
            for service in running.values():
                await until(service.is_ready, deadline_s=READY_DEADLINE_S)
            made = Stand(
                running,
                keys.header(),
                keys.header(workspace=WORKSPACE + 1),
                postgres.dsn(),
                postgres.dsn(LIMIT_DATABASE),
                postgres.dsn(PEERS_DATABASE),
                nats.url,
                dsns,
            )
            if "session" in services:
                await made.post("session", f"/session-stores?session_store_id={SESSION_STORE}", {})
            yield made
        except Exception:
            for service in running.values():
                print(f"--- {service.name}\n{_tail(service.log)}", file=sys.stderr)
            raise


@contextmanager
def _directory() -> Iterator[Path]:
    BUILD.mkdir(exist_ok=True)
    directory = Path(tempfile.mkdtemp(prefix="bench-", dir=BUILD))
    directory.chmod(0o755)  # Postgres may run as another account
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _environment(dsn: str, nats: EmbeddedNats, keys: Keys) -> dict[str, str]:
    return {
        "DATABASE_URL": dsn,
        "NATS_URL": nats.url,
        "HTTP_HOST": "127.0.0.1",
        "KEY_DIR": str(keys.directory),
        "LOG_LEVEL": "warning",
    }


async def _create_database(dsn: str, name: str) -> None:
    connection = await asyncpg.connect(dsn, timeout=30)
    try:
        await connection.execute(f'create database "{name}"')
    finally:
        await connection.close()


def _tail(log: Path) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-20:])
