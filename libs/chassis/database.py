"""What is said to Postgres, and what a lost connection means.

Before a statement is sent nothing can have been written: `Unavailable`. A read may always be repeated: `Unavailable`.
Inside a transaction nothing is written before COMMIT is sent. Only a lost COMMIT, or a lost single statement that
writes, is `OutcomeUnknown`.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import asyncpg

from libs.chassis.errors import ApiError, Contended, OutcomeUnknown, Unavailable
from libs.chassis.pool import Connection, Pool

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

# Nothing was written: a failover left the client with a server that became read-only, or it has no room.
REFUSED = (
    asyncpg.ReadOnlySQLTransactionError,
    asyncpg.TooManyConnectionsError,
    asyncpg.CannotConnectNowError,
    asyncpg.InsufficientResourcesError,
)


# Nothing was written either: others were in the way, or hold what this would have waited for.
IN_THE_WAY = (asyncpg.TransactionRollbackError, asyncpg.LockNotAvailableError)


class Database:
    """Opens nothing before it is asked something, so that a service starts while Postgres is away."""

    def __init__(
        self, dsn: str, *, pool_size: int, acquire_timeout_s: float = 2.0, statement_timeout_s: float = 30.0
    ) -> None:
        self._dsn = dsn
        self._acquire_timeout_s = acquire_timeout_s
        self._statement_timeout_s = statement_timeout_s
        self._pool = Pool(self._connect, pool_size, acquire_timeout_s)

    async def _connect(self) -> Connection:
        return await asyncpg.connect(
            self._dsn,
            timeout=self._acquire_timeout_s,
            command_timeout=self._statement_timeout_s,
            server_settings={"application_name": "memstream", "timezone": "UTC"},
        )

    async def close(self) -> None:
        await self._pool.close()

    async def _take(self) -> Connection:
        """A connection within the acquire timeout, else `Unavailable`."""
        try:
            return await self._pool.take()
        except (*LOST, asyncpg.PostgresError) as lost:
            raise Unavailable from lost

    async def _run(self, sql: str, args: Sequence[Any], if_lost: type[ApiError]) -> list[asyncpg.Record]:
        """One statement. Nobody uses its connection again when something may still be under way on it."""
        connection = await self._take()
        is_broken = True
        try:
            rows = await connection.fetch(sql, *args)
            is_broken = False
        except IN_THE_WAY as conflict:
            is_broken = False
            raise Contended from conflict
        except REFUSED as refused:
            raise Unavailable from refused
        except LOST as lost:
            raise if_lost from lost
        except asyncpg.PostgresError:
            is_broken = False
            raise
        finally:
            self._pool.give_back(connection, broken=is_broken)
        return rows

    async def fetch(self, sql: str, *args: Any) -> list[asyncpg.Record]:
        """Reads rows; a lost connection is `Unavailable`."""
        return await self._run(sql, args, Unavailable)

    async def fetchrow(self, sql: str, *args: Any) -> asyncpg.Record | None:
        rows = await self.fetch(sql, *args)
        return rows[0] if rows else None

    async def fetchval(self, sql: str, *args: Any) -> Any:
        row = await self.fetchrow(sql, *args)
        return row[0] if row is not None else None

    async def write(self, sql: str, *args: Any) -> list[asyncpg.Record]:
        """One statement that writes and commits by itself; lost after it was sent is `OutcomeUnknown`."""
        return await self._run(sql, args, OutcomeUnknown)

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Connection]:
        """A connection for more than one statement, used again even after what Postgres refused."""
        held = await self._take()
        is_broken = False
        try:
            yield held
        except Contended:  # rolled back
            raise
        except (asyncio.CancelledError, Unavailable, OutcomeUnknown, *LOST):
            is_broken = True
            raise
        finally:
            self._pool.give_back(held, broken=is_broken)

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
            except IN_THE_WAY as conflict:
                raise Contended from conflict
            except REFUSED as refused:
                raise Unavailable from refused
            except LOST as lost:
                raise (OutcomeUnknown if committing else Unavailable)() from lost
