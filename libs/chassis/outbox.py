"""How an event leaves a service. The relay is the only publisher.

A row is written in the transaction that it belongs to, handed over in memory after the commit, published, and deleted
once the broker has acknowledged it. What a crash or a broker outage leaves behind, the sweeper of any replica finds. A
row published twice is dropped by its message id, or by its consumer's own key.
"""

import asyncio
import time
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol
from uuid import UUID

from libs.chassis.database import Database
from libs.chassis.logs import logger
from libs.chassis.metrics import Metrics
from libs.chassis.pool import Connection
from libs.contracts.events import Event

BATCH = 200
QUEUE = 20_000
LINGER_S = 0.003  # so that events of one moment leave in one write
CLEAN_INTERVAL_S = 0.1
SWEEP_INTERVAL_S = 1.0
SWEEP_LIMIT = 2000

log = logger(__name__)


@dataclass(frozen=True, slots=True)
class OutboxRow:
    message_id: UUID
    subject: str
    payload: str

    @classmethod
    def of(cls, event: Event) -> "OutboxRow":
        return cls(event.event_id, event.subject, event.model_dump_json())


class Publisher(Protocol):
    @property
    def connected(self) -> bool: ...

    async def publish(self, row: OutboxRow) -> None:
        """Returns once the stream has stored it; raises otherwise."""


async def insert(connection: Connection, rows: Sequence[OutboxRow]) -> None:
    """Writes rows in the caller's transaction."""
    await connection.execute(
        "insert into outbox (message_id, subject, payload) select * from unnest($1::uuid[], $2::text[], $3::text[])",
        [row.message_id for row in rows],
        [row.subject for row in rows],
        [row.payload for row in rows],
    )


class Relay:
    """Owned by the service's lifespan: `run` until cancelled."""

    def __init__(self, service: str, database: Database, publisher: Publisher, metrics: Metrics) -> None:
        self._service = service
        self._database = database
        self._publisher = publisher
        self._metrics = metrics
        self._handed: deque[tuple[OutboxRow, float]] = deque()
        self._holding: set[UUID] = set()
        self._published: list[UUID] = []
        self._wake = asyncio.Event()

    def offer(self, rows: Iterable[OutboxRow]) -> None:
        """Takes committed rows. Beyond its room, or while NATS is away, they are left to the sweeper."""
        if not self._publisher.connected or len(self._handed) >= QUEUE:
            return
        now = time.monotonic()
        for row in rows:
            self._handed.append((row, now))
            self._holding.add(row.message_id)
        self._wake.set()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._relay())
            tasks.create_task(self._clean())
            tasks.create_task(self._sweep())

    async def _relay(self) -> None:
        while True:
            await self._wake.wait()
            await asyncio.sleep(LINGER_S)
            self._wake.clear()
            while self._handed:
                batch = [self._handed.popleft() for _ in range(min(BATCH, len(self._handed)))]
                try:
                    sent = set(await self._send([row for row, _ in batch]))
                except Exception as failed:  # the rows are still there, and the sweeper comes for them
                    log.warning("relay_failed", service=self._service, rows=len(batch), error=type(failed).__name__)
                    sent = set()
                now = time.monotonic()
                for row, handed_at in batch:
                    if row.message_id in sent:
                        self._metrics.publish_seconds.labels(self._service).observe(now - handed_at)
                        self._published.append(row.message_id)
                    else:
                        self._holding.discard(row.message_id)

    async def _clean(self) -> None:
        """Deletes what was published, many rows at a time: a row that a crash leaves is only published once more."""
        while True:
            await asyncio.sleep(CLEAN_INTERVAL_S)
            done, self._published = self._published, []
            if not done:
                continue
            try:
                await self._delete(done)
            except Exception as failed:  # the sweeper publishes them again and deletes them then
                log.warning("outbox_not_cleaned", service=self._service, error=type(failed).__name__)
            finally:
                self._holding.difference_update(done)

    async def _delete(self, message_ids: Sequence[UUID]) -> None:
        await self._database.write("delete from outbox where message_id = any($1::uuid[])", list(message_ids))

    async def _send(self, rows: Sequence[OutboxRow]) -> list[UUID]:
        """Publishes rows together; returns those that were acknowledged."""
        results = await asyncio.gather(*(self._publisher.publish(row) for row in rows), return_exceptions=True)
        sent = [row.message_id for row, result in zip(rows, results, strict=True) if result is None]
        failed = next((result for result in results if result is not None), None)
        if failed is not None:
            if isinstance(failed, asyncio.CancelledError):
                raise failed
            log.warning(
                "publish_failed", service=self._service, rows=len(rows) - len(sent), error=type(failed).__name__
            )
        return sent

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(SWEEP_INTERVAL_S)
            try:
                await self._sweep_once()
            except Exception as failed:  # whatever it was, the next pass begins anew
                log.warning("outbox_sweep_failed", service=self._service, error=type(failed).__name__)

    async def _sweep_once(self) -> None:
        rows = await self._database.fetch(
            "select message_id, subject, payload, extract(epoch from now() - created_at)::float8 as age_s"
            " from outbox where created_at < now() - interval '1 second' order by message_id limit $1",
            SWEEP_LIMIT,
        )
        self._metrics.outbox_pending.labels(self._service).set(len(rows))
        self._metrics.outbox_age.labels(self._service).set(max((row["age_s"] for row in rows), default=0))
        left = [
            OutboxRow(row["message_id"], row["subject"], row["payload"])
            for row in rows
            if row["message_id"] not in self._holding
        ]
        for start in range(0, len(left), BATCH):
            sent = await self._send(left[start : start + BATCH]) if self._publisher.connected else []
            if not sent:
                return
            await self._delete(sent)
