"""The distiller's store on a database of its own, and what tests say to it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from libs.chassis.command import revisions
from libs.chassis.database import Database
from libs.chassis.metrics import Metrics
from libs.chassis.outbox import OutboxRow, Relay
from libs.chassis.unit_of_work import UnitOfWork
from libs.contracts.ids import uuid7
from services.distiller.domain import Pipeline
from services.distiller.store import Answers, Batches, Erasures, Lanes, Leases, Mark, Pipelines, Runs
from tests.support.servers import PostgresServer
from tests.support.service import database


class NoBroker:
    """NATS that is away: rows stay in the outbox, where a test can read them."""

    connected = False

    async def publish(self, row: OutboxRow) -> None:
        raise ConnectionError


def pipeline(**fields: Any) -> Pipeline:
    """A continuous pipeline of its own two stores."""
    now = datetime.now(UTC)
    values: dict[str, Any] = {
        "pipeline_uid": uuid7(),
        "workspace_id": 1,
        "display_name": None,
        "session_store_uid": uuid7(),
        "session_store_id": "chats",
        "memory_store_uid": uuid7(),
        "memory_store_id": "facts",
        "model": None,
        "instructions": None,
        "trigger": "CONTINUOUS",
        "quiet_period_s": 0.0,
        "max_wait_s": 0.0,
        "daily_token_budget": None,
        "revision": 1,
        "creator_type": "USER",
        "creator": "ana@example.com",
        "create_time": now,
        "update_time": now,
        "parent_uid": None,
    }
    return Pipeline(**values | fields)


@dataclass
class DistillerStore:
    database: Database
    unit_of_work: UnitOfWork
    pipelines: Pipelines
    lanes: Lanes
    leases: Leases
    answers: Answers
    batches: Batches
    runs: Runs
    erasures: Erasures
    sessions: dict[tuple[UUID, str, str], UUID] = field(default_factory=dict)

    async def pipeline(self, **fields: Any) -> Pipeline:
        async with self.unit_of_work.begin() as tx:
            created = await self.pipelines.create(tx, pipeline(**fields))
        assert created is not None
        return created

    def mark(self, of: Pipeline, actor: str, position: int, session: str = "s1") -> Mark:
        uid = self.sessions.setdefault((of.session_store_uid, actor, session), uuid7())
        return Mark(of.session_store_uid, uid, session, actor, position, datetime.now(UTC))


@asynccontextmanager
async def distiller_store(postgres: PostgresServer) -> AsyncIterator[DistillerStore]:
    async with database(postgres, "distiller", revisions("distiller")) as dsn:
        opened = Database(dsn, pool_size=8)
        unit_of_work = UnitOfWork(opened, Relay("distiller", opened, NoBroker(), Metrics()))
        try:
            yield DistillerStore(
                database=opened,
                unit_of_work=unit_of_work,
                pipelines=Pipelines(opened),
                lanes=Lanes(opened),
                leases=Leases(opened),
                answers=Answers(opened),
                batches=Batches(opened, 50, 40),
                runs=Runs(opened),
                erasures=Erasures(),
            )
        finally:
            await opened.close()
