"""What the user reads when a server cannot run."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

FATAL = re.compile(r"FATAL:|\[FTL\]|error:")


class EmbeddedError(Exception):
    """The message is the one line for the user."""


@contextmanager
def plain_errors(directory: Path) -> Iterator[None]:
    """A refusal of the file system becomes the one line for the user."""
    try:
        yield
    except OSError as exc:
        raise EmbeddedError(f"cannot use {directory}: {exc.strerror} ({exc.filename or directory})") from exc


def reason(output: str) -> str:
    """The line of a server's output that says why it gave up."""
    lines = [line for line in output.splitlines() if line.strip()] or ["no output"]
    fatal = [line for line in lines if FATAL.search(line)]
    return FATAL.split((fatal or lines)[-1])[-1].strip()
