"""A running session service with a caller's view of it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx
from fastapi import FastAPI
from pydantic import SecretStr

from libs.chassis.database import Database
from libs.contracts.routes import BASE
from services.session.app import REVISIONS, build
from services.session.settings import SessionSettings
from tests.support.servers import NatsServer, PostgresServer
from tests.support.service import Keys, chassis_of, database, key_directory, running

STORES = f"{BASE}/session-stores"
NO_NATS = "nats://127.0.0.1:1"


def message(text: str, role: str = "user") -> dict[str, Any]:
    return {"type": "message", "role": role, "content": text}


@dataclass(frozen=True)
class SessionService:
    """`client` calls as `tests.support.service.USER`; `keys.header(...)` makes another caller."""

    app: FastAPI
    client: httpx.AsyncClient
    keys: Keys
    dsn: str

    @property
    def database(self) -> Database:
        return chassis_of(self.app).database

    async def call(self, method: str, path: str, **request: Any) -> Any:
        """The JSON of an answer that must be a success; `path` begins after `…/session-stores`."""
        answer = await self.client.request(method, STORES + path, **request)
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def store(self, name: str = "chats", *, headers: dict[str, str] | None = None, **body: Any) -> str:
        """Makes a store; returns its path."""
        await self.call("POST", "", params={"session_store_id": name}, json=body, headers=headers)
        return f"/{name}"

    async def session(
        self, store: str, name: str = "s1", actor: str = "ana", *, headers: dict[str, str] | None = None, **body: Any
    ) -> str:
        """Makes a session; returns its path."""
        await self.call(
            "POST",
            f"{store}/sessions",
            params={"session_id": name},
            json={"actor_id": actor} | body,
            headers=headers,
        )
        return f"{store}/sessions/{name}"

    async def append(self, session: str, *data: Any, headers: dict[str, str] | None = None, **body: Any) -> Any:
        answer = await self.call(
            "POST",
            f"{session}/items:append",
            json={"items": [{"data": value} for value in data]} | body,
            headers=headers,
        )
        return answer["session_items"]

    async def items(self, session: str, **params: Any) -> Any:
        return (await self.call("GET", f"{session}/items", params=params))["session_items"]

    async def clean(self) -> None:
        """One round of housekeeping."""
        await chassis_of(self.app)._housekeeping()


def session_app(dsn: str, keys: Keys, nats: NatsServer | None = None, **settings: Any) -> FastAPI:
    """The service on that database; without `nats` the broker is away."""
    return build(
        SessionSettings(
            database_url=SecretStr(dsn),
            nats_url=SecretStr(nats.url if nats else NO_NATS),
            key_dir=keys.directory,
            **{"housekeeping_interval_s": 3600} | settings,
        )
    )


@asynccontextmanager
async def session_service(
    postgres: PostgresServer, nats: NatsServer | None = None, **settings: Any
) -> AsyncIterator[SessionService]:
    """Running on a database of its own, called in-process."""
    with key_directory() as keys:
        async with database(postgres, "session", REVISIONS) as dsn:
            app = session_app(dsn, keys, nats, **settings)
            async with running(app, keys, bus=nats is not None) as client:
                yield SessionService(app, client, keys, dsn)
