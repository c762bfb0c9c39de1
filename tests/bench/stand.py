"""What is measured: embedded servers as in standalone, with fsync, and each service a process of its own."""

import random
import shutil
import tempfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import asyncpg

from services.standalone.databases import make_databases, migrate
from services.standalone.embedded import EmbeddedNats, EmbeddedPostgres
from tests.support.cluster import ROOT, Cluster, Replica
from tests.support.service import Keys, key_directory

BUILD = ROOT / "build"  # on the disk of `.memstream`: a RAM disk would make fsync free
LIMIT_DATABASE = "bench_limit"


@dataclass(frozen=True)
class Stand:
    cluster: Cluster
    postgres: EmbeddedPostgres
    keys: Keys
    limit_dsn: str
    nats_url: str

    @property
    def headers(self) -> dict[str, str]:
        return self.keys.header()

    def url(self, service: str) -> str:
        return self.cluster.of(service)[0].url

    def pid(self, service: str) -> int:
        process = self.cluster.of(service)[0].process
        assert process is not None
        return process.pid


@asynccontextmanager
async def stand(*services: str) -> AsyncIterator[Stand]:
    """Servers with fresh databases, and these services ready; everything is stopped and removed at the end."""
    async with AsyncExitStack() as stack:
        BUILD.mkdir(exist_ok=True)
        directory = Path(tempfile.mkdtemp(prefix="bench-", dir=BUILD))
        stack.callback(shutil.rmtree, directory, ignore_errors=True)
        directory.chmod(0o755)  # Postgres may run as another account
        postgres = EmbeddedPostgres(directory / "postgres")
        await postgres.start()
        stack.push_async_callback(postgres.stop, immediate=True)
        nats = EmbeddedNats(directory / "nats")
        await nats.start()
        stack.push_async_callback(nats.stop)
        keys = stack.enter_context(key_directory())
        dsns = await make_databases(postgres)
        await migrate(dsns)
        await _create_database(postgres, LIMIT_DATABASE)
        replicas = [
            Replica(service, _environment(dsns[service], nats, keys), directory / f"{service}.log")
            for service in services
        ]
        cluster = Cluster(postgres, nats, keys, dsns, replicas, random.Random(0))
        stack.push_async_callback(cluster.stop)
        for replica in replicas:
            replica.start()
        try:
            await cluster.ready()
            yield Stand(cluster, postgres, keys, postgres.dsn(LIMIT_DATABASE), nats.url)
        except Exception:
            print(cluster.tail(20))
            raise


def _environment(dsn: str, nats: EmbeddedNats, keys: Keys) -> dict[str, str]:
    return {
        "DATABASE_URL": dsn,
        "NATS_URL": nats.url,
        "HTTP_HOST": "127.0.0.1",
        "KEY_DIR": str(keys.directory),
        "LOG_LEVEL": "warning",
    }


async def _create_database(postgres: EmbeddedPostgres, name: str) -> None:
    connection = await asyncpg.connect(postgres.dsn(), timeout=30)
    try:
        await connection.execute(f'create database "{name}"')
    finally:
        await connection.close()
