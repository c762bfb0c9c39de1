"""`bind` and `unbind`: which store an agent's directory names, in the one key `name` of a table of its `agent.toml`.

Every other line of the file stays as it is.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Annotated

import typer

from memstream.commands.views import show_done
from memstream.console import console
from memstream.errors import MemstreamError
from memstream.values import bare

MANIFEST = "agent.toml"
HEADER = re.compile(r"\s*\[+\s*([^\]]+?)\s*\]+\s*(#.*)?$")
NAME = re.compile(r"\s*name\s*=")

Store = Annotated[str, typer.Argument(help="The store's name.", show_default=False)]
Source = Annotated[Path, typer.Option("--source", help="The agent's directory.")]


def add_binding(commands: typer.Typer, table: str, collection: str) -> None:
    """`table` is that of the manifest, such as `session_store`."""
    noun = table.replace("_", " ")

    @commands.command("bind", help=f"Name the {noun} in the agent's {MANIFEST}.")
    def bind(ctx: typer.Context, store: Store, source: Source = Path()) -> None:
        manifest, name = _manifest(source), bare(collection, store)
        manifest.write_text(bound(_text(manifest), table, name), encoding="utf-8")
        show_done(
            console(ctx),
            {table: name, "manifest": str(manifest)},
            f"{manifest} names {noun} {name}",
            f"AGENT_{table.upper()}={name} makes agents and commands use it",
        )

    @commands.command("unbind", help=f"Take the {noun} out of the agent's {MANIFEST}.")
    def unbind(ctx: typer.Context, source: Source = Path()) -> None:
        manifest = _manifest(source)
        text = _text(manifest)
        left = unbound(text, table)
        if left == text:
            raise MemstreamError(f"{manifest} names no {noun}")
        manifest.write_text(left, encoding="utf-8")
        console(ctx).show({"manifest": str(manifest)}, f"{manifest} names no {noun} any more")


def bound(text: str, table: str, name: str) -> str:
    """The manifest with `name` in its table, which is made where it is missing."""
    lines = text.splitlines()
    entry = f"name = {json.dumps(name)}"
    begin, end = _table(lines, table)
    if begin is None:
        return "\n".join([*lines, *([""] if lines else []), f"[{table}]", entry]) + "\n"
    named = next((number for number in range(begin, end) if NAME.match(lines[number])), None)
    at, after = (begin, begin) if named is None else (named, named + 1)
    return "\n".join([*lines[:at], entry, *lines[after:]]) + "\n"


def unbound(text: str, table: str) -> str:
    """The manifest without the name; without the table too when nothing else is in it."""
    lines = text.splitlines()
    begin, end = _table(lines, table)
    if begin is None or not any(NAME.match(line) for line in lines[begin:end]):
        return text
    kept = [line for line in lines[begin:end] if not NAME.match(line)]
    head = lines[:begin] if any(line.strip() for line in kept) else lines[: begin - 1]
    return "".join(f"{line}\n" for line in [*head, *kept, *lines[end:]])


def _table(lines: list[str], table: str) -> tuple[int | None, int]:
    """Where the lines of a table begin and end."""
    begin: int | None = None
    for number, line in enumerate(lines):
        header = HEADER.match(line)
        if header and begin is not None:
            return begin, number
        if header and header[1] == table:
            begin = number + 1
    return begin, len(lines)


def _manifest(source: Path) -> Path:
    if not source.is_dir():
        raise MemstreamError(f"there is no directory {source}")
    return source / MANIFEST


def _text(manifest: Path) -> str:
    try:
        return manifest.read_text(encoding="utf-8")
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as refused:
        raise MemstreamError(f"cannot read {manifest}: {refused}") from None
