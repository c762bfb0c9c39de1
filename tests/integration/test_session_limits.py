"""What one client or one tenant cannot do to a replica: fill it, or hold a connection for ever."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import asyncpg
import httpx
import pytest

from libs.contracts.limits import Limits
from services.session.app import REVISIONS
from tests.support.servers import PostgresServer
from tests.support.service import Keys, chassis_of, database, key_directory, served, until
from tests.support.session import STORES, SessionService, session_app, session_service

WAIT_S = 0.5
LIMITS = Limits(
    requests_per_workspace=3,
    body_bytes=100_000,
    head_bytes=8_000,
    head_deadline_s=WAIT_S,
    body_deadline_s=WAIT_S,
    answer_deadline_s=WAIT_S,
)
DEADLINE_S = 30.0  # far above every deadline of the product


@dataclass(frozen=True)
class Server:
    url: httpx.URL
    keys: Keys
    app: Any

    @property
    def bearer(self) -> str:
        return f"Authorization: Bearer {self.keys.token()}"

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
        reader, writer = await asyncio.open_connection(self.url.host, self.url.port)
        try:
            yield reader, writer
        finally:
            writer.transport.abort()

    async def answer(self, *sent: bytes, pause_s: float = 0.0) -> tuple[int, Any]:
        """Status and JSON of what comes back until the server closes the connection; 0 when nothing comes."""
        async with asyncio.timeout(DEADLINE_S), self.connection() as (reader, writer):
            trickle = asyncio.ensure_future(_send(writer, sent, pause_s))
            try:
                received = await _until_closed(reader)
            finally:
                trickle.cancel()
        head, _, body = received.partition(b"\r\n\r\n")
        return (int(head[9:12]), json.loads(body)) if received else (0, None)


async def _send(writer: asyncio.StreamWriter, chunks: tuple[bytes, ...], pause_s: float) -> None:
    for chunk in chunks:
        writer.write(chunk)
        await asyncio.sleep(pause_s)


async def _until_closed(reader: asyncio.StreamReader) -> bytes:
    received = b""
    try:
        while chunk := await reader.read(65_536):
            received += chunk
    except ConnectionError:
        pass
    return received


@pytest.fixture(scope="module")
async def server(postgres: PostgresServer) -> AsyncIterator[Server]:
    with key_directory() as keys:
        async with database(postgres, "session", REVISIONS) as dsn:
            app = session_app(dsn, keys, limits=LIMITS)
            async with served(app, keep_alive_s=1) as url:
                yield Server(httpx.URL(url), keys, app)


def head(server: Server, *more: str, bearer: bool = True) -> bytes:
    lines = [f"POST {STORES}?session_store_id=abc HTTP/1.1", "Host: x", *([server.bearer] if bearer else []), *more]
    return "\r\n".join([*lines, "", ""]).encode()


async def test_a_client_that_never_ends_its_headers_is_left(server: Server) -> None:
    endless = (f"GET {STORES} HTTP/1.1\r\n".encode(), *[b"X-More: 1\r\n"] * 1000)

    assert await server.answer(*endless, pause_s=WAIT_S / 5) == (0, None)


async def test_a_client_that_says_nothing_is_left(server: Server) -> None:
    assert await server.answer(b"") == (0, None)


async def test_a_client_that_says_nothing_more_is_left(server: Server) -> None:
    status, body = await server.answer(f"GET {STORES} HTTP/1.1\r\nHost: x\r\n{server.bearer}\r\n\r\n".encode())

    assert (status, body) == (200, {"session_stores": []})


async def test_a_client_that_sends_blank_lines_is_left(server: Server) -> None:
    assert await server.answer(*[b"\r\n"] * 1000, pause_s=WAIT_S / 5) == (0, None)


async def test_headers_over_their_limit_are_431_whole_or_endless(server: Server) -> None:
    whole = await server.answer(head(server, f"X-Large: {'x' * LIMITS.head_bytes}", "Connection: close"))
    endless = await server.answer(*[b"GET / HTTP/1.1\r\nX-Large: ", *[b"x" * 1000] * 1000], pause_s=0.001)

    for status, body in (whole, endless):
        assert (status, body["error_code"]) == (431, "INVALID_PARAMETER_VALUE")


async def test_a_body_that_does_not_come_whole_in_time_is_408(server: Server) -> None:
    declared = head(server, "Content-Length: 1000")
    chunked = head(server, "Transfer-Encoding: chunked")

    silent = await server.answer(declared)
    trickling = await server.answer(declared, *[b" "] * 900, pause_s=WAIT_S / 5)
    endless = await server.answer(chunked, *[b"1\r\n \r\n"] * 1000, pause_s=WAIT_S / 5)

    for status, body in (silent, trickling, endless):
        assert (status, body["error_code"]) == (408, "INVALID_PARAMETER_VALUE")
    assert await _stores(server) == 0


@pytest.mark.parametrize("path", ["?session_store_id=abc", "/abc/sessions/s/items:append"], ids=["FastAPI's", "plain"])
async def test_a_late_body_is_counted_as_what_it_was_answered(server: Server, path: str) -> None:
    request = f"POST {STORES}{path} HTTP/1.1\r\nHost: x\r\n{server.bearer}\r\nContent-Length: 9\r\n\r\n"
    before = _counted(server)

    assert (await server.answer(request.encode()))[0] == 408

    await until(lambda: _counted(server) != before)
    assert _counted(server) - before == Counter({"408": 1})


def _counted(server: Server) -> Counter[str]:
    """POST requests by the status that the metrics have."""
    (metric,) = chassis_of(server.app).metrics.requests.collect()
    return Counter(
        {
            sample.labels["status"]: int(sample.value)
            for sample in metric.samples
            if sample.name.endswith("_total") and sample.labels["method"] == "POST"
        }
    )


BEHIND: dict[str, Callable[[Server], bytes]] = {
    "half a body": lambda server: head(server, "Content-Length: 1000") + b"{",
    "what is no HTTP": lambda _: b"\x16\x03\x01 hello\r\n\r\n",
    "half a head": lambda _: f"GET {STORES} HTTP/1.1\r\nX: ".encode(),
    "too long a head": lambda _: f"GET {STORES} HTTP/1.1\r\nX: ".encode() + b"x" * 2 * LIMITS.head_bytes,
}


@pytest.mark.parametrize("behind", BEHIND)
async def test_a_request_has_its_own_answer_whatever_comes_behind_it(server: Server, behind: str) -> None:
    store = f"behind-{behind.replace(' ', '-').lower()}"
    body = json.dumps({"items": [{"data": 1}]})
    async with httpx.AsyncClient(base_url=server.url, headers=server.keys.header()) as client:
        await client.post(STORES, params={"session_store_id": store}, json={})
        await client.post(f"{STORES}/{store}/sessions", params={"session_id": "s1"}, json={"actor_id": "ana"})
    lines = [f"POST {STORES}/{store}/sessions/s1/items:append HTTP/1.1", "Host: x", server.bearer]
    append = "\r\n".join([*lines, f"Content-Length: {len(body)}", "", body]).encode()
    database = chassis_of(server.app).database

    async with asyncio.timeout(DEADLINE_S), server.connection() as (reader, writer):
        async with database.transaction() as holder:
            await holder.execute("select from sessions for update")
            writer.write(append)
            await asyncio.sleep(0.1)
            writer.write(BEHIND[behind](server))
            await asyncio.sleep(WAIT_S * 3)
        received = await _until_closed(reader)

    first, _, _ = received.partition(b"\r\n")
    assert first == b"HTTP/1.1 200 OK"
    assert b'"position":1' in received


async def test_a_client_that_goes_on_sending_after_its_answer_is_left(server: Server) -> None:
    too_large = head(server, f"Content-Length: {LIMITS.body_bytes + 1}")

    status, body = await server.answer(too_large, *[b" "] * 1000, pause_s=WAIT_S / 5)

    assert (status, str(LIMITS.body_bytes) in body["message"]) == (413, True)


async def test_the_body_of_nobody_is_not_read(server: Server) -> None:
    status, body = await server.answer(head(server, "Content-Length: 1000", bearer=False))

    assert (status, body["error_code"]) == (401, "UNAUTHENTICATED")


async def test_what_is_not_http_is_refused_in_the_shape_of_every_error(server: Server) -> None:
    status, body = await server.answer(b"\x16\x03\x01\x00\xa5 hello\r\n\r\n")

    assert (status, set(body)) == (400, {"error_code", "message", "details"})


async def test_a_client_that_does_not_read_its_answer_is_left(server: Server) -> None:
    async with httpx.AsyncClient(base_url=server.url, headers=server.keys.header()) as client:
        await client.post(STORES, params={"session_store_id": "large"}, json={})
        await client.post(f"{STORES}/large/sessions", params={"session_id": "s1"}, json={"actor_id": "ana"})
        path = f"{STORES}/large/sessions/s1/items"
        for _ in range(90):
            await client.post(f"{path}:append", json={"items": [{"data": "x" * 90_000}]})
    request = f"GET {path}?page_size=100 HTTP/1.1\r\nHost: x\r\n{server.bearer}\r\n\r\n".encode()

    async with asyncio.timeout(DEADLINE_S), server.connection() as (reader, writer):
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        writer.write(request)
        await asyncio.sleep(WAIT_S * 4)
        writer.transport.resume_reading()  # type: ignore[attr-defined]
        received = await _until_closed(reader)
    slow = await server.answer(request.replace(b"Host: x", b"Host: x\r\nConnection: close"))

    assert 0 < len(received) < 8_000_000
    assert len(slow[1]["session_items"]) == 90


async def _stores(server: Server) -> int:
    return int(await chassis_of(server.app).database.fetchval("select count(*) from session_stores"))


@pytest.fixture
async def narrow(postgres: PostgresServer) -> AsyncIterator[SessionService]:
    async with session_service(postgres, limits=LIMITS) as running:
        yield running


async def test_requests_over_the_limit_of_a_workspace_are_429_and_write_nothing(narrow: SessionService) -> None:
    session = await narrow.session(await narrow.store())
    path = f"{STORES}{session}/items:append"
    holder = await asyncpg.connect(narrow.dsn)

    async with holder.transaction():
        await holder.execute("select from sessions for update")
        appends = [
            asyncio.ensure_future(narrow.client.post(path, json={"items": [{"data": n}]}))
            for n in range(LIMITS.requests_per_workspace + 5)
        ]
        refused, _ = await asyncio.wait(appends, return_when=asyncio.FIRST_COMPLETED, timeout=DEADLINE_S)
        while len(refused) < 5:
            await asyncio.sleep(0.01)
            refused = {append for append in appends if append.done()}
        elsewhere = await narrow.client.get(STORES, headers=narrow.keys.header(workspace=2))
    answers = await asyncio.gather(*appends)
    await holder.close()

    assert {(a.result().status_code, a.result().headers["retry-after"]) for a in refused} == {(429, "1")}
    assert {a.result().json()["error_code"] for a in refused} == {"RESOURCE_EXHAUSTED"}
    assert elsewhere.status_code == 200
    assert sorted(a.status_code for a in answers) == [200] * LIMITS.requests_per_workspace + [429] * 5
    assert len(await narrow.items(session)) == LIMITS.requests_per_workspace
    assert (await narrow.client.get(STORES)).status_code == 200


async def test_refused_and_broken_requests_free_their_place(narrow: SessionService) -> None:
    for _ in range(LIMITS.requests_per_workspace + 2):
        for path in (f"{STORES}/none", "/nowhere", f"{STORES}?page_size=x"):
            assert (await narrow.client.get(path)).status_code in (400, 404)

    assert (await narrow.client.get(STORES)).status_code == 200


async def test_nobody_overtakes_who_waits_for_a_connection(postgres: PostgresServer) -> None:
    waiting, pool_size = 50, 2
    async with session_service(postgres, database_pool_size=pool_size) as service:
        served_before: list[int] = []
        granted = 0

        async def reader() -> None:
            nonlocal granted
            for _ in range(40):
                asked_at = granted
                async with service.database.connection() as connection:
                    granted += 1
                    served_before.append(granted - asked_at - 1)
                    await connection.fetchval("select 1")

        await asyncio.gather(*(reader() for _ in range(waiting)))

    assert max(served_before) <= waiting + pool_size
