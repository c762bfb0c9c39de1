"""The one-process form as a user starts it: a process of its own, on a free port, in a directory of its own."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from memstream.client import AgentKitClient
from tests.support.servers import free_port, server_directory

ROOT = Path(__file__).parents[2]
MODULE = (sys.executable, "-m", "services.standalone")
START_DEADLINE_S = 120.0
STOP_DEADLINE_S = 60.0


class StandaloneProcess:
    """`python -m services.standalone` or what serves like it, from its first line to its exit status."""

    def __init__(
        self,
        data_dir: Path,
        *,
        port: int | None = None,
        variables: Mapping[str, str] | None = None,
        command: Sequence[str] = MODULE,
    ) -> None:
        self.data_dir = data_dir
        self.port = port or free_port()
        self._command = command
        self._variables = dict(variables or {})
        self.lines: list[str] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def token(self) -> str:
        return self._exported("MEMSTREAM_TOKEN")

    @property
    def curl_lines(self) -> list[str]:
        return [line for line in self.lines if line.startswith("curl ")]

    @property
    def variables(self) -> dict[str, str]:
        return {
            **os.environ,
            "MEMSTREAM_PORT": str(self.port),
            "MEMSTREAM_DATA_DIR": str(self.data_dir),
            **self._variables,
        }

    def start(self) -> None:
        self._process = subprocess.Popen(
            self._command,
            cwd=ROOT,
            env=self.variables,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        # A server that prints nothing would block the read below for ever.
        deadline = threading.Timer(START_DEADLINE_S, self._process.kill)
        deadline.start()
        try:
            assert self._process.stdout is not None
            self.lines = []
            for line in self._process.stdout:
                self.lines.append(line.rstrip("\n"))
                if len(self.curl_lines) == 3:
                    return
        finally:
            deadline.cancel()
        assert self._process.stderr is not None
        raise AssertionError(f"no welcome: {self._process.stderr.read()}")

    def fails(self) -> tuple[int, str]:
        """Exit status and stderr of a start that must fail."""
        answer = subprocess.run(
            self._command,
            cwd=ROOT,
            env=self.variables,
            capture_output=True,
            text=True,
            timeout=START_DEADLINE_S,
        )
        return answer.returncode, answer.stderr

    def stop(self, number: signal.Signals = signal.SIGTERM) -> tuple[int, str]:
        """Exit status and stderr."""
        self._process.send_signal(number)
        return self.wait()

    def wait(self) -> tuple[int, str]:
        """Exit status and stderr of a process that ends."""
        _, errors = self._process.communicate(timeout=STOP_DEADLINE_S)
        return self._process.returncode, errors

    def client(self) -> AgentKitClient:
        return AgentKitClient(base_url=self.url, token=self.token)

    def _exported(self, name: str) -> str:
        prefix = f"export {name}="
        return next(line.removeprefix(prefix) for line in self.lines if line.startswith(prefix))


@contextmanager
def standalone_process() -> Iterator[StandaloneProcess]:
    with server_directory() as directory:
        process = StandaloneProcess(directory / "data")
        process.start()
        try:
            yield process
        finally:
            process.stop()
