"""The wire between a service and Postgres, that a test can make lose what the server says."""

import asyncio
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from tests.support.proxy import CHUNK_BYTES, TcpProxy


class Wire(TcpProxy):
    """A proxy that can swallow what the server says, so that a commit happens and its answer is lost."""

    is_mute = False

    def dsn(self, dsn: str) -> str:
        """The same database over this wire."""
        return f"postgresql://postgres@{self.address}{urlsplit(dsn).path}?sslmode=disable"

    async def _to_client(self, server: asyncio.StreamReader, client: asyncio.StreamWriter) -> None:
        while chunk := await server.read(CHUNK_BYTES):
            if not self.is_mute:
                client.write(chunk)
                await client.drain()
        client.write_eof()


def socket_of(dsn: str) -> str:
    query = parse_qs(urlsplit(dsn).query)
    return str(Path(query["host"][0]) / f".s.PGSQL.{query['port'][0]}")
