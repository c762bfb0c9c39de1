"""The limit: what asyncpg and this Postgres do with one prepared autocommit statement and nothing around it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg

from tests.bench.windows import Step

POOL = 8
TABLE = """
create table if not exists items (session_id bigint, position bigint, data text not null,
    create_time timestamptz not null, primary key (session_id, position))
"""
APPEND = """
insert into items (session_id, position, data, create_time)
select $2::bigint, $3::bigint + n, data, now() from unnest($1::text[]) with ordinality as i (data, n)
"""
RELOAD = "select position, data, create_time from items where session_id = $1 order by position limit 50"


class Limit:
    """Each client keeps a connection of the pool and its prepared statement, and a session of its own."""

    def __init__(self, connections: list["asyncpg.pool.PoolConnectionProxy[asyncpg.Record]"]) -> None:
        self._connections = connections

    async def appends(self, clients: int, items: list[str], first_session: int) -> list[Step]:
        return [await self._append(index, items, first_session + index) for index in range(clients)]

    async def reloads(self, clients: int, first_session: int) -> list[Step]:
        return [await self._reload(index, first_session + index) for index in range(clients)]

    async def _append(self, client: int, items: list[str], session: int) -> Step:
        statement, position = await self._connections[client].prepare(APPEND), 0

        async def append() -> None:
            nonlocal position
            await statement.fetch(items, session, position)
            position += len(items)

        return append

    async def _reload(self, client: int, session: int) -> Step:
        statement = await self._connections[client].prepare(RELOAD)
        return lambda: statement.fetch(session)


@asynccontextmanager
async def limit(dsn: str) -> AsyncIterator[Limit]:
    async with asyncpg.create_pool(dsn, min_size=POOL, max_size=POOL) as pool:
        await pool.execute(TABLE)
        connections = [await pool.acquire() for _ in range(POOL)]
        try:
            yield Limit(connections)
        finally:
            for connection in connections:
                await pool.release(connection)
