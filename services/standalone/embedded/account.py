"""Postgres refuses to run as root, so root hands it to an account without rights."""

import os
import pwd
import shutil
import stat
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from services.standalone.embedded.errors import EmbeddedError, reason

ACCOUNT_NAME = "embedded_postgres"


@dataclass(frozen=True)
class Account:
    """Who a server runs as; nothing is set for our own account."""

    uid: int | None = None
    gid: int | None = None

    def command(self, command: Sequence[str], *paths: Path) -> list[str]:
        """`command` as this account. Where root keeps a directory above one of `paths` closed, as under `/root`, the
        account gets the one capability to pass it, rather than the directory being opened to everybody.
        """
        if self.uid is None:
            return list(command)
        if shutil.which("setpriv") is None:
            raise EmbeddedError("Postgres cannot run as root here: install `setpriv` (util-linux) or use another user")
        become = ["setpriv", f"--reuid={self.uid}", f"--regid={self.gid}", "--clear-groups"]
        if any(closed_parent(path, self) for path in paths):
            # Without the secure bit, access(2) would look with the rights of the account alone.
            become += ["--securebits=+no_setuid_fixup", "--inh-caps=+dac_override", "--ambient-caps=+dac_override"]
        return [*become, *command]

    def own(self, directory: Path) -> None:
        if self.uid is not None and self.gid is not None:
            os.chown(directory, self.uid, self.gid)


OURS = Account()


def account_for(data_dir: Path) -> Account:
    """Ours, or for root the owner of the existing data, else an account that is made at first use."""
    if os.geteuid() != 0:
        return OURS
    if (data_dir / "PG_VERSION").exists() and (status := data_dir.stat()).st_uid != 0:
        return Account(status.st_uid, status.st_gid)
    entry = _entry()
    return Account(entry.pw_uid, entry.pw_gid)


def closed_parent(path: Path, account: Account) -> Path | None:
    """The first directory above `path` that the account may not pass."""
    if account == OURS:
        return None
    for parent in reversed(path.parents):
        status = parent.stat()
        if not status.st_mode & (stat.S_IXUSR if status.st_uid == account.uid else stat.S_IXOTH):
            return parent
    return None


def _entry() -> pwd.struct_passwd:
    try:
        return pwd.getpwnam(ACCOUNT_NAME)
    except KeyError:
        pass
    command = ["useradd", "--system", "--shell", "/usr/sbin/nologin", ACCOUNT_NAME]
    result = subprocess.run(command, capture_output=True, text=True, timeout=30)  # noqa: S603 - constant
    try:
        # Its status does not matter: another process may have made the account in between.
        return pwd.getpwnam(ACCOUNT_NAME)
    except KeyError as exc:
        raise EmbeddedError(f"Postgres cannot run as root and useradd failed: {reason(result.stderr)}") from exc
