"""A command run at a terminal: what it shows, with its colours, at a given width."""

import os
import pty
import re
import select
import struct
import subprocess
import termios
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fcntl import ioctl

DEADLINE_S = 60.0
ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


@dataclass(frozen=True)
class Shown:
    status: int
    raw: str

    @property
    def lines(self) -> list[str]:
        """Without colours."""
        return ESCAPES.sub("", self.raw).replace("\r\n", "\n").splitlines()

    @property
    def has_colour(self) -> bool:
        return "\x1b[" in self.raw


def at_terminal(command: Sequence[str], env: Mapping[str, str], *, columns: int = 100, typed: str = "") -> Shown:
    """Runs with stdin, stdout and stderr on a terminal; `typed` is there to be read."""
    ours, theirs = pty.openpty()
    ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    env = {**env, "TERM": "xterm-256color"}
    env.pop("COLUMNS", None)
    env.pop("NO_COLOR", None)
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=env) as process:
        os.close(theirs)
        os.write(ours, typed.encode())
        said = b""
        deadline = time.monotonic() + DEADLINE_S
        while time.monotonic() < deadline:
            if not select.select([ours], [], [], 0.1)[0]:
                continue
            try:
                read = os.read(ours, 65536)
            except OSError:  # how Linux says that the other end is closed
                break
            said += read
        process.kill()
    os.close(ours)
    return Shown(process.returncode, said.decode())
