"""The limit: what asyncpg and this Postgres do with one prepared autocommit statement each and nothing around it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg

from tests.bench.windows import Step

POOL = 8
TABLE = """
create table items (session_id bigint, position bigint, data text not null, create_time timestamptz not null,
    primary key (session_id, position))
"""
APPEND = "insert into items select $2::bigint, $3::bigint + n, data, now() from unnest($1::text[]) with ordinality as i (data, n)"
RELOAD = "select position, data, create_time from items where session_id = $1 and position > $2 order by position limit 50"


class Limit:
    """Each client holds a connection of the pool and its prepared statement; open it with `limit`."""

    def __init__(self, connections: list["asyncpg.pool.PoolConnectionProxy[asyncpg.Record]"]) -> None:
        self._connections = connections

    async def appends(self, clients: int, items: list[str], session: int) -> list[Step]:
        return [await self._append(index, items, session + index) for index in range(clients)]

    async def reloads(self, clients: int, session: int) -> list[Step]:
        return [await self._reload(index, session + index) for index in range(clients)]

    async def _append(self, index: int, items: list[str], session: int) -> Step:
        statement, position = await self._connections[index].prepare(APPEND), 0

        async def append() -> None:
            nonlocal position
            await statement.fetch(items, session, position)
            position += len(items)

        return append

    async def _reload(self, index: int, session: int) -> Step:
        statement = await self._connections[index].prepare(RELOAD)
        return lambda: statement.fetch(session, 0)


@asynccontextmanager
async def limit(dsn: str) -> AsyncIterator[Limit]:
    async with asyncpg.create_pool(dsn, min_size=POOL, max_size=POOL) as pool:
        connections = [await pool.acquire() for _ in range(POOL)]
        await connections[0].execute(TABLE)
        yield Limit(connections)
        for connection in connections:
            await pool.release(connection)
