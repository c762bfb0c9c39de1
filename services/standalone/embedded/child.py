"""One server process of one run, in a session of its own so that Ctrl-C reaches it only through us, in order.

The pid file is locked for as long as the owner lives. Whoever gets the lock knows that a server named in the file has
lost its owner, and may end it.
"""

import asyncio
import fcntl
import json
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import psutil

from services.standalone.embedded.errors import EmbeddedError, plain_errors, reason

POLL_S = 0.01
KILL_DEADLINE_S = 5.0
ORPHAN_DEADLINE_S = 15.0
CLOCK_TOLERANCE_S = 2.0  # a process's start time is derived from the boot time, which moves when the clock is set


class Child:
    """A server of `data_dir`, with its pid file and its log beside that directory."""

    def __init__(self, data_dir: Path, *, stop_signal: signal.Signals) -> None:
        self.data_dir = data_dir
        self.log = data_dir.with_name(f"{data_dir.name}.log")
        self._pid_file = data_dir.with_name(f"{data_dir.name}.pid")
        self._stop_signal = stop_signal
        self._lock: int | None = None
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    @property
    def has_exited(self) -> bool:
        return self._process is None or self._process.poll() is not None

    def claim(self) -> None:
        """Take the directory for this process and end the orphan of a killed run."""
        with plain_errors(self.data_dir):
            self._pid_file.parent.mkdir(parents=True, exist_ok=True)
            lock = os.open(self._pid_file, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as exc:
            owner = _read(self._pid_file).get("owner", "unknown")
            os.close(lock)
            raise EmbeddedError(
                f"{self.data_dir} is already in use by process {owner}; MEMSTREAM_DATA_DIR names another"
            ) from exc
        self._lock = lock
        self._end_orphan()

    def spawn(self, command: Sequence[str], *, env: Mapping[str, str]) -> None:
        with plain_errors(self.data_dir), self.log.open("ab") as log:
            log.truncate(0)
            self._process = subprocess.Popen(  # noqa: S603 - our own binaries
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=dict(env),
                cwd="/",  # ours may be closed to the account
                start_new_session=True,
            )
            started = psutil.Process(self._process.pid).create_time()
            self._pid_file.write_text(
                json.dumps({"owner": os.getpid(), "server": self._process.pid, "started": started})
            )

    async def stop(self, first: signal.Signals, deadline_s: float) -> None:
        try:
            if self._process:
                self._process.send_signal(first)
                await asyncio.to_thread(self._process.wait, deadline_s)
        except subprocess.TimeoutExpired:
            pass  # finally kills it
        finally:
            self.kill()

    def kill(self) -> None:
        """End the server and its children at once and give the directory back."""
        if self._process:
            if not self.has_exited:
                kill_family(psutil.Process(self._process.pid))
            self._process.wait(KILL_DEADLINE_S)
            self._process = None
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def last_words(self) -> str:
        return reason(self.log.read_text(errors="replace"))

    def _end_orphan(self) -> None:
        last = _read(self._pid_file)
        try:
            orphan = psutil.Process(int(last["server"]))
            is_same = abs(orphan.create_time() - last["started"]) < CLOCK_TOLERANCE_S
            if is_same and str(self.data_dir) in orphan.cmdline():
                orphan.send_signal(self._stop_signal)
                if not _are_gone([orphan], ORPHAN_DEADLINE_S):
                    kill_family(orphan)
        except (KeyError, psutil.Error):
            return


def kill_family(parent: psutil.Process) -> None:
    """Server processes may lead sessions of their own, so no process group holds them all."""
    family = [parent, *parent.children(recursive=True)]
    for process in family:
        try:
            process.kill()
        except psutil.NoSuchProcess:
            continue
    _are_gone(family, KILL_DEADLINE_S)


def works_in(process: psutil.Process, name: str, directory: Path) -> bool:
    try:
        return process.name() == name and process.cwd() == str(directory)
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return False


def _are_gone(processes: list[psutil.Process], deadline_s: float) -> bool:
    deadline = time.monotonic() + deadline_s
    while not all(_is_gone(process) for process in processes):
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_S)
    return True


def _is_gone(process: psutil.Process) -> bool:
    # In a container nobody may reap an orphan: a zombie holds no file and no port.
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def _read(pid_file: Path) -> dict[str, float]:
    try:
        content: dict[str, float] = json.loads(pid_file.read_text())
    except json.JSONDecodeError:
        return {}
    return content
