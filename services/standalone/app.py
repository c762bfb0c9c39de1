"""The whole of Memstream in one process: embedded Postgres and NATS, the three services, one port."""

import asyncio
import atexit
import os
import socket
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import uvicorn
from fastapi import FastAPI

from libs.chassis.app import Chassis
from libs.chassis.command import UNUSABLE, about_file
from libs.chassis.keys import PRIVATE, add_key, issue_token
from libs.chassis.metrics import Metrics
from libs.chassis.wire import bounded_http
from libs.contracts.limits import Limits
from services.standalone.databases import make_databases, migrate
from services.standalone.edge import Edge
from services.standalone.embedded import EmbeddedError, EmbeddedNats, EmbeddedPostgres
from services.standalone.embedded.errors import plain_errors
from services.standalone.settings import SERVICES, Settings, UsageError

HOST = "127.0.0.1"
WATCH_INTERVAL_S = 1.0
DRAIN_DEADLINE_S = 10
DRAIN_STEP_S = 0.1
UPLOAD_GRACE_S = 1.0
CONNECT_DEADLINE_S = 20.0
POLL_S = 0.02


@dataclass(frozen=True)
class Standalone:
    """A running instance."""

    settings: Settings
    url: str
    tasks: tuple["asyncio.Future[None]", ...]

    async def ended(self) -> None:
        """Returns only when it cannot go on; raises why."""
        done, _ = await asyncio.wait(self.tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()

    def token(self, principal: str, *, ttl_s: int, admin: bool = False) -> str:
        """A token of a user in workspace 1; `FileNotFoundError` when the keys are another issuer's."""
        return issue_token(
            self.settings.key_dir,
            principal=principal,
            principal_type="USER",
            workspace_id=1,
            admin=admin,
            ttl_s=ttl_s,
        )


@asynccontextmanager
async def running(settings: Settings) -> AsyncIterator[Standalone]:
    """Serves inside the block; leaving it finishes what is under way and stops the servers. Raises `EmbeddedError`."""
    async with AsyncExitStack() as stack:
        listener = stack.enter_context(_listener(settings.port))
        with plain_errors(settings.data_dir):
            settings.data_dir.mkdir(parents=True, exist_ok=True)
        urls, nats_url, children = await _servers(settings, stack)
        migration = asyncio.ensure_future(migrate(urls))
        stack.callback(migration.cancel)
        with plain_errors(settings.key_dir):
            if not any(settings.key_dir.glob(f"*{PRIVATE}")):
                add_key(settings.key_dir)
        metrics = Metrics()
        apps = {name: _build(settings, name, urls[name], nats_url, metrics) for name in SERVICES}
        await migration
        for app in apps.values():
            await stack.enter_async_context(app.router.lifespan_context(app))
        limits = apps["session"].state.chassis.settings.limits
        server = _Server(_http(Edge(apps, metrics.registry), limits))
        serving = asyncio.ensure_future(server.serve([listener]))
        stack.push_async_callback(_drain, server, serving, [app.state.chassis for app in apps.values()])
        await _until_connected(apps.values())
        watching = asyncio.ensure_future(_watch(children))
        stack.callback(watching.cancel)
        yield Standalone(settings, f"http://{HOST}:{listener.getsockname()[1]}", (serving, watching))


def _listener(port: int) -> socket.socket:
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((HOST, port))
    except OSError as refused:
        listener.close()
        raise EmbeddedError(f"cannot listen on {HOST}:{port}: {refused.strerror}; set MEMSTREAM_PORT") from refused
    return listener


async def _servers(settings: Settings, stack: AsyncExitStack) -> tuple[dict[str, str], str, dict[str, int]]:
    """The services' databases and the broker, embedded where no URL is given, and the children's pids."""
    urls = {name: url.get_secret_value() for name, url in settings.database_urls.items()}
    children: dict[str, int] = {}
    if urls.keys() != SERVICES.keys():
        postgres = EmbeddedPostgres(settings.data_dir / "postgres")
        await _start(postgres, stack)
        urls = await make_databases(postgres) | urls
        children["Postgres"] = postgres.pid or 0
    if settings.nats_url:
        return urls, settings.nats_url.get_secret_value(), children
    nats = EmbeddedNats(settings.data_dir / "nats")
    await _start(nats, stack)
    children["NATS"] = nats.pid or 0
    return urls, nats.url, children


async def _start(server: EmbeddedPostgres | EmbeddedNats, stack: AsyncExitStack) -> None:
    await server.start()
    atexit.register(server.kill)  # a service whose task died leaves the event loop without unwinding
    stack.callback(atexit.unregister, server.kill)
    stack.push_async_callback(server.stop)


def _build(settings: Settings, name: str, database_url: str, nats_url: str, metrics: Metrics) -> FastAPI:
    # Imported here, so that the servers start and migrate meanwhile.
    module = import_module(f"services.{name}.app")
    service_settings = settings.of(name, database_url=database_url, nats_url=nats_url)
    try:
        app: FastAPI = module.build(service_settings, metrics)
    except UNUSABLE as error:
        what = about_file(service_settings, error)
        if what is None:
            raise
        raise UsageError(what) from error
    return app


class _Server(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals are the main module's: uvicorn would raise them again after the shutdown."""
        yield


def _http(edge: Edge, limits: Limits) -> uvicorn.Config:
    return uvicorn.Config(
        edge,
        loop="uvloop",
        http=bounded_http(limits),
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=75,
        timeout_graceful_shutdown=DRAIN_DEADLINE_S + 2,
    )


async def _until_connected(apps: Iterable[FastAPI]) -> None:
    """HTTP opens without the broker, but here it is our own, so who is told of the address finds everything there."""
    deadline = asyncio.get_running_loop().time() + CONNECT_DEADLINE_S
    while not all(app.state.chassis.bus.connected for app in apps):
        if asyncio.get_running_loop().time() > deadline:
            return
        await asyncio.sleep(POLL_S)


async def _drain(server: uvicorn.Server, serving: "asyncio.Future[None]", services: Iterable[Chassis]) -> None:
    """Finishes what is being answered and distilled. What would not end by itself, a watch or half a request, is let
    go: left to uvicorn, it would take the whole deadline and end in stack traces.
    """
    server.should_exit = True
    draining = [chassis.drain(DRAIN_DEADLINE_S) for chassis in services]
    loop = asyncio.get_running_loop()
    asked = loop.time()
    while not serving.done() and loop.time() - asked < DRAIN_DEADLINE_S + 5:
        for connection in list(server.server_state.connections):
            if loop.time() - asked > _patience_s(connection):
                connection.transport.close()
        await asyncio.wait({serving}, timeout=DRAIN_STEP_S)
    await asyncio.wait(draining)


def _patience_s(connection: Any) -> float:
    """How long a connection is waited for when the server stops."""
    cycle = connection.cycle
    if cycle is None or cycle.response_started:
        return 0.0  # idle, or a watch: any other answer is written whole when it begins
    return UPLOAD_GRACE_S if cycle.more_body else DRAIN_DEADLINE_S


async def _watch(children: dict[str, int]) -> None:
    while True:
        for name, pid in children.items():
            if _has_ended(pid):
                raise EmbeddedError(f"{name} ended by itself; nothing is lost, start again")
        await asyncio.sleep(WATCH_INTERVAL_S)


def _has_ended(pid: int) -> bool:
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
