"""A0.2 of the contract: the backend dies between statement and answer, and the published client, unmodified, never
writes twice. With a key it always writes once; without, it hears what is not known."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import asyncpg
import pytest
from databricks.sdk import WorkspaceClient
from databricks.sdk.errors import InternalError
from databricks.sdk.service.agentkit import Session, SessionItem, SessionStore

from libs.contracts.routes import BASE
from services.session.app import REVISIONS
from tests.support.servers import PostgresServer
from tests.support.service import database, key_directory, served, until
from tests.support.session import session_app
from tests.support.wire import Wire, socket_of

SESSION = "session-stores/abc/sessions/s1"
WAITING = (
    "select pid from pg_stat_activity where datname = current_database() and application_name = 'memstream'"
    " and wait_event_type = 'Lock'"
)


@dataclass(frozen=True)
class Broken:
    client: WorkspaceClient
    wire: Wire
    holder: Any
    watcher: Any

    async def append(self, n: int, key: str | None) -> Any:
        """As any program would; what it raises is the answer."""
        if key is None:
            call = asyncio.to_thread(self.client.agent_kit.append_session_items, SESSION, [SessionItem(data={"n": n})])
        else:
            call = asyncio.to_thread(
                self.client.api_client.do,
                "POST",
                f"{BASE}/{SESSION}/items:append",
                headers={"Idempotency-Key": key, "Content-Type": "application/json"},
                body={"items": [{"data": {"n": n}}]},
            )
        return (await asyncio.gather(call, return_exceptions=True))[0]

    async def append_while_its_backend_dies(self, n: int, key: str | None, *, after_commit: bool) -> Any:
        held = self.holder.transaction()
        await held.start()
        await self.holder.execute("select from sessions where session_id = 's1' for update")
        call = asyncio.ensure_future(self.append(n, key))
        await until(lambda: self.watcher.fetchval(WAITING))
        pid = await self.watcher.fetchval(WAITING)
        if after_commit:
            self.wire.is_mute = True
            await held.rollback()
            await until(lambda: self.count(n))
        await self.watcher.execute("select pg_terminate_backend($1)", pid)
        await until(lambda: self.is_gone(pid))
        self.wire.is_mute = False
        if not after_commit:
            await held.rollback()
        return await call

    async def count(self, n: int) -> int:
        return int(
            await self.watcher.fetchval("select count(*) from session_items where data::jsonb ->> 'n' = $1", str(n))
        )

    async def is_gone(self, pid: int) -> bool:
        return not await self.watcher.fetchval("select count(*) from pg_stat_activity where pid = $1", pid)


@pytest.fixture
async def broken(postgres: PostgresServer) -> AsyncIterator[Broken]:
    with key_directory() as keys:
        async with (
            database(postgres, "session", REVISIONS) as dsn,
            Wire(socket_of(dsn)) as wire,
            _connected(dsn) as holder,
            _connected(dsn) as watcher,
            served(session_app(wire.dsn(dsn), keys)) as url,
        ):
            client = await asyncio.to_thread(WorkspaceClient, host=url, token=keys.token())
            await asyncio.to_thread(client.agent_kit.create_session_store, SessionStore(), "abc")
            await asyncio.to_thread(
                client.agent_kit.create_session, "session-stores/abc", Session(actor_id="ana"), session_id="s1"
            )
            yield Broken(client, wire, holder, watcher)


@asynccontextmanager
async def _connected(dsn: str) -> AsyncIterator[Any]:
    connection = await asyncpg.connect(dsn)
    try:
        yield connection
    finally:
        await connection.close()


async def test_the_published_client_never_writes_twice_when_answers_are_lost(broken: Broken, is_soak: bool) -> None:
    attempts = 100 if is_soak else 8
    written = []

    for n in range(attempts):
        key, after_commit = (f"key {n}" if n % 2 else None), n % 4 < 2
        answer = await broken.append_while_its_backend_dies(n, key, after_commit=after_commit)

        if key:
            assert answer["session_items"][0]["data"] == {"n": n}
        else:
            assert isinstance(answer, InternalError)
            details = answer.get_error_details().error_info
            assert details is not None
            assert details.reason == "OUTCOME_UNKNOWN"
        written += [n] if key or after_commit else []
        assert await broken.count(n) == (1 if key or after_commit else 0)

    items: list[Any] = await asyncio.to_thread(
        lambda: list(broken.client.agent_kit.list_session_items(SESSION, order_by="create_time asc", page_size=100))
    )
    assert [item.data["n"] for item in items] == written
