"""The servers in the wheels, as standalone runs them."""

import asyncio
import json
import os
import pwd
import shutil
import signal
import subprocess
import sys
import textwrap
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import asyncpg
import nats
import psutil
import pytest
from pydantic import SecretStr

from libs.chassis.app import Chassis
from services.memory.settings import MemorySettings
from services.standalone.embedded import EmbeddedError, EmbeddedNats, EmbeddedPostgres, free_port
from services.standalone.embedded.account import account_for
from tests.support.proxy import TcpProxy
from tests.support.servers import PostgresServer, create_database, drop_database, server_directory, template_database

REPOSITORY = Path(__file__).parents[2]
WITH_TOKEN = "nats://secret@127.0.0.1:4222"
NOBODY = pwd.getpwnam("nobody")
ABANDON_SERVERS = """
    import asyncio, os, signal, sys
    from pathlib import Path
    from services.standalone.embedded import EmbeddedNats, EmbeddedPostgres

    async def main(directory: Path) -> None:
        postgres, nats = EmbeddedPostgres(directory / "postgres", fsync=False), EmbeddedNats(directory / "nats")
        await postgres.start()
        await nats.start()
        print(os.geteuid(), postgres.pid, nats.pid, nats.port, flush=True)
        if sys.argv[2] == "abandon":
            os.kill(os.getpid(), signal.SIGKILL)
        await nats.stop()
        await postgres.stop()

    asyncio.run(main(Path(sys.argv[1])))
"""


@pytest.fixture
def directory() -> Iterator[Path]:
    with server_directory() as path:
        yield path


@pytest.fixture
async def database(directory: Path) -> AsyncIterator[EmbeddedPostgres]:
    server = EmbeddedPostgres(directory / "postgres", fsync=False)
    yield server
    await server.stop(immediate=True)


@pytest.fixture
async def broker(directory: Path) -> AsyncIterator[EmbeddedNats]:
    server = EmbeddedNats(directory / "nats")
    yield server
    await server.stop()


@pytest.fixture
def stranger(directory: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Runs as the account of Postgres: only of such a process does Postgres believe that it may be a postmaster."""
    account = account_for(directory)
    with subprocess.Popen(
        ["sleep", "60"], user=account.uid, group=account.gid, extra_groups=[] if account.uid else None
    ) as process:
        yield process
        process.kill()


async def execute(dsn: str, statement: str) -> None:
    connection = await asyncpg.connect(dsn, timeout=10)
    try:
        await connection.execute(statement, timeout=10)
    finally:
        await connection.close()


async def value(dsn: str, query: str) -> object:
    connection = await asyncpg.connect(dsn, timeout=10)
    try:
        return await connection.fetchval(query, timeout=10)
    finally:
        await connection.close()


async def socket_dir(server: EmbeddedPostgres) -> Path:
    return Path(str(await value(server.dsn(), "show unix_socket_directories")))


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


async def publish(url: str) -> int:
    client = await nats.connect(url, allow_reconnect=False)
    try:
        stream = client.jetstream()
        await stream.add_stream(name="KEPT", subjects=["kept.>"])
        return (await stream.publish("kept.fact", b"x", timeout=5)).seq
    finally:
        await client.close()


async def said_to_stranger(port: int, **claims: str) -> str:
    """What NATS says after its greeting; its own client would leave the refused connection open."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        await reader.readline()
        writer.write(f"CONNECT {json.dumps(claims)}\r\nPING\r\n".encode())
        return (await asyncio.wait_for(reader.readline(), 10)).decode()
    finally:
        writer.close()
        await writer.wait_closed()


def is_running(pid: int) -> bool:
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


def run_servers(directory: Path, then: str, *prefix: str) -> list[int]:
    """Start both servers in another process and answer its user, their pids and the port of NATS."""
    command = [*prefix, sys.executable, "-c", textwrap.dedent(ABANDON_SERVERS), str(directory), then]
    result = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=60)
    assert result.stdout, result.stderr
    return [int(word) for word in result.stdout.split()]


async def test_postgres_keeps_its_data_over_a_restart(database: EmbeddedPostgres) -> None:
    await database.start()
    await execute(database.dsn(), "create table kept as select 7 as number")
    await database.stop()
    assert database.pid is None

    await database.start()

    assert await value(database.dsn(), "select number from kept") == 7


async def test_postgres_listens_on_a_private_unix_socket_only(database: EmbeddedPostgres) -> None:
    await database.start()

    assert await value(database.dsn(), "show listen_addresses") == ""
    assert mode(await socket_dir(database)) == 0o700


async def test_postgres_has_the_same_order_of_words_everywhere(database: EmbeddedPostgres) -> None:
    await database.start()

    locale = "select datlocprovider::text || datlocale || pg_encoding_to_char(encoding) from pg_database limit 1"
    assert await value(database.dsn(), locale) == "bC.UTF-8UTF8"


async def test_a_path_too_long_for_a_socket_still_works(directory: Path) -> None:
    server = EmbeddedPostgres(directory / ("long" * 20) / "data, with a comma", fsync=False)
    await server.start()
    try:
        assert await value(server.dsn(), "select 1") == 1
        sockets = await socket_dir(server)
    finally:
        await server.stop()

    assert not sockets.is_relative_to(directory)
    assert mode(sockets) == 0o700
    shutil.rmtree(sockets)


async def test_postgres_starts_after_a_kill_and_keeps_what_was_committed(database: EmbeddedPostgres) -> None:
    await database.start()
    await execute(database.dsn(), "create table kept as select 7 as number")

    database.kill()
    await database.start()

    assert await value(database.dsn(), "select number from kept") == 7


async def test_a_lock_file_whose_pid_went_to_another_process_does_not_prevent_the_start(
    database: EmbeddedPostgres, stranger: subprocess.Popen[bytes]
) -> None:
    await database.start()
    lock = database.data_dir / "postmaster.pid"
    _, *rest = lock.read_text().splitlines()
    database.kill()
    lock.write_text("\n".join([str(stranger.pid), *rest]) + "\n")

    await database.start()

    assert await value(database.dsn(), "select 1") == 1
    assert stranger.poll() is None


async def test_backends_that_outlive_their_postmaster_are_ended(database: EmbeddedPostgres) -> None:
    await database.start()
    assert database.pid is not None
    backends = psutil.Process(database.pid).children()
    for backend in backends:
        backend.suspend()
    os.kill(database.pid, signal.SIGKILL)
    await database.stop()

    await database.start()

    assert await value(database.dsn(), "select 1") == 1
    assert not [backend.pid for backend in backends if is_running(backend.pid)]


async def test_data_of_another_major_is_named_and_left_alone(database: EmbeddedPostgres) -> None:
    await database.start()
    await database.stop()
    version = database.data_dir / "PG_VERSION"
    ours = version.read_text()
    version.write_text("15\n")

    with pytest.raises(EmbeddedError, match=r"Postgres 15.*`memstream export`.*`memstream import`") as caught:
        await database.start()

    assert "\n" not in str(caught.value)
    version.write_text(ours)
    await database.start()


async def test_a_directory_in_use_is_refused_and_its_servers_go_on(
    directory: Path, database: EmbeddedPostgres, broker: EmbeddedNats
) -> None:
    await database.start()
    await broker.start()

    with pytest.raises(EmbeddedError, match=f"already in use by process {os.getpid()}; MEMSTREAM_DATA_DIR"):
        await EmbeddedPostgres(directory / "postgres", fsync=False).start()
    with pytest.raises(EmbeddedError, match=f"already in use by process {os.getpid()}; MEMSTREAM_DATA_DIR"):
        await EmbeddedNats(directory / "nats").start()
    with pytest.raises(EmbeddedError, match="already in use"):
        await database.start()

    assert await value(database.dsn(), "select 1") == 1
    assert await publish(broker.url) == 1


async def test_a_postgres_that_someone_else_started_is_refused_and_goes_on(database: EmbeddedPostgres) -> None:
    await database.start()
    database.data_dir.with_name("postgres.pid").unlink()

    with pytest.raises(
        EmbeddedError, match=f"already in use by the Postgres with pid {database.pid}; MEMSTREAM_DATA_DIR"
    ):
        await EmbeddedPostgres(database.data_dir, fsync=False).start()

    assert await value(database.dsn(), "select 1") == 1


@pytest.mark.parametrize("server", [EmbeddedPostgres, EmbeddedNats])
async def test_a_place_that_cannot_be_written_is_one_line(
    directory: Path, server: type[EmbeddedPostgres] | type[EmbeddedNats]
) -> None:
    (directory / "file").write_text("")

    with pytest.raises(EmbeddedError, match=r"^cannot use .*/file/data: \w[^\n]*$"):
        await server(directory / "file" / "data").start()


async def test_a_directory_with_something_else_in_it_is_left_alone(directory: Path) -> None:
    theirs = directory / "postgres" / "thesis.txt"
    theirs.parent.mkdir()
    theirs.write_text("mine")

    with pytest.raises(EmbeddedError, match="is not empty and holds no Postgres data"):
        await EmbeddedPostgres(theirs.parent, fsync=False).start()

    assert [path.name for path in theirs.parent.iterdir()] == ["thesis.txt"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root runs Postgres as somebody else")
async def test_root_may_keep_the_directory_above_closed(directory: Path) -> None:
    closed = directory / "closed"
    closed.mkdir(mode=0o700)
    database = EmbeddedPostgres(closed / "postgres", fsync=False)

    await database.start()
    try:
        await execute(database.dsn(), "select 1")
    finally:
        await database.stop()

    assert closed.stat().st_mode & 0o777 == 0o700


async def test_a_wrong_setting_is_told_in_one_line(directory: Path) -> None:
    server = EmbeddedPostgres(directory / "postgres", fsync=False, settings={"shared_buffers": "lots"})

    with pytest.raises(EmbeddedError, match=r'did not start: invalid value for parameter "shared_buffers": "lots"$'):
        await server.start()


async def test_nats_keeps_its_port_and_its_messages(directory: Path, broker: EmbeddedNats) -> None:
    await broker.start()
    url = broker.url
    assert await publish(url) == 1

    broker.kill()
    await broker.start()
    assert await publish(url) == 2
    await broker.stop()
    next_run = EmbeddedNats(directory / "nats")
    await next_run.start()

    try:
        assert await publish(url) == 3
    finally:
        await next_run.stop()


async def test_nats_answers_nobody_without_the_token_of_its_private_configuration(broker: EmbeddedNats) -> None:
    await broker.start()

    assert "Authorization Violation" in await said_to_stranger(broker.port)
    assert "Authorization Violation" in await said_to_stranger(broker.port, auth_token="guess")
    configuration = broker.data_dir.with_name("nats.conf")
    assert mode(configuration) == 0o600
    assert broker.url.partition("@")[0].removeprefix("nats://") in configuration.read_text()
    assert broker.pid is not None
    assert "@" not in " ".join(psutil.Process(broker.pid).cmdline())
    assert await publish(broker.url) == 1


async def test_a_configuration_of_an_older_version_gets_a_token_and_keeps_its_port(broker: EmbeddedNats) -> None:
    port = free_port()
    configuration = broker.data_dir.with_name("nats.conf")
    configuration.write_text(f'listen: "127.0.0.1:{port}"\nmax_payload: 1MB\njetstream {{ sync_interval: 2s }}\n')
    configuration.chmod(0o644)

    await broker.start()

    assert broker.port == port
    assert mode(configuration) == 0o600
    assert await publish(broker.url) == 1
    assert "Authorization Violation" in await said_to_stranger(port)


def test_the_bus_hides_the_token_of_its_address() -> None:
    chassis = Chassis("memory", MemorySettings(database_url=SecretStr("postgresql://"), nats_url=SecretStr(WITH_TOKEN)))

    assert "secret" not in chassis.bus.asyncapi + repr(chassis.settings)


async def test_nats_starts_empty_on_the_same_port_when_its_directory_is_gone(broker: EmbeddedNats) -> None:
    await broker.start()
    url = broker.url
    await publish(url)

    shutil.rmtree(broker.data_dir)
    broker.kill()
    await broker.start()

    assert await publish(url) == 1


async def test_a_port_that_is_taken_is_told_in_one_line(directory: Path, broker: EmbeddedNats) -> None:
    await broker.start()

    with pytest.raises(EmbeddedError, match=f"cannot listen on 127.0.0.1:{broker.port}: the port is taken"):
        await EmbeddedNats(directory / "other", port=broker.port).start()


async def test_the_orphans_of_a_killed_run_are_ended_before_the_next(
    directory: Path, database: EmbeddedPostgres, broker: EmbeddedNats
) -> None:
    _, postgres_pid, nats_pid, port = await asyncio.to_thread(run_servers, directory, "abandon")
    assert is_running(postgres_pid)
    assert is_running(nats_pid)

    await database.start()
    await broker.start()

    assert not is_running(postgres_pid)
    assert not is_running(nats_pid)
    assert broker.port == port
    assert await value(database.dsn(), "select 1") == 1


async def test_a_process_that_got_the_pid_of_an_orphan_is_left_alone(
    directory: Path, broker: EmbeddedNats, stranger: subprocess.Popen[bytes]
) -> None:
    started = psutil.Process(stranger.pid).create_time()
    (directory / "nats.pid").write_text(json.dumps({"owner": 1, "server": stranger.pid, "started": started}))

    await broker.start()

    assert stranger.poll() is None


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("setpriv"), reason="the other tests run without rights")
async def test_both_servers_run_without_rights(directory: Path) -> None:
    os.chown(directory, NOBODY.pw_uid, NOBODY.pw_gid)
    # The capability lets the other user read a Python under /root; it makes nobody root.
    as_nobody = [f"--reuid={NOBODY.pw_uid}", f"--regid={NOBODY.pw_gid}", "--clear-groups"]
    may_read = ["--securebits=+no_setuid_fixup", "--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search"]

    user, *_ = await asyncio.to_thread(run_servers, directory, "stop", "setpriv", *as_nobody, *may_read)

    assert user == NOBODY.pw_uid
    assert (directory / "postgres" / "PG_VERSION").stat().st_uid == NOBODY.pw_uid


async def test_a_copy_of_a_template_is_fresh_and_goes_away(postgres: PostgresServer) -> None:
    async def migrate(dsn: str) -> None:
        await execute(dsn, "create table migrated (id int)")

    template = await template_database(postgres, "embedded", migrate)
    assert await template_database(postgres, "embedded", migrate) == template
    first = await create_database(postgres, template)
    second = await create_database(postgres, template)
    await execute(first, "insert into migrated values (1)")

    assert await value(first, "select count(*) from migrated") == 1
    assert await value(second, "select count(*) from migrated") == 0

    await drop_database(postgres, first)
    await drop_database(postgres, second)
    with pytest.raises(asyncpg.InvalidCatalogNameError):
        await value(first, "select 1")


async def test_a_proxy_cuts_stalls_and_refuses(database: EmbeddedPostgres) -> None:
    await database.start()
    async with TcpProxy(f"{await socket_dir(database)}/.s.PGSQL.5432", record=True) as proxy:
        dsn = f"postgresql://postgres@{proxy.address}/postgres?sslmode=disable"
        connection = await asyncpg.connect(dsn, timeout=5)
        assert await connection.fetchval("select 'seen on the wire'") == "seen on the wire"
        assert b"seen on the wire" in proxy.recorded

        proxy.stall()
        with pytest.raises(TimeoutError):
            await connection.fetchval("select 1", timeout=0.2)
        await proxy.resume()
        proxy.cut()
        with pytest.raises((asyncpg.PostgresConnectionError, asyncpg.InterfaceError, OSError)):
            await connection.fetchval("select 1", timeout=5)
        assert await value(dsn, "select 1") == 1

        proxy.refuse()
        with pytest.raises(ConnectionRefusedError):
            await asyncpg.connect(dsn, timeout=5)
        await proxy.resume()
        assert await value(dsn, "select 1") == 1
        assert proxy.to_server_bytes == len(proxy.recorded)
        assert proxy.to_client_bytes > 0
