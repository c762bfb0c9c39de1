"""The smallest HTTP/1.1 client that can keep a service busy: of an answer it reads the status and the length."""

import asyncio
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import cast
from urllib.parse import urlsplit

ANSWER_DEADLINE_S = 30.0
LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)


class BadAnswer(Exception):
    """A service did not answer 200."""


class Connection(asyncio.Protocol):
    """One kept connection with one request at a time."""

    def __init__(self) -> None:
        self._received = b""
        self._end: int | None = None
        self._body_at = 0
        self._answer: asyncio.Future[bytes] | None = None
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is none by its class

    def connection_lost(self, exc: Exception | None) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(exc or ConnectionResetError("the service closed the connection"))

    def data_received(self, data: bytes) -> None:
        self._received = received = self._received + data if self._received else data
        if self._end is None:
            head_end = received.find(b"\r\n\r\n")
            if head_end < 0:
                return
            length = LENGTH.search(received, 0, head_end)
            self._body_at = head_end + 4
            self._end = self._body_at + (int(length[1]) if length else 0)
        if len(received) < self._end:
            return
        body, status = received[self._body_at : self._end], received[9:12]
        self._received, self._end = b"", None
        if self._answer is None or self._answer.done():
            return
        if status == b"200":
            self._answer.set_result(body)
        else:
            self._answer.set_exception(BadAnswer(f"{status.decode()}: {body[:500].decode(errors='replace')}"))

    async def ask(self, request: bytes) -> bytes:
        """The body of the answer; raises `BadAnswer`."""
        if self._transport is None or self._transport.is_closing():
            raise ConnectionResetError("the connection is closed")
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[bytes] = loop.create_future()
        self._answer = answer
        deadline = loop.call_later(ANSWER_DEADLINE_S, _give_up, answer)
        self._transport.write(request)
        try:
            return await answer
        finally:
            deadline.cancel()

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()


def _give_up(answer: "asyncio.Future[bytes]") -> None:
    if not answer.done():
        answer.set_exception(TimeoutError("no answer"))


@asynccontextmanager
async def connections(url: str, count: int) -> AsyncIterator[list[Connection]]:
    """That many kept connections to a service."""
    where = urlsplit(url)
    loop = asyncio.get_running_loop()
    opened: list[Connection] = []
    try:
        for _ in range(count):
            _, connection = await loop.create_connection(Connection, where.hostname or "", where.port or 80)
            opened.append(connection)
        yield opened
    finally:
        for connection in opened:
            connection.close()


def request_bytes(method: str, path: str, headers: Mapping[str, str], body: bytes = b"") -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "Host: bench", *(f"{name}: {value}" for name, value in headers.items())]
    if method != "GET":
        lines += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
    return "\r\n".join([*lines, "", ""]).encode() + body
