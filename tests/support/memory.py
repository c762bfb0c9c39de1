"""The memory service in the test's process, and batches as a distiller would send them."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from typing import Any
from uuid import UUID

import httpx
from fastapi import FastAPI
from pydantic import SecretStr

from libs.chassis.errors import Contended
from libs.contracts.events import AppliedChange, BatchesApplied, Change, Evidence, MemoriesDistilled, Range, Speaker
from libs.contracts.ids import uuid7
from libs.contracts.requests import Related, RelatedEntries
from libs.contracts.routes import BASE
from services.memory.app import REVISIONS, build
from services.memory.handlers import Handlers
from services.memory.settings import MemorySettings
from tests.support.servers import PostgresServer
from tests.support.service import USER, WORKSPACE, Keys, chassis_of, database, running

STORES = f"{BASE}/memory-stores"
NOWHERE = "nats://127.0.0.1:1"


def settings(dsn: str, keys: Keys, nats_url: str = NOWHERE, **more: Any) -> MemorySettings:
    return MemorySettings(database_url=SecretStr(dsn), nats_url=SecretStr(nats_url), key_dir=keys.directory, **more)


@dataclass
class Memory:
    """A running service with a client that is `USER`; `store` is a fresh store of that user."""

    app: FastAPI
    client: httpx.AsyncClient
    keys: Keys
    dsn: str
    store: str = "notes"

    @property
    def handlers(self) -> Handlers:
        handlers: Handlers = self.app.state.handlers
        return handlers

    def url(self, tail: str = "", store: str | None = None) -> str:
        return f"{STORES}/{store or self.store}{tail}"

    async def make_store(self, name: str, **body: Any) -> dict[str, Any]:
        return await self.ok("POST", STORES, json={"display_name": name, **body})

    async def add(self, actor_id: str, path: str, content: str | None = None, **more: Any) -> dict[str, Any]:
        store = more.pop("store", None)
        body = {"actor_id": actor_id, "path": path, "content": content, **more}
        return await self.ok("POST", self.url("/entries", store), json=body)

    async def search(self, actor_id: str, query: str, **more: Any) -> list[dict[str, Any]]:
        store = more.pop("store", None)
        body = {"actor_id": actor_id, "query": query, **more}
        results: list[dict[str, Any]] = (await self.ok("POST", self.url("/entries:search", store), json=body))[
            "results"
        ]
        return results

    async def paths(self, actor_id: str, query: str, **more: Any) -> list[str]:
        return [hit["managed_memory_entry"]["path"] for hit in await self.search(actor_id, query, **more)]

    async def entries(self, actor_id: str, **params: Any) -> list[dict[str, Any]]:
        """Every entry of an actor, through all pages."""
        store = params.pop("store", None)
        found: list[dict[str, Any]] = []
        token = None
        while True:
            asked = {"actor_id": actor_id, "page_size": 100, **params, **({"page_token": token} if token else {})}
            page = await self.ok("GET", self.url("/entries", store), params=asked)
            found += page["managed_memory_entries"]
            token = page.get("next_page_token")
            if token is None:
                return found

    async def ok(self, method: str, url: str, **request: Any) -> dict[str, Any]:
        answer = await self.client.request(method, url, **request)
        assert answer.status_code == 200, answer.text
        body: dict[str, Any] = answer.json()
        return body

    async def code(self, method: str, url: str, **request: Any) -> tuple[int, str]:
        """Status and error code of a request that fails."""
        answer = await self.client.request(method, url, **request)
        assert answer.status_code >= 400, answer.text
        return answer.status_code, answer.json()["error_code"]

    async def store_uid(self, name: str | None = None) -> UUID:
        return UUID((await self.ok("GET", self.url(store=name)))["storage_backend"]["backend_id"])


@asynccontextmanager
async def memory_service(
    postgres: PostgresServer, keys: Keys, nats_url: str | None = None, **more: Any
) -> AsyncIterator[Memory]:
    async with database(postgres, "memory", REVISIONS) as dsn:
        app = build(settings(dsn, keys, nats_url or NOWHERE, **more))
        async with running(app, keys, bus=nats_url is not None) as client:
            memory = Memory(app, client, keys, dsn)
            await memory.make_store(memory.store)
            yield memory


@dataclass
class Distiller:
    """Sends batches about one actor, reading what is related first, as the real one does."""

    memory: Memory
    store_uid: UUID
    actor_id: str = "ana"
    session_store_uid: UUID = field(default_factory=uuid7)
    session_store_id: str = "chats"
    pipeline_uid: UUID = field(default_factory=uuid7)
    source_epoch: int = 0

    @classmethod
    async def of(cls, memory: Memory, store: str | None = None, **more: Any) -> "Distiller":
        return cls(memory, await memory.store_uid(store), **more)

    def batch(
        self,
        changes: Sequence[Change],
        *,
        session_id: str = "s1",
        session_uid: UUID | None = None,
        through: int = 1,
        lines: Sequence[int] = (),
        memory_epoch: int = 0,
        **more: Any,
    ) -> MemoriesDistilled:
        first = changes[0].evidence[0].session_uid if changes and changes[0].evidence else uuid7()
        uid = session_uid or first
        return MemoriesDistilled(
            **{
                "workspace_id": WORKSPACE,
                "batch_id": uuid7(),
                "store_uid": self.store_uid,
                "actor_id": self.actor_id,
                "pipeline_uid": self.pipeline_uid,
                "session_store_uid": self.session_store_uid,
                "session_store_id": self.session_store_id,
                "source_epoch": self.source_epoch,
                "memory_epoch": memory_epoch,
                "oldest_appended_at": None,
                "ranges": [Range(session_uid=uid, session_id=session_id, after=0, through=through, lines=list(lines))],
                "changes": list(changes),
                **more,
            }
        )

    async def related(self, texts: Sequence[str] = (), paths: Sequence[str] = ()) -> Related:
        return await self.memory.handlers.related_entries(
            RelatedEntries(store_uid=self.store_uid, actor_id=self.actor_id, texts=list(texts), paths=list(paths))
        )

    async def tell(self, *changes: Change, **more: Any) -> list[AppliedChange]:
        """Fills in what each change is decided on, sends the batch and returns its outcomes."""
        decided = []
        epoch = 0
        for change in changes:
            related = await self.related(paths=[change.path])
            epoch = related.epoch
            slot = next((entry for entry in related.entries if entry.path == change.path), None)
            if slot is not None:
                known = {"entry_id": slot.entry_id, "expected_version": slot.version}
                change = change.model_copy(update=known)
            decided.append(change)
        return await self.send(self.batch(decided, memory_epoch=epoch, **more))

    async def send(self, batch: MemoriesDistilled) -> list[AppliedChange]:
        """As often as it takes, as the bus would."""
        while True:
            try:
                await self.memory.handlers.on_memories_distilled(batch)
                break
            except Contended:
                continue
        return (await self.answers(batch.batch_id))[-1].outcomes

    async def answers(self, batch_id: UUID) -> list[BatchesApplied]:
        """What waits to be published about a batch, oldest first; for a service without a bus."""
        rows = await chassis_of(self.memory.app).database.fetch(
            "select payload from outbox where subject = $1 order by message_id", BatchesApplied.subject
        )
        answers = [BatchesApplied.model_validate_json(row["payload"]) for row in rows]
        return [answer for answer in answers if answer.batch_id == batch_id]


async def hold_turn(connection: Any, store_uid: UUID, actor_id: str) -> None:
    await connection.execute(
        "select pg_advisory_xact_lock(hashtextextended($1::uuid::text || ':' || $2::text, 0))", store_uid, actor_id
    )


def said(path: str, statement: str | None, at: str = "2026-01-01", **more: Any) -> Change:
    """A change as a distiller makes it: `set` with a statement, `retire` without."""
    speaker: Speaker = "user"
    fields: dict[str, Any] = {
        "op": "set" if statement is not None else "retire",
        "path": path,
        "statement": statement,
        "kind": "state",
        "said_by": speaker,
        "said_at": moment(at),
        "evidence": [Evidence(session_uid=uuid7(), positions=[1])],
    }
    return Change(**fields | more)


def moment(text: str) -> datetime:
    parsed = datetime.fromisoformat(text)
    return parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)


def day(text: str) -> date:
    return date.fromisoformat(text)


__all__ = [
    "NOWHERE",
    "STORES",
    "USER",
    "Distiller",
    "Memory",
    "day",
    "hold_turn",
    "memory_service",
    "moment",
    "said",
    "settings",
]
