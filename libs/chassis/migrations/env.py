"""Run by Alembic. One migration at a time per database, under an advisory lock."""

import asyncio

from alembic import context
from sqlalchemy import Connection, text
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import NullPool

LOCK = 0x6D656D73


def _migrate(connection: Connection) -> None:
    context.configure(connection=connection, transaction_per_migration=False)
    with context.begin_transaction():
        connection.execute(text("select pg_advisory_xact_lock(:lock)"), {"lock": LOCK})
        context.run_migrations()


async def _run() -> None:
    engine = create_async_engine(context.config.attributes["url"], poolclass=NullPool)
    async with engine.connect() as connection:
        await connection.run_sync(_migrate)
        await connection.commit()
    await engine.dispose()


asyncio.run(_run())
