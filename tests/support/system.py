"""The three services in the test's own process, on real servers, behind one client: what a user meets."""

import itertools
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import httpx
from fastapi import FastAPI
from starlette.types import ASGIApp, Receive, Scope, Send

from libs.chassis.command import revisions
from libs.contracts.routes import BASE, owner_of
from services.distiller import app as distiller
from services.distiller.llm import Models
from services.distiller.settings import DistillerSettings
from services.memory import app as memory
from services.memory.settings import MemorySettings
from services.session import app as session
from services.session.settings import SessionSettings
from tests.support.servers import NatsServer, PostgresServer
from tests.support.service import Keys, chassis_of, database, key_directory, until


class Edge:
    """Routes by the one table, in process, to each replica in turn."""

    def __init__(self, apps: Mapping[str, Sequence[ASGIApp]]) -> None:
        self._turns = {service: itertools.cycle(replicas) for service, replicas in apps.items()}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        owner = owner_of(scope["path"])
        assert owner is not None, f"nobody answers {scope['path']}"
        await next(self._turns[owner])(scope, receive, send)


@dataclass
class System:
    """`apps` are the first replicas; the others serve beside them, on the same databases."""

    client: httpx.AsyncClient
    keys: Keys
    apps: dict[str, FastAPI]
    said: Counter[str] = field(default_factory=Counter)

    async def call(self, method: str, path: str, **request: Any) -> Any:
        """The JSON of an answer that must be a success."""
        answer = await self.client.request(method, BASE + path, **request)
        assert answer.status_code == 200, f"{method} {path}: {answer.status_code} {answer.text}"
        return answer.json()

    async def pipeline(self, chats: str = "chats", facts: str = "facts", **policy: Any) -> str:
        """Makes both stores and a pipeline between them; returns its name."""
        await self.call("POST", f"/session-stores?session_store_id={chats}", json={})
        await self.call("POST", f"/memory-stores?managed_memory_store_id={facts}", json={"display_name": facts})
        made = await self.call(
            "POST",
            "/memory-pipelines",
            json={
                "session_store": f"session-stores/{chats}",
                "memory_store": f"memory-stores/{facts}",
                "dreamer_policy": {"trigger": "CONTINUOUS", "quiet_period_s": 0} | policy,
            },
        )
        name: str = made["name"]
        return name

    async def say(self, actor: str, session_id: str, *texts: str, chats: str = "chats", **item: Any) -> None:
        """Appends user messages; makes the session at the first."""
        path = f"/session-stores/{chats}/sessions"
        await self.client.post(f"{BASE}{path}", params={"session_id": session_id}, json={"actor_id": actor})
        items = [{"data": {"type": "message", "role": "user", "content": text}} | item for text in texts]
        await self.call("POST", f"{path}/{session_id}/items:append", json={"items": items})
        self.said[chats] += len(items)

    async def memories(self, actor: str, facts: str = "facts") -> dict[str, str]:
        """The actor's current entries: path → content."""
        page = await self.call("GET", f"/memory-stores/{facts}/entries", params={"actor_id": actor, "page_size": 100})
        return {entry["path"]: entry["content"] for entry in page["managed_memory_entries"]}

    def metric(self, service: str, name: str, **labels: str) -> float:
        """A metric's value in the first replica of a service; 0 where nothing was counted."""
        return chassis_of(self.apps[service]).metrics.registry.get_sample_value(name, labels) or 0.0

    async def settled(self, pipeline: str, chats: str = "chats") -> None:
        """Waits until all that was said in a store is distilled and applied."""
        uid = UUID(pipeline.partition("/")[2])
        database = chassis_of(self.apps["distiller"]).database

        async def all_settled() -> bool:
            return bool(
                await database.fetchval(
                    "select coalesce(sum(distilled_position), 0) = $2 and not exists"
                    " (select 1 from lanes where pipeline_uid = $1 and pending_batch is not null)"
                    " from lane_sessions where pipeline_uid = $1",
                    uid,
                    self.said[chats],
                )
            )

        await until(all_settled, deadline_s=30)


# `system` on the test's servers and scripted model, with these settings of the distiller.
Open = Callable[..., AbstractAsyncContextManager[System]]


@asynccontextmanager
async def system(
    postgres: PostgresServer,
    nats: NatsServer,
    *,
    models: Models | Callable[[], Models] | None = None,
    distiller_settings: dict[str, Any] | None = None,
    memory_settings: dict[str, Any] | None = None,
    replicas: int = 1,
    wait_for_bus: bool = True,
) -> AsyncIterator[System]:
    async with AsyncExitStack() as stack:
        keys = stack.enter_context(key_directory())
        dsns = {
            service: await stack.enter_async_context(database(postgres, service, revisions(service)))
            for service in ("session", "distiller", "memory")
        }
        common: dict[str, Any] = {"nats_url": nats.url, "key_dir": keys.directory, "housekeeping_interval_s": 3600}
        own = {service: common | {"database_url": dsn} for service, dsn in dsns.items()}
        of_memory = MemorySettings(**own["memory"] | (memory_settings or {}))
        of_distiller = DistillerSettings(**own["distiller"] | (distiller_settings or {}))

        def distilling() -> FastAPI:
            return distiller.build(of_distiller, models=models() if callable(models) else models)

        apps = {
            "session": [session.build(SessionSettings(**own["session"]))],
            "memory": [memory.build(of_memory) for _ in range(replicas)],
            "distiller": [distilling() for _ in range(replicas)],
        }
        running = [app for each in apps.values() for app in each]
        for app in running:
            await stack.enter_async_context(app.router.lifespan_context(app))
            await chassis_of(app).verifier.load()
        if wait_for_bus:
            await until(lambda: all(chassis_of(app).bus.connected for app in running))
        client = await stack.enter_async_context(
            httpx.AsyncClient(
                transport=httpx.ASGITransport(Edge(apps)),
                base_url="http://memstream",
                headers=keys.header(),
                timeout=30,
            )
        )
        yield System(client, keys, {service: each[0] for service, each in apps.items()})
