"""A Postgres and a NATS for each worker of the suite, and a database of its own for each test.

`TEST_POSTGRES_URL` and `TEST_NATS_URL` name servers from elsewhere instead.
"""

import os
import shutil
import signal
import tempfile
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit

import asyncpg
import psutil

from services.standalone.embedded import EmbeddedNats, EmbeddedPostgres, free_port
from services.standalone.embedded.child import Child

__all__ = [
    "NatsServer",
    "PostgresServer",
    "copy_database",
    "create_database",
    "drop_database",
    "free_port",
    "nats_server",
    "postgres_server",
    "server_directory",
    "template_database",
]

DIRECTORY_PREFIX = f"memstream-tests-{os.getuid()}-"
RAM_DISK = Path("/dev/shm")  # a copy of a database is 300 files: 12 ms here, up to 450 ms on a slow disk
RAM_DISK_NEEDS_BYTES = 2 * 1024**3
TEST_SETTINGS = {"max_wal_size": "128MB", "min_wal_size": "32MB"}


class PostgresServer(Protocol):
    def dsn(self, database: str = "postgres") -> str: ...


class NatsServer(Protocol):
    @property
    def url(self) -> str: ...


@dataclass(frozen=True)
class ExternalPostgres:
    url: str

    def dsn(self, database: str = "postgres") -> str:
        return urlsplit(self.url)._replace(path=f"/{database}").geturl()


@dataclass(frozen=True)
class ExternalNats:
    url: str


@contextmanager
def server_directory() -> Iterator[Path]:
    """A directory that the account of Postgres may enter, unlike pytest's, with the remains of killed runs removed."""
    place = _place()
    for remains in place.glob(f"{DIRECTORY_PREFIX}*"):
        if not psutil.pid_exists(int(remains.name.removeprefix(DIRECTORY_PREFIX).partition("-")[0])):
            _remove(remains)
    directory = Path(tempfile.mkdtemp(prefix=f"{DIRECTORY_PREFIX}{os.getpid()}-", dir=place)).resolve()
    directory.chmod(0o755)
    try:
        yield directory
    finally:
        _remove(directory)


@asynccontextmanager
async def postgres_server() -> AsyncIterator[PostgresServer]:
    if url := os.environ.get("TEST_POSTGRES_URL"):
        yield ExternalPostgres(url)
        return
    with server_directory() as directory:
        server = EmbeddedPostgres(directory / "postgres", fsync=False, settings=TEST_SETTINGS)
        await server.start()
        try:
            yield server
        finally:
            await server.stop(immediate=True)


@asynccontextmanager
async def nats_server() -> AsyncIterator[NatsServer]:
    if url := os.environ.get("TEST_NATS_URL"):
        yield ExternalNats(url)
        return
    with server_directory() as directory:
        server = EmbeddedNats(directory / "nats")
        await server.start()
        try:
            yield server
        finally:
            await server.stop()


async def template_database(postgres: PostgresServer, name: str, migrate: Callable[[str], Awaitable[None]]) -> str:
    """The name of a migrated database that nobody connects to, made once by each worker."""
    template = f"template_{name}_{os.getpid()}"
    if await _exists(postgres, template):
        return template
    draft = f"{template}_draft"
    await _execute(postgres, f'drop database if exists "{draft}" with (force)', f'create database "{draft}"')
    await migrate(postgres.dsn(draft))
    await _execute(postgres, f'alter database "{draft}" rename to "{template}"')
    return template


async def create_database(postgres: PostgresServer, template: str) -> str:
    """The dsn of a fresh copy."""
    database = f"test_{uuid.uuid4().hex}"
    await _execute(postgres, f'create database "{database}" template "{template}" strategy file_copy')
    return postgres.dsn(database)


async def copy_database(postgres: PostgresServer, source: str, dsn: str) -> None:
    """Puts a copy of the database `source`, which nobody uses, in the place of the one that the dsn names."""
    name = urlsplit(dsn).path.lstrip("/")
    await _execute(
        postgres,
        f'drop database if exists "{name}" with (force)',
        f'create database "{name}" template "{source}" strategy file_copy',
    )


async def drop_database(postgres: PostgresServer, dsn: str) -> None:
    await _execute(postgres, f'drop database "{urlsplit(dsn).path.lstrip("/")}" with (force)')


async def _exists(postgres: PostgresServer, database: str) -> bool:
    connection = await asyncpg.connect(postgres.dsn(), timeout=10)
    try:
        return bool(await connection.fetchval("select count(*) from pg_database where datname = $1", database))
    finally:
        await connection.close()


async def _execute(postgres: PostgresServer, *statements: str) -> None:
    connection = await asyncpg.connect(postgres.dsn(), timeout=10)
    try:
        for statement in statements:
            await connection.execute(statement, timeout=60)
    finally:
        await connection.close()


def _place() -> Path:
    is_roomy = os.access(RAM_DISK, os.W_OK) and shutil.disk_usage(RAM_DISK).free > RAM_DISK_NEEDS_BYTES
    return RAM_DISK if is_roomy else Path(tempfile.gettempdir())


def _remove(directory: Path) -> None:
    for pid_file in directory.glob("*.pid"):
        remains = Child(pid_file.with_suffix(""), stop_signal=signal.SIGINT)
        remains.claim()
        remains.kill()
    shutil.rmtree(directory, ignore_errors=True)
