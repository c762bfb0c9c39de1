"""How far a command is, on stderr: a bar on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from memstream.console import Console
from memstream.errors import MemstreamError

T = TypeVar("T")

PLAIN_INTERVAL_S = 5.0
POLL_S = 0.25


@contextmanager
def progress(out: Console, what: str, total: int | None) -> Iterator[Callable[[int], None]]:
    """Called with how many more turns are done; `total` is None when nobody knows it."""
    if not sys.stderr.isatty():
        with _plain(out, what, total) as advance:
            yield advance
        return
    from rich.console import Console as RichConsole
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=RichConsole(stderr=True)) as bar:
        task = bar.add_task(what, total=total)
        yield lambda count: bar.advance(task, count)


def waited(
    out: Console,
    what: str,
    look: Callable[[], T],
    is_over: Callable[[T], bool],
    late: Callable[[T], MemstreamError],
    *,
    timeout_s: float,
) -> T:
    """What is seen once it is over, looked at again and again. Past the deadline it raises what `late` makes of it."""
    begun = time.monotonic()
    with waiting(out, what):
        while not is_over(seen := look()):
            if time.monotonic() - begun > timeout_s:
                raise late(seen)
            time.sleep(POLL_S)
    return seen


@contextmanager
def waiting(out: Console, what: str) -> Iterator[None]:
    """For as long as the block lasts, when nobody knows how much there is."""
    if not sys.stderr.isatty():
        out.note(f"{what}...")
        yield
        return
    from rich.console import Console as RichConsole
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=RichConsole(stderr=True), transient=True) as bar:
        bar.add_task(what, total=None)
        yield


@contextmanager
def _plain(out: Console, what: str, total: int | None) -> Iterator[Callable[[int], None]]:
    done, told = 0, time.monotonic()

    def advance(count: int) -> None:
        nonlocal done, told
        done += count
        if time.monotonic() - told > PLAIN_INTERVAL_S:
            told = time.monotonic()
            out.note(_line(what, done, total))

    yield advance
    out.note(_line(what, done, total))


def _line(what: str, done: int, total: int | None) -> str:
    return f"{what}: {done} turns" if total is None else f"{what}: {done} of {total} turns"
