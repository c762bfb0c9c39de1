"""Connections: lent in the order of asking, never used again with something under way, never lost."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress

import asyncpg
import pytest

from libs.chassis import pool as pools
from libs.chassis.database import Database
from libs.chassis.errors import Contended, OutcomeUnknown, Unavailable
from tests.support.servers import PostgresServer

BACKEND = "select pg_backend_pid()"
WAIT_S = 0.3
HUNG_S = 60.0


@pytest.fixture
async def one(postgres: PostgresServer) -> AsyncIterator[Database]:
    """With a single connection, so that whatever is not given back shows."""
    opened = Database(postgres.dsn("postgres"), pool_size=1, acquire_timeout_s=5.0)
    yield opened
    await opened.close()


async def test_a_connection_is_used_again(one: Database) -> None:
    assert await one.fetchval(BACKEND) == await one.fetchval(BACKEND)


async def test_nothing_is_said_on_a_connection_whose_statement_was_given_up(one: Database) -> None:
    before = await one.fetchval(BACKEND)
    with suppress(TimeoutError):
        await asyncio.wait_for(one.fetch("select pg_sleep($1)", HUNG_S), WAIT_S)

    assert await one.fetchval(BACKEND) != before


async def test_nothing_is_said_on_a_connection_whose_statement_took_too_long(postgres: PostgresServer) -> None:
    hasty = Database(postgres.dsn("postgres"), pool_size=1, statement_timeout_s=WAIT_S)
    try:
        for ask in (hasty.fetch, hasty.write):
            before = await hasty.fetchval(BACKEND)
            with pytest.raises((Unavailable, OutcomeUnknown)):
                await ask("select pg_sleep($1)", HUNG_S)

            assert await hasty.fetchval(BACKEND) != before
    finally:
        await hasty.close()


async def test_a_transaction_that_gave_up_waiting_leaves_its_connection_usable(
    one: Database, postgres: PostgresServer
) -> None:
    async def wait() -> None:
        async with one.transaction() as connection:
            await connection.execute("set local lock_timeout = 50")
            await connection.execute("select pg_advisory_xact_lock(7)")

    holder = await asyncpg.connect(postgres.dsn("postgres"))
    try:
        await holder.execute("select pg_advisory_lock(7)")
        before = await one.fetchval(BACKEND)
        with pytest.raises(Contended):
            await wait()

        assert await one.fetchval(BACKEND) == before
    finally:
        await holder.close()


async def test_a_refused_statement_leaves_its_connection_usable(one: Database) -> None:
    before = await one.fetchval(BACKEND)
    with pytest.raises(asyncpg.UndefinedTableError):
        await one.fetch("select * from nowhere")

    assert await one.fetchval(BACKEND) == before


@pytest.mark.parametrize("failure", [ValueError, asyncio.CancelledError])
async def test_a_failed_transaction_leaves_nothing_behind(one: Database, failure: type[BaseException]) -> None:
    await one.write("create table if not exists pool_test (n int)")

    async def fail() -> None:
        async with one.transaction() as connection:
            await connection.execute("insert into pool_test values (1)")
            raise failure

    with pytest.raises(failure):
        await fail()
    assert await one.fetchval("select count(*) from pool_test") == 0
    assert not await one.fetchval("select pg_current_xact_id_if_assigned() is not null")


async def test_a_killed_connection_costs_one_answer(one: Database, postgres: PostgresServer) -> None:
    other = Database(postgres.dsn("postgres"), pool_size=1)
    try:
        await other.fetch("select pg_terminate_backend($1)", await one.fetchval(BACKEND))
    finally:
        await other.close()
    with suppress(Unavailable):  # unless the loop has seen its end by now
        await one.fetchval("select 1")

    assert await one.fetchval("select 1") == 1


async def test_who_gives_up_waiting_takes_no_turn_away(one: Database) -> None:
    async with one.connection():
        waiting = [asyncio.create_task(one.fetchval("select 1")) for _ in range(3)]
        await asyncio.sleep(0)
        for task in waiting[:2]:
            task.cancel()
    assert await waiting[2] == 1
    assert await one.fetchval("select 1") == 1


async def test_who_asked_first_is_first(one: Database) -> None:
    served: list[int] = []

    async def ask(number: int) -> None:
        async with one.connection():
            served.append(number)
            await asyncio.sleep(0)

    async with one.connection():
        tasks = [asyncio.create_task(ask(number)) for number in range(20)]
        await asyncio.sleep(0)
    await asyncio.gather(*tasks)

    assert served == list(range(20))


async def test_waiting_ends_with_an_answer(postgres: PostgresServer) -> None:
    busy = Database(postgres.dsn("postgres"), pool_size=1, acquire_timeout_s=WAIT_S)
    try:
        async with busy.connection():
            with pytest.raises(Unavailable):
                await busy.fetchval("select 1")
    finally:
        await busy.close()


async def test_a_connection_that_nobody_needs_is_closed(
    postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = Database(postgres.dsn("postgres"), pool_size=2)
    try:
        async with opened.connection(), opened.connection() as second:
            unused = second.get_server_pid()
        monkeypatch.setattr(pools, "IDLE_S", 0.0)
        for _ in range(3):
            await opened.fetchval("select 1")

        monkeypatch.undo()
        async with opened.connection() as first, opened.connection() as another:
            assert unused not in (first.get_server_pid(), another.get_server_pid())
    finally:
        await opened.close()


async def test_closing_ends_what_is_lent(postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pools, "CLOSE_TIMEOUT_S", WAIT_S)
    opened = Database(postgres.dsn("postgres"), pool_size=2)
    async with opened.connection() as held:
        await opened.close()

        assert held.is_closed()
