"""A wire between a client and a server that a test can cut."""

import asyncio
import contextlib
import itertools
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from tests.support.servers import free_port

HOST = "127.0.0.1"
CHUNK_BYTES = 65_536


class TcpProxy:
    """Listens on a port of 127.0.0.1 and forwards to `host, port` or to a unix socket."""

    def __init__(self, target: tuple[str, int] | str, *, record: bool = False) -> None:
        self.port = free_port()
        self.to_server_bytes = 0
        self.to_client_bytes = 0
        self.recorded = bytearray()
        self._target = target
        self._is_recording = record
        self._is_flowing = asyncio.Event()
        self._is_flowing.set()
        self._server: asyncio.Server | None = None
        self._links: dict[asyncio.Task[None], tuple[asyncio.StreamWriter, asyncio.StreamWriter]] = {}

    async def __aenter__(self) -> Self:
        await self.resume()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.refuse()
        tasks = list(self._links)
        self.cut()
        await asyncio.gather(*tasks, return_exceptions=True)

    @property
    def address(self) -> str:
        return f"{HOST}:{self.port}"

    @property
    def connections(self) -> int:
        return len(self._links)

    def cut(self) -> None:
        """Drop every open connection without a word; new ones are served."""
        for task, writers in self._links.items():
            for writer in writers:
                writer.transport.abort()
            task.cancel()

    def refuse(self) -> None:
        """Refuse new connections; open ones go on."""
        if self._server:
            self._server.close()
            self._server = None

    def stall(self) -> None:
        """Accept and keep connections, and let no byte through."""
        self._is_flowing.clear()

    async def resume(self) -> None:
        """Undo `refuse` and `stall`."""
        self._is_flowing.set()
        if self._server is None:
            self._server = await asyncio.start_server(self._serve, HOST, self.port)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        try:
            server_reader, server_writer = await self._connect()
        except OSError:
            writer.transport.abort()
            return
        self._links[task] = (writer, server_writer)
        try:
            async with asyncio.TaskGroup() as pumps:
                pumps.create_task(self._to_server(reader, server_writer))
                pumps.create_task(self._to_client(server_reader, writer))
        except* (OSError, asyncio.CancelledError):
            pass  # a side is gone and the other learns it below, or cut() ended us: Python 3.11 calls that an error
        finally:
            del self._links[task]
            writer.close()
            server_writer.close()

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if isinstance(self._target, str):
            return await asyncio.open_unix_connection(self._target)
        return await asyncio.open_connection(*self._target)

    async def _to_server(self, client: asyncio.StreamReader, server: asyncio.StreamWriter) -> None:
        while chunk := await client.read(CHUNK_BYTES):
            await self._is_flowing.wait()
            self.to_server_bytes += len(chunk)
            if self._is_recording:
                self.recorded += chunk
            server.write(chunk)
            await server.drain()
        server.write_eof()

    async def _to_client(self, server: asyncio.StreamReader, client: asyncio.StreamWriter) -> None:
        while chunk := await server.read(CHUNK_BYTES):
            await self._is_flowing.wait()
            self.to_client_bytes += len(chunk)
            client.write(chunk)
            await client.drain()
        client.write_eof()


class TcpEdge(TcpProxy):
    """What balances replicas: a connection goes to each port in turn, and past those that do not take it."""

    def __init__(self, ports: Sequence[int]) -> None:
        super().__init__((HOST, ports[0]))
        self._count = len(ports)
        self._turns = itertools.cycle(ports)

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        for _ in range(self._count - 1):
            with contextlib.suppress(OSError):
                return await asyncio.open_connection(HOST, next(self._turns))
        return await asyncio.open_connection(HOST, next(self._turns))
