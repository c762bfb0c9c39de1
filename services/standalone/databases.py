"""A database and a role for each service, and their migrations in a process of their own.

The serving process never imports Alembic and SQLAlchemy: 40 MB and half a second.
"""

import asyncio
import os
import sys
from collections.abc import Mapping
from importlib import import_module

import asyncpg

from libs.chassis.command import revisions
from services.standalone.embedded import EmbeddedError, EmbeddedPostgres
from services.standalone.embedded.errors import reason
from services.standalone.settings import SERVICES

MIGRATE_DEADLINE_S = 600.0


async def make_databases(postgres: EmbeddedPostgres) -> dict[str, str]:
    """The dsn of each service's database, made where it is missing."""
    connection = await asyncpg.connect(postgres.dsn(), timeout=30)
    try:
        for name in SERVICES:
            if not await connection.fetchval("select count(*) from pg_roles where rolname = $1", name):
                await connection.execute(f'create role "{name}" login')
            if not await connection.fetchval("select count(*) from pg_database where datname = $1", name):
                await connection.execute(f'create database "{name}" owner "{name}"')
            await connection.execute(f'revoke connect on database "{name}" from public')
    finally:
        await connection.close()
    await _make_vector_extension(postgres)
    return {name: postgres.dsn(name, name) for name in SERVICES}


async def _make_vector_extension(postgres: EmbeddedPostgres) -> None:
    """Only a superuser may; the memory service's migrations find it there."""
    connection = await asyncpg.connect(postgres.dsn("memory"), timeout=30)
    try:
        await connection.execute("create extension if not exists vector")
    finally:
        await connection.close()


async def migrate(urls: Mapping[str, str]) -> None:
    """Brings every database to its newest revision; raises `EmbeddedError` with the reason."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "services.standalone",
        "migrate",
        env={**os.environ, **{f"DATABASE_URL_{name.upper()}": url for name, url in urls.items()}},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,  # Ctrl-C reaches it only through us
    )
    try:
        async with asyncio.timeout(MIGRATE_DEADLINE_S):
            _, errors = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode:
        raise EmbeddedError(f"cannot migrate the databases: {reason(errors.decode(errors='replace'))}")


def upgrade_all(urls: Mapping[str, str]) -> None:
    """What the process made by `migrate` does."""
    migrations = import_module("libs.chassis.migrations")
    for name, url in urls.items():
        migrations.upgrade(url, revisions(name))
