"""The composition that every service shares: what it is built of, opened and closed in order.

A service's own `app.py` makes a `Chassis`, hands it its handlers, jobs and routes, and returns `Chassis.http(...)`.
"""

import asyncio
import gc
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from socket import socket

import uvicorn
from fastapi import APIRouter, FastAPI
from starlette.routing import Route

from libs.chassis import housekeeping, logs
from libs.chassis.auth import Verifier
from libs.chassis.bus import Bus
from libs.chassis.database import Database
from libs.chassis.health import health_routes
from libs.chassis.housekeeping import Pass
from libs.chassis.http import frame
from libs.chassis.metrics import Metrics
from libs.chassis.openapi import Operation, document
from libs.chassis.operations import operation_routes
from libs.chassis.outbox import Relay
from libs.chassis.parked import ParkedMessages
from libs.chassis.settings import ServiceSettings
from libs.chassis.unit_of_work import UnitOfWork
from libs.chassis.wire import bounded_http

NOT_STARTED = 3  # the exit status of a service whose port is taken, say
CANCEL_AGAIN_S = 10.0  # longer than any task takes to end


class Chassis:
    """`database`, `bus`, `unit_of_work` … are what a service is wired with; nothing is opened before `running`."""

    def __init__(self, service: str, settings: ServiceSettings, metrics: Metrics | None = None) -> None:
        self.service = service
        self.settings = settings
        self.metrics = metrics or Metrics()
        self.database = Database(
            settings.database_url.get_secret_value(),
            pool_size=settings.database_pool_size,
            acquire_timeout_s=settings.database_acquire_timeout_s,
            statement_timeout_s=settings.database_statement_timeout_s,
        )
        self.parked = ParkedMessages(self.database)
        self.bus = Bus(service, settings.nats_url.get_secret_value(), self.parked, self.metrics, settings.nats_replicas)
        self.relay = Relay(service, self.database, self.bus, self.metrics)
        self.unit_of_work = UnitOfWork(self.database, self.relay)
        self.verifier = Verifier(settings)
        self._passes: list[Pass] = list(housekeeping.COMMON)
        self._tasks: list[Callable[[], Awaitable[None]]] = []
        self._drains: list[Callable[[], Awaitable[None]]] = []
        self._draining: asyncio.Task[None] | None = None
        self._closers: list[Callable[[], Awaitable[None]]] = []

    def housekeep(self, *passes: Pass) -> None:
        """Adds passes to the housekeeping, in this order."""
        self._passes.extend(passes)

    def every(
        self,
        name: str,
        interval_s: float,
        job: Callable[[], Awaitable[None]],
        wake: asyncio.Event | None = None,
    ) -> None:
        """Runs a job on every replica while the service runs, and at once when `wake` is set."""
        self._tasks.append(lambda: housekeeping.every(name, interval_s, job, self.metrics, wake))

    def run(self, task: Callable[[], Awaitable[None]]) -> None:
        """Runs a task of the service's own for as long as the service runs; it ends by cancellation."""
        self._tasks.append(task)

    def drain_with(self, drain: Callable[[], Awaitable[None]]) -> None:
        """Finishes what a task of the service's own has under way, while all that it needs is there."""
        self._drains.append(drain)

    def drain(self, within_s: float | None = None) -> "asyncio.Task[None]":
        """Begins nothing more and finishes what is under way, within `drain_s` by default; what is left is cancelled
        later. Whoever tells it again waits for the same.
        """
        if self._draining is None:
            self._draining = asyncio.create_task(self._drain(within_s or self.settings.drain_s))
        return self._draining

    async def _drain(self, within_s: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                await asyncio.gather(*(drain() for drain in self._drains))

    def close_with(self, closer: Callable[[], Awaitable[None]]) -> None:
        """Closes something of the service's own when it stops, after its tasks."""
        self._closers.append(closer)

    async def _housekeeping(self) -> None:
        for wanted in self._passes:
            job = partial(housekeeping.run_pass, self.unit_of_work, wanted)
            await housekeeping.guarded(wanted.name, job, self.metrics)
        self.metrics.parked.labels(self.service).set(await self.parked.count())

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """HTTP may open at once: the broker connects beside it, however long that takes."""
        self.every("housekeeping", self.settings.housekeeping_interval_s, self._housekeeping)
        work = [self.verifier.run, self.bus.run, self.relay.run, *self._tasks]
        tasks = [asyncio.ensure_future(task()) for task in work]
        for task in tasks:
            task.add_done_callback(self._ended)
        try:
            yield
        finally:
            await self.drain()
            await _end(tasks[::-1])
            for closer in self._closers:
                await closer()
            await self.database.close()

    def _ended(self, task: "asyncio.Future[None]") -> None:
        """A task that ends by itself is a fault; without it the process would be half alive."""
        if not task.cancelled() and task.exception() is not None:
            logs.logger(__name__).error("task_died", service=self.service, exc_info=task.exception())
            raise SystemExit(1)

    def http(
        self,
        title: str,
        routers: Sequence[APIRouter],
        routes: Sequence[Route] = (),
        operations: Sequence[Operation] = (),
        *,
        open_paths: Sequence[str] = (),
    ) -> FastAPI:
        """The service's HTTP application; entering its lifespan runs everything.

        `operations` describe the plain `routes` for the OpenAPI document; `open_paths` need no token.
        """

        @asynccontextmanager
        async def lifespan(_: FastAPI) -> AsyncIterator[None]:
            async with self.running():
                yield

        app = FastAPI(
            title=title,
            lifespan=lifespan,
            openapi_url=f"/openapi/{self.service}.json",
            docs_url=f"/docs/{self.service}",
            redoc_url=None,
            redirect_slashes=False,
            telemetry={"tracing": False, "metrics": False, "logs": False},  # ours are in the frame; looking costs 10 µs
        )
        app.router.redirect_slashes = False  # a redirect would name whatever host the caller did
        app.router.routes[:0] = [*health_routes(self.service, self.database, self.bus, self.metrics.registry), *routes]
        for router in (*routers, operation_routes(self.service, self.parked)):
            app.include_router(router)
        frame(app, self.service, self.verifier, self.metrics, self.settings.limits, routes)
        document(app, operations, open_paths=open_paths)
        app.state.chassis = self
        return app


async def _end(tasks: Sequence["asyncio.Future[None]"]) -> None:
    """Cancels until all have ended: what a library swallowed is said again."""
    left = set(tasks)
    while left:
        for task in tasks:
            task.cancel()
        _, left = await asyncio.wait(left, timeout=CANCEL_AGAIN_S)


def settle_heap() -> None:
    """What is loaded by now stays: the garbage collector's passes over it took a quarter of a reload's time.

    And it looks seldom: what a request or a message makes is gone with it.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000)


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, chassis: Chassis) -> None:
        super().__init__(config)
        self._chassis = chassis

    async def shutdown(self, sockets: list[socket] | None = None) -> None:
        """What works beside HTTP begins nothing more either while that finishes."""
        self._chassis.drain()
        await super().shutdown(sockets)


def serve(app: FastAPI, settings: ServiceSettings) -> None:
    """Serves until SIGTERM, then finishes what is under way; used by every service's `__main__`."""
    settle_heap()
    config = uvicorn.Config(
        app,
        host=settings.http_host,
        port=settings.http_port,
        loop="uvloop",
        http=bounded_http(settings.limits),
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=75,
        timeout_graceful_shutdown=int(settings.drain_s),
    )
    server = _Server(config, app.state.chassis)
    with suppress(KeyboardInterrupt):
        server.run()
    if not server.started:
        sys.exit(NOT_STARTED)
