"""One request or message is one transaction: state and outbox commit together or not at all."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg

from libs.chassis import outbox
from libs.chassis.database import Database
from libs.chassis.outbox import OutboxRow, Relay
from libs.chassis.pool import Connection
from libs.contracts.events import Event


class Tx:
    """An open transaction. What is emitted leaves the service after the commit, or never."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.emitted: list[OutboxRow] = []

    def emit(self, event: Event) -> None:
        self.emitted.append(OutboxRow.of(event))

    async def execute(self, sql: str, *args: Any) -> int:
        """Runs a statement; returns how many rows it touched."""
        status = await self.connection.execute(sql, *args)
        count = status.rpartition(" ")[2]
        return int(count) if count.isdigit() else 0

    async def fetch(self, sql: str, *args: Any) -> list[asyncpg.Record]:
        return await self.connection.fetch(sql, *args)

    async def fetchrow(self, sql: str, *args: Any) -> asyncpg.Record | None:
        return await self.connection.fetchrow(sql, *args)

    async def fetchval(self, sql: str, *args: Any) -> Any:
        return await self.connection.fetchval(sql, *args)


class UnitOfWork:
    def __init__(self, database: Database, relay: Relay) -> None:
        self._database = database
        self._relay = relay

    @asynccontextmanager
    async def begin(self, *, patience_ms: int = 0) -> AsyncIterator[Tx]:
        """Leaving the block commits; an exception rolls everything back.

        `patience_ms`, unless 0: how long a row that somebody else holds is waited for; then `Contended`.
        """
        async with self._database.transaction() as connection:
            tx = Tx(connection)
            if patience_ms:
                await tx.execute("select set_config('lock_timeout', $1, true)", str(patience_ms))
            yield tx
            if tx.emitted:
                await outbox.insert(connection, tx.emitted)
        self._relay.offer(tx.emitted)
