"""The pool, and what a lost connection means.

Before a statement is sent nothing can have been written: `Unavailable`. A read may always be repeated: `Unavailable`.
Inside a transaction nothing is written before COMMIT is sent. Only a lost COMMIT, or a lost single statement that
writes, is `OutcomeUnknown`.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any, TypeAlias

import asyncpg

from libs.chassis.errors import OutcomeUnknown, Unavailable

LOST = (
    asyncpg.PostgresConnectionError,
    asyncpg.OperatorInterventionError,
    asyncpg.InterfaceError,
    asyncpg.CannotConnectNowError,
    asyncpg.TooManyConnectionsError,
    asyncpg.InternalClientError,
    ConnectionError,
    OSError,
    TimeoutError,
)

# Nothing was written: a failover left the client with a server that became read-only, or a deadlock was resolved.
REFUSED = (
    asyncpg.ReadOnlySQLTransactionError,
    asyncpg.TooManyConnectionsError,
    asyncpg.CannotConnectNowError,
    asyncpg.TransactionRollbackError,
    asyncpg.InsufficientResourcesError,
)

Connection: TypeAlias = "asyncpg.pool.PoolConnectionProxy[asyncpg.Record]"


async def _no_reset(_: Any) -> None:
    """Nothing here sets session state, so the round trip of asyncpg's reset on release buys nothing."""


class Database:
    def __init__(
        self, dsn: str, *, pool_size: int, acquire_timeout_s: float = 2.0, statement_timeout_s: float = 30.0
    ) -> None:
        self._dsn = dsn
        self._pool_size = pool_size
        self._acquire_timeout_s = acquire_timeout_s
        self._statement_timeout_s = statement_timeout_s
        self._pool: asyncpg.Pool[asyncpg.Record] | None = None
        self._turns = asyncio.Semaphore(pool_size)

    async def open(self) -> None:
        """Makes the pool without a connection, so that a service starts while Postgres is away."""
        pool = asyncpg.create_pool(
            self._dsn,
            min_size=0,
            max_size=self._pool_size,
            command_timeout=self._statement_timeout_s,
            timeout=self._acquire_timeout_s,
            reset=_no_reset,
            max_inactive_connection_lifetime=60,
            server_settings={"application_name": "memstream", "timezone": "UTC"},
        )
        self._pool = await pool

    async def close(self) -> None:
        if self._pool is not None:
            try:
                await asyncio.wait_for(self._pool.close(), 5)
            except TimeoutError:
                self._pool.terminate()

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Connection]:
        """A connection within the acquire timeout, else `Unavailable`.

        asyncpg's pool lets newcomers overtake who waits; a turn for each connection keeps the order.
        """
        if self._pool is None:
            raise Unavailable
        try:
            async with asyncio.timeout(self._acquire_timeout_s):
                await self._turns.acquire()
                try:
                    held = await self._pool.acquire()
                except BaseException:
                    self._turns.release()
                    raise
        except (*LOST, asyncpg.PostgresError) as lost:
            raise Unavailable from lost
        try:
            yield held
        finally:
            # The pool drops a connection that it cannot take back in time; what was said on it stands.
            try:
                with suppress(*LOST):
                    await self._pool.release(held)
            finally:
                self._turns.release()

    async def fetch(self, sql: str, *args: Any) -> list[asyncpg.Record]:
        """Reads rows; a lost connection is `Unavailable`."""
        async with self.connection() as connection:
            try:
                return await connection.fetch(sql, *args)
            except LOST as lost:
                raise Unavailable from lost

    async def fetchrow(self, sql: str, *args: Any) -> asyncpg.Record | None:
        rows = await self.fetch(sql, *args)
        return rows[0] if rows else None

    async def fetchval(self, sql: str, *args: Any) -> Any:
        row = await self.fetchrow(sql, *args)
        return row[0] if row is not None else None

    async def write(self, sql: str, *args: Any) -> list[asyncpg.Record]:
        """One statement that writes and commits by itself; lost after it was sent is `OutcomeUnknown`."""
        async with self.connection() as connection:
            try:
                return await connection.fetch(sql, *args)
            except REFUSED as refused:
                raise Unavailable from refused
            except LOST as lost:
                raise OutcomeUnknown from lost

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Connection]:
        """BEGIN … COMMIT; an exception rolls back. Lost before COMMIT: `Unavailable`; at COMMIT: `OutcomeUnknown`."""
        async with self.connection() as connection:
            transaction = connection.transaction()
            committing = False
            try:
                await transaction.start()
                try:
                    yield connection
                except BaseException:
                    if not connection.is_closed():
                        await transaction.rollback()
                    raise
                committing = True
                await transaction.commit()
            except REFUSED as refused:
                raise Unavailable from refused
            except LOST as lost:
                raise (OutcomeUnknown if committing else Unavailable)() from lost
