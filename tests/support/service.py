"""A service running in the test's own process: a database of its own, keys, tokens, a client."""

import asyncio
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import uvicorn
from fastapi import FastAPI

from libs.chassis import migrations
from libs.chassis.app import Chassis
from libs.chassis.keys import add_key, issue_token
from libs.chassis.wire import bounded_http
from tests.support.servers import PostgresServer, create_database, drop_database, free_port, template_database

WORKSPACE = 1
USER = "ana@example.com"
DEADLINE_S = 20.0


@dataclass(frozen=True)
class Keys:
    """A directory of signing keys, with tokens for anybody."""

    directory: Path

    def token(
        self,
        user: str = USER,
        *,
        workspace: int = WORKSPACE,
        admin: bool = False,
        service_principal: bool = False,
        ttl_s: int = 3600,
    ) -> str:
        return issue_token(
            self.directory,
            principal=user,
            principal_type="SERVICE_PRINCIPAL" if service_principal else "USER",
            workspace_id=workspace,
            admin=admin,
            ttl_s=ttl_s,
        )

    def header(self, user: str = USER, **claims: Any) -> dict[str, str]:
        """The Authorization header of a token."""
        return {"Authorization": f"Bearer {self.token(user, **claims)}"}


@contextmanager
def key_directory() -> Iterator[Keys]:
    with tempfile.TemporaryDirectory(prefix="memstream-keys-") as directory:
        add_key(Path(directory))
        yield Keys(Path(directory))


@asynccontextmanager
async def database(postgres: PostgresServer, service: str, revisions: Path) -> AsyncIterator[str]:
    """The dsn of a fresh database with the service's schema."""

    async def migrate(dsn: str) -> None:
        await asyncio.to_thread(migrations.upgrade, dsn, revisions)

    dsn = await create_database(postgres, await template_database(postgres, service, migrate))
    try:
        yield dsn
    finally:
        await drop_database(postgres, dsn)


def chassis_of(app: FastAPI) -> Chassis:
    chassis: Chassis = app.state.chassis
    return chassis


@asynccontextmanager
async def running(app: FastAPI, keys: Keys, *, bus: bool = False) -> AsyncIterator[httpx.AsyncClient]:
    """Runs everything of an app; yields a client that calls it in-process as `USER`. With `bus`, once NATS is up."""
    async with app.router.lifespan_context(app):
        await chassis_of(app).verifier.load()
        if bus:
            await until(lambda: chassis_of(app).bus.connected)
        async with httpx.AsyncClient(
            transport=httpx.ASGITransport(app), base_url="http://service", headers=keys.header(), timeout=DEADLINE_S
        ) as client:
            yield client


@asynccontextmanager
async def served(app: FastAPI, *, keep_alive_s: int = 5) -> AsyncIterator[str]:
    """The base URL of an app behind a real uvicorn on a free port, ready. `keep_alive_s`: for who asks nothing more."""
    port = free_port()
    config = uvicorn.Config(
        app,
        http=bounded_http(chassis_of(app).settings.limits),
        host="127.0.0.1",
        port=port,
        log_config=None,
        access_log=False,
        lifespan="on",
        timeout_keep_alive=keep_alive_s,
    )
    server = uvicorn.Server(config)
    server.capture_signals = nullcontext  # type: ignore[assignment]  # pytest keeps its own handlers
    serving = asyncio.create_task(server.serve())
    try:
        await until(lambda: server.started or serving.done())
        await chassis_of(app).verifier.load()
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        await serving


async def until(condition: Any, *, deadline_s: float = DEADLINE_S) -> None:
    """Waits until `condition()`, which may be a coroutine function, is true."""
    async with asyncio.timeout(deadline_s):
        while True:
            result = condition()
            if asyncio.iscoroutine(result):
                result = await result
            if result:
                return
            await asyncio.sleep(0.02)
