"""Alembic for every service: this environment is shared, the revisions are each service's own, plain SQL, forward only.

Alembic writes the script from the database's revision to the newest, and asyncpg runs it whole, in one transaction.
Not imported by a service that serves: `python -m services.<name> migrate` does.
"""

import asyncio
from io import StringIO
from pathlib import Path

import asyncpg
from alembic import command, op
from alembic.config import Config

HERE = Path(__file__).parent
LOCK = 0x6D656D73


def upgrade(database_url: str, revisions: Path) -> None:
    """Brings a database to the newest revision, one migration run at a time. Blocks; needs no running event loop."""
    asyncio.run(_upgrade(database_url, revisions))


async def _upgrade(database_url: str, revisions: Path) -> None:
    connection = await asyncpg.connect(database_url, timeout=10)
    try:
        async with connection.transaction():
            await connection.execute("select pg_advisory_xact_lock($1)", LOCK)
            has_revision = await connection.fetchval("select to_regclass('alembic_version') is not null")
            revision = await connection.fetchval("select version_num from alembic_version") if has_revision else None
            # Without waiting long for a lock: a migration that queues for one stops everybody behind it.
            await connection.execute(f"set local lock_timeout = '4s';\n{_script(revision, revisions)}")
    finally:
        await connection.close()


def _script(revision: str | None, revisions: Path) -> str:
    """The SQL from a revision, or from nothing, to the newest."""
    config = Config(output_buffer=StringIO())
    config.set_main_option("script_location", str(HERE))
    config.set_main_option("version_locations", str(revisions))
    config.set_main_option("path_separator", "os")
    command.upgrade(config, f"{revision}:head" if revision else "head", sql=True)
    buffer = config.output_buffer
    assert isinstance(buffer, StringIO)  # noqa: S101 - given above
    return buffer.getvalue()


def execute(sql: str) -> None:
    """Puts any number of statements into the migration's script."""
    op.get_context().impl.static_output(sql)


def shared(name: str) -> str:
    """A numbered file of tables that every service has; such a file never changes once released."""
    return (HERE / f"{name}.sql").read_text()
