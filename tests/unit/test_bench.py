"""The bench measures what it says: its windows, its client, its rows and its file. No test here asserts a time."""

import asyncio
import inspect
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.bench import limit
from tests.bench.client import BadAnswer, connections, request_bytes
from tests.bench.conversations import Figures, Question
from tests.bench.peer import PeerFailed, measured
from tests.bench.report import Machine, Row, Target, at_least, at_most, ordered, warnings, write
from tests.bench.session_peers import peer_rows
from tests.bench.windows import Window, percentile, side_by_side, window

MACHINE = Machine(2, "18.6", "on", "on", "abc1234")
MET = Row("met", "/s", 300.0, 1000.0, at_least(0.18), "")
MISSED = Row("missed", "ms", 251.0, None, at_most(250), "")
UNASKED = Row("unasked", "ms", 1.0, None, None, "")


def program(path: Path, script: str) -> Path:
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


async def test_a_peer_is_measured_by_the_last_line_that_its_program_prints(tmp_path: Path) -> None:
    python = program(tmp_path / "python", """echo loading; echo "{\\"asked\\": \\"$*\\"}" """)

    assert await measured("any", "dsn", "3.0", python=python) == {"asked": "-m tests.bench.peers.any dsn 3.0"}


@pytest.mark.parametrize(
    ("script", "reason"),
    [("echo no such database >&2; exit 3", "any ended with status 3:\nno such database"), ("echo done", "status 0")],
)
async def test_a_peer_that_measures_nothing_says_why(tmp_path: Path, script: str, reason: str) -> None:
    with pytest.raises(PeerFailed, match=reason):
        await measured("any", python=program(tmp_path / "python", script))


async def test_a_peer_without_its_environment_says_how_to_make_it(tmp_path: Path) -> None:
    with pytest.raises(PeerFailed, match="make build/peers"):
        await measured("any", python=tmp_path / "none")


def test_each_peer_has_a_row_for_each_number_of_clients() -> None:
    ours = {f"{clients}": Window(100, 1, 2, 0.1) for clients in (1, 8, 32)}
    peers = {"SQLAlchemySession": {f"append {clients}": Window(40, 2, 3, 0.1) for clients in (1, 8, 32)}}

    rows = peer_rows("append", "append 2 items", ours, peers)

    assert [row.ratio for row in rows] == [2.5, 2.5, 2.5]
    assert [row.met for row in rows] == [None, True, None]


def test_the_limit_stays_below_60_lines() -> None:
    assert len(inspect.getsource(limit).splitlines()) < 60


@pytest.mark.parametrize(
    ("share", "expected"), [(0.0, 1.0), (0.25, 1.0), (0.5, 2.0), (0.75, 3.0), (0.76, 4.0), (0.95, 4.0), (1.0, 4.0)]
)
def test_a_percentile_is_a_value_that_was_measured(share: float, expected: float) -> None:
    assert percentile([4.0, 1.0, 3.0, 2.0], share) == expected


def test_nothing_measured_has_no_percentile() -> None:
    with pytest.raises(ValueError, match="nothing was measured"):
        percentile([], 0.5)


def test_the_middle_of_windows_is_the_median_of_each_figure() -> None:
    windows = [Window(10, 3, 9, 0.1), Window(30, 1, 7, 0.3), Window(20, 2, 8, 0.2)]

    assert Window.middle(windows) == Window(20, 2, 8, 0.2)


async def test_a_window_counts_every_step_of_every_client() -> None:
    counts = [0, 0, 0]

    def client(number: int) -> None:
        counts[number] += 1

    async def step(number: int) -> None:
        client(number)
        await asyncio.sleep(0.001)

    found = await window([lambda n=number: step(n) for number in range(3)], 0.05)  # type: ignore[misc]

    assert min(counts) > 0
    assert found.per_s > 0


async def test_a_failing_step_ends_the_window() -> None:
    async def step() -> None:
        raise BadAnswer("500")

    with pytest.raises(ExceptionGroup) as failed:
        await window([step], 1.0)

    assert failed.group_contains(BadAnswer)


async def test_loads_take_turns() -> None:
    said: list[str] = []

    async def step(name: str) -> None:
        if not said or said[-1] != name:
            said.append(name)
        await asyncio.sleep(0.001)

    await side_by_side({"a": [lambda: step("a")], "b": [lambda: step("b")]}, 0.01)

    assert said == ["a", "b"] * 6  # a warm-up and five windows


@asynccontextmanager
async def answering(*pieces: bytes) -> AsyncIterator[str]:
    """A server that reads a request's head and sends these pieces, each by itself."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                await reader.readuntil(b"\r\n\r\n")
                for piece in pieces:
                    writer.write(piece)
                    await writer.drain()
                    await asyncio.sleep(0.005)
        except asyncio.IncompleteReadError:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


@pytest.mark.parametrize(
    "pieces",
    [
        [b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello"],
        [b"HTTP/1.1 200 OK\r\nContent-", b"Length: 5\r\nx: y\r\n", b"\r\nhe", b"llo"],
    ],
)
async def test_the_client_reads_an_answer_however_it_arrives(pieces: Sequence[bytes]) -> None:
    async with answering(*pieces) as url, connections(url, 1) as (connection,):
        answers = [await connection.ask(request_bytes("GET", "/", {})) for _ in range(3)]

    assert answers == [b"hello"] * 3


async def test_an_answer_that_is_no_success_is_an_error() -> None:
    async with answering(b"HTTP/1.1 503 No\r\ncontent-length: 4\r\n\r\naway") as url, connections(url, 1) as (one,):
        with pytest.raises(BadAnswer, match="503: away"):
            await one.ask(request_bytes("GET", "/", {}))


async def test_a_closed_connection_is_an_error() -> None:
    async with answering() as url, connections(url, 1) as (one,):
        one.close()
        with pytest.raises(ConnectionResetError):
            await one.ask(request_bytes("GET", "/", {}))


def test_a_request_says_its_length() -> None:
    request = request_bytes("POST", "/a?b=c", {"Idempotency-Key": "k"}, b"{}")

    head, _, body = request.partition(b"\r\n\r\n")
    assert head.splitlines()[0] == b"POST /a?b=c HTTP/1.1"
    assert b"Idempotency-Key: k" in head
    assert b"Content-Length: 2" in head
    assert body == b"{}"


@pytest.mark.parametrize(
    ("row", "ratio", "met"),
    [
        (MET, 0.3, True),
        (Row("", "/s", 170, 1000, at_least(0.18), ""), 0.17, False),
        (Row("", "ms", 5, 1, at_most(5), ""), 5, True),
        (Row("", "ms", 6, 1, at_most(5), ""), 6, False),
        (MISSED, None, False),
        (UNASKED, None, None),
    ],
)
def test_a_target_is_for_the_ratio_where_there_is_a_reference(row: Row, ratio: float | None, met: bool | None) -> None:
    assert row.ratio == ratio
    assert row.met is met


def test_missed_targets_come_first() -> None:
    assert ordered([MET, UNASKED, MISSED]) == [MISSED, MET, UNASKED]


def test_the_file_has_the_machine_in_its_first_line_and_a_row_in_each(tmp_path: Path) -> None:
    path = tmp_path / "build" / "bench.json"

    write(path, MACHINE, [MET, MISSED])

    lines = path.read_text().splitlines()
    assert all(word in lines[0] for word in ("processors", "18.6", "synchronous_commit", "fsync", "abc1234"))
    assert json.loads(lines[1].rstrip(",")) == {
        "name": "met",
        "ours": 300.0,
        "reference": 1000.0,
        "ratio": 0.3,
        "target": "≥ 0.18",
        "met": True,
        "unit": "/s",
        "note": "",
    }
    assert [row["name"] for row in json.loads(path.read_text())["rows"]] == ["met", "missed"]


@pytest.mark.parametrize(("limit_per_s", "expected"), [(12_000, 0), (5_999, 1)])
def test_a_limit_far_below_the_reference_machine_is_told(limit_per_s: float, expected: int) -> None:
    row = Row("append 2 items, 8 clients", "/s", 2000, limit_per_s, Target("≥", 0.18), "")

    assert len(warnings([row])) == expected


def test_recall_is_the_share_of_the_evidence_among_the_first_hits() -> None:
    found = [f"D1:{number}" for number in range(1, 11)]
    answered = [
        (Question("ana", "q", "c", frozenset({"D1:2", "D1:7"})), found),
        (Question("ana", "q", "c", frozenset({"D9:9"})), found),
    ]

    assert Figures.of(answered) == Figures(at_5=0.25, at_10=0.5, mrr=0.25)
