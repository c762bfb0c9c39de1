"""How far a command is, on stderr: a bar on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol, TypeVar

from memstream.console import Console
from memstream.errors import MemstreamError

T = TypeVar("T")

STAND_INTERVAL_S = 5.0
POLL_S = 0.25


class Advance(Protocol):
    def __call__(self, count: int, why: str = "") -> None: ...


@contextmanager
def progress(out: Console, what: str, total: int | None) -> Iterator[Advance]:
    """Called with how many more turns are done, and why it stands if it does; `total` is None when nobody knows it."""
    if not sys.stderr.isatty():
        with _plain(out, what, total) as advance:
            yield advance
        return
    from rich.console import Console as RichConsole
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=RichConsole(stderr=True)) as bar:
        task = bar.add_task(what, total=total)

        def advance(count: int, why: str = "") -> None:
            bar.update(task, advance=count, description=f"{what}{why and f' ({why})'}")

        yield advance


def waited(
    out: Console,
    what: str,
    look: Callable[[], T],
    is_over: Callable[[T], bool],
    late: Callable[[T], MemstreamError],
    *,
    timeout_s: float,
    stand: Callable[[T], str] | None = None,
) -> T:
    """What is seen once it is over, looked at again and again. Past the deadline it raises what `late` makes of it.

    `stand` makes of it how far it is, which is told now and then.
    """
    begun = told = time.monotonic()
    with waiting(out, what) as tell:
        while not is_over(seen := look()):
            if time.monotonic() - begun > timeout_s:
                raise late(seen)
            if stand is not None and time.monotonic() - told > STAND_INTERVAL_S:
                tell(f"{what}: {stand(seen)}")
                told = time.monotonic()
            time.sleep(POLL_S)
    return seen


@contextmanager
def waiting(out: Console, what: str) -> Iterator[Callable[[str], None]]:
    """For as long as the block lasts, when nobody knows how much there is. Called with what else is to be told."""
    if not sys.stderr.isatty():
        out.note(f"{what}...")
        yield out.note
        return
    from rich.console import Console as RichConsole
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=RichConsole(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=None)
        yield lambda line: bar.update(task, description=line)


@contextmanager
def _plain(out: Console, what: str, total: int | None) -> Iterator[Advance]:
    done, told = 0, time.monotonic()

    def advance(count: int, why: str = "") -> None:
        nonlocal done, told
        done += count
        if time.monotonic() - told > STAND_INTERVAL_S:
            told = time.monotonic()
            out.note(f"{_line(what, done, total)}{why and f' ({why})'}")

    yield advance
    out.note(_line(what, done, total))


def _line(what: str, done: int, total: int | None) -> str:
    return f"{what}: {done} turns" if total is None else f"{what}: {done} of {total} turns"
