"""The one-process form starts, stops and refuses: one clear line, the right status, nothing damaged."""

import signal
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from tests.support.servers import server_directory
from tests.support.standalone import StandaloneProcess


@pytest.fixture
def directory() -> Iterator[Path]:
    with server_directory() as directory:
        yield directory


def children_of(directory: Path) -> list[psutil.Process]:
    return [process for process in psutil.process_iter() if str(directory) in " ".join(_command(process))]


def _command(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []


def refused(process: StandaloneProcess) -> str:
    """The one line of a start that exits with status 1."""
    status, errors = process.fails()
    assert status == 1, errors
    (line,) = errors.splitlines()
    return line


def test_ctrl_c_is_quiet_and_leaves_no_child(directory: Path) -> None:
    process = StandaloneProcess(directory / "data")
    process.start()

    assert process.stop(signal.SIGINT) == (0, "")
    assert children_of(directory) == []


def test_a_stop_waits_neither_for_a_watch_nor_for_half_a_request(directory: Path) -> None:
    process = StandaloneProcess(directory / "data")
    process.start()
    with process.client() as client:
        client.memory_stores.create("memories")
        client.session_stores.create("sessions").add(actor_id="ines", session_id="s")
    head = f"HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {process.token}\r\n"
    base = "/api/2.0/agents"
    with (
        connection(process.port, f"GET {base}/memory-stores/memories/entries:watch {head}\r\n") as watch,
        connection(
            process.port,
            f"POST {base}/session-stores/sessions/sessions/s/items:append {head}Content-Length: 100\r\n\r\n{{",
        ),
        connection(process.port, f"GET {base}/session-stores {head}"),
    ):
        assert watch.recv(15) == b"HTTP/1.1 200 OK"
        asked = time.monotonic()

        assert process.stop() == (0, "")

    assert time.monotonic() - asked < 6
    assert children_of(directory) == []


@contextmanager
def connection(port: int, sent: str) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", port), timeout=30) as opened:
        opened.sendall(sent.encode())
        yield opened


def test_a_models_file_that_is_not_there_is_status_2(directory: Path) -> None:
    file = directory / "models.json"

    status, errors = StandaloneProcess(directory / "data", variables={"MODELS_FILE": str(file)}).fails()

    assert (status, errors) == (2, f"error: MODELS_FILE {file}: No such file or directory\n")
    assert children_of(directory) == []


def test_data_and_tokens_outlive_restarts_and_a_kill(directory: Path) -> None:
    process = StandaloneProcess(directory / "data")
    process.start()
    token = process.token
    with process.client() as client:
        client.session_stores.create("kept").add(actor_id="ines", session_id="s").append_items(["before"])
    process.stop(signal.SIGKILL)

    process.start()

    with process.client() as client:
        session = client.session_stores.get("kept").get("s")
        assert [item.data for item in session.list_items()] == ["before"]
    process.lines = [f"export MEMSTREAM_TOKEN={token}"]
    with process.client() as client:
        assert client.session_stores.get("kept").name == "kept"
    assert process.stop() == (0, "")


def test_a_directory_in_use_is_refused_and_the_owner_goes_on(directory: Path) -> None:
    owner = StandaloneProcess(directory / "data")
    owner.start()

    line = refused(StandaloneProcess(directory / "data"))

    assert "is already in use by process" in line
    with owner.client() as client:
        client.session_stores.create("still-here")
    assert owner.stop() == (0, "")


def test_a_port_that_is_taken_is_refused_before_anything_is_made(directory: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]

        line = refused(StandaloneProcess(directory / "data", port=port))

    assert line == f"error: cannot listen on 127.0.0.1:{port}: Address already in use; set MEMSTREAM_PORT"
    assert not (directory / "data").exists()


def test_a_directory_that_cannot_be_written_is_refused(directory: Path) -> None:
    (directory / "file").write_text("not a directory")

    line = refused(StandaloneProcess(directory / "file" / "data"))

    assert line.startswith(f"error: cannot use {directory}/file/data: ")


def test_data_of_another_postgres_is_refused_and_left_alone(directory: Path) -> None:
    postgres = directory / "data" / "postgres"
    postgres.mkdir(parents=True)
    (postgres / "PG_VERSION").write_text("15\n")

    line = refused(StandaloneProcess(directory / "data"))

    assert "holds data of Postgres 15" in line
    assert "memstream export" in line
    assert [path.name for path in postgres.iterdir()] == ["PG_VERSION"]


def test_an_unknown_variable_is_status_2(directory: Path) -> None:
    status, errors = StandaloneProcess(directory / "data", variables={"MEMSTREAM_DATADIR": "x"}).fails()

    assert (status, errors) == (2, "error: unknown setting MEMSTREAM_DATADIR: did you mean MEMSTREAM_DATA_DIR?\n")


def test_a_server_that_dies_ends_the_process_with_one_line(directory: Path) -> None:
    process = StandaloneProcess(directory / "data")
    process.start()
    nats = next(child for child in children_of(directory) if child.name() == "nats-server")

    nats.kill()

    status, errors = process.wait()
    assert status == 1
    assert "error: NATS ended by itself; nothing is lost, start again" in errors.splitlines()
    assert children_of(directory) == []
