"""How results look as text: tables that fit the terminal, details, and what was done with what to do next.

Elsewhere than on a terminal there is no colour, no frame and no line break: a row is a line, and nothing is cut.
"""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import typer

from memstream.console import Console

NOTHING = "—"
PIPE_WIDTH = 1_000_000
TEXT_WIDTH = 20  # what a column of text is given at least
GAP = 2

Raw = Mapping[str, Any]
Fetch = Callable[[str | None], dict[str, Any]]


@dataclass(frozen=True)
class Column:
    """`field` is a dotted path into a row, or makes the cell of it. An `is_id` column is never shortened."""

    heading: str
    field: str | Callable[[Raw], Any]
    is_id: bool = False

    def cell(self, row: Raw) -> str:
        return shown(self.field(row) if callable(self.field) else found(row, self.field))


@dataclass(frozen=True)
class Listing:
    """A list of the REST surface: the page's field and what one element is called, with its plural."""

    field: str
    noun: str
    columns: Sequence[Column]
    plural: str | None = None

    def counted(self, count: int) -> str:
        return f"{count} {self.noun if count == 1 else self.plural or self.noun + 's'}"


def show_pages(out: Console, listing: Listing, fetch: Fetch, page_token: str | None = None) -> None:
    """One page; somebody at a terminal is offered the next ones, others are told the token."""
    page = fetch(page_token)
    while True:
        show_list(out, listing, page)
        token = page.get("next_page_token")
        if out.is_json or not token:
            return
        if not (sys.stdin.isatty() and sys.stdout.isatty()):
            typer.echo(f"more: --page-token {token}")
            return
        if not out.agrees("Show the next page?"):
            return
        page = fetch(token)


def show_list(out: Console, listing: Listing, page: Raw) -> None:
    """The whole page as JSON, or its rows as a table."""
    if out.is_json:
        out.show(page, "")
        return
    rows = page.get(listing.field) or []
    if rows:
        cells = [[column.cell(row) for column in listing.columns] for row in rows]
        _print(lambda width: _table(listing.columns, cells, width))
    typer.echo(listing.counted(len(rows)) if rows else f"no {listing.plural or listing.noun + 's'}")


def show_details(out: Console, title: str, raw: Raw) -> None:
    if out.is_json:
        out.show(raw, "")
        return
    from rich.table import Table
    from rich.text import Text

    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    for name, value in _flat(raw):
        grid.add_row(Text(name), Text(shown(value)))
    _print(lambda _: Text(title, style="bold"))
    _print(lambda _: grid)


def show_done(out: Console, raw: Raw, what: str, *next_steps: str) -> None:
    """What was done, and commands that may follow."""
    if out.is_json:
        out.show(raw, "")
        return
    lines = [what, *(f"  {step}" for step in next_steps)]
    if not sys.stdout.isatty():
        typer.echo("\n".join(lines))
        return
    from rich.panel import Panel
    from rich.text import Text

    _print(lambda _: Panel(Text("\n".join(lines)), border_style="green", expand=False))


def shown(value: Any) -> str:
    """A value in one line: times to the second, other JSON as it is, without what would steer a terminal."""
    if value is None or value == "" or value == {} or value == []:
        return NOTHING
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        value = json.dumps(value, ensure_ascii=False)
    return "".join(mark if mark.isprintable() else "\ufffd" for mark in " ".join(str(value).split()))


def when(field: str) -> Callable[[Raw], str | None]:
    """A cell with a time, in UTC, to the second."""

    def cell(row: Raw) -> str | None:
        time = found(row, field)
        return f"{str(time)[:19].replace('T', ' ')}Z" if time else None

    return cell


def last(field: str) -> Callable[[Raw], str | None]:
    """A cell with the id at the end of a resource's name."""

    def cell(row: Raw) -> str | None:
        name = found(row, field)
        return str(name).rpartition("/")[2] if name else None

    return cell


def found(row: Raw, path: str) -> Any:
    value: Any = row
    for name in path.split("."):
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def _flat(raw: Raw, prefix: str = "") -> list[tuple[str, Any]]:
    """Fields by dotted name."""
    pairs: list[tuple[str, Any]] = []
    for name, value in raw.items():
        if isinstance(value, Mapping) and value and name != "data":
            pairs += _flat(value, f"{prefix}{name}.")
        else:
            pairs.append((f"{prefix}{name}", value))
    return pairs


def _table(columns: Sequence[Column], rows: Sequence[Sequence[str]], width: int | None) -> Any:
    """Texts are folded to fit the width, if any; where ids would have to be, the last other columns are left out."""
    from rich.cells import cell_len
    from rich.table import Table
    from rich.text import Text

    needed = [
        max(cell_len(cell) for cell in cells)
        for cells in zip([column.heading for column in columns], *rows, strict=True)
    ]
    needed = [size if column.is_id else min(size, TEXT_WIDTH) for column, size in zip(columns, needed, strict=True)]
    kept = list(range(len(columns)))

    def is_too_wide() -> bool:
        return width is not None and sum(needed[number] + GAP for number in kept) - GAP > width

    others = [number for number in kept if not columns[number].is_id]
    while others and is_too_wide():
        kept.remove(others.pop())
    table = Table(box=None, pad_edge=False, padding=(0, GAP, 0, 0), header_style="dim")
    for number in kept:
        column = columns[number]
        table.add_column(Text(column.heading.upper()), overflow="fold", no_wrap=column.is_id and not is_too_wide())
    for row in rows:
        table.add_row(*(Text(row[number]) for number in kept))
    return table


def _print(make: Callable[[int | None], Any]) -> None:
    """Prints what is made for the width of the terminal, or elsewhere for none."""
    from rich.console import Console as RichConsole

    terminal = RichConsole(highlight=False)
    if terminal.is_terminal:
        terminal.print(make(terminal.width))
        return
    plain = RichConsole(file=io.StringIO(), width=PIPE_WIDTH, highlight=False, color_system=None)
    with plain.capture() as captured:
        plain.print(make(None))
    for line in captured.get().splitlines():
        typer.echo(line.rstrip())
