"""Rows, what they must reach, the file and the table."""

import asyncio
import json
import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import asyncpg
from rich.console import Console
from rich.table import Table

REFERENCE_APPENDS, REFERENCE_RELOADS = 12_000, 13_900


@dataclass(frozen=True)
class Target:
    sense: Literal["≥", "≤"]
    value: float

    def is_met(self, figure: float) -> bool:
        return figure >= self.value if self.sense == "≥" else figure <= self.value

    def __str__(self) -> str:
        return f"{self.sense} {self.value:g}"


def at_least(value: float) -> Target:
    return Target("≥", value)


def at_most(value: float) -> Target:
    return Target("≤", value)


@dataclass(frozen=True)
class Row:
    """One figure. The target is for the ratio where there is a reference, else for the figure itself."""

    name: str
    unit: str
    ours: float
    reference: float | None
    target: Target | None
    note: str

    @property
    def ratio(self) -> float | None:
        return None if self.reference is None else self.ours / self.reference

    @property
    def met(self) -> bool | None:
        """None when nothing is asked of it."""
        return None if self.target is None else self.target.is_met(self.ours if self.ratio is None else self.ratio)

    def as_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "ours": _rounded(self.ours),
            "reference": _rounded(self.reference),
            "ratio": _rounded(self.ratio),
            "target": None if self.target is None else str(self.target),
            "met": self.met,
            "unit": self.unit,
            "note": self.note,
        }


@dataclass(frozen=True)
class Machine:
    processors: int
    postgres: str
    synchronous_commit: str
    fsync: str
    commit: str

    @classmethod
    async def of(cls, dsn: str) -> "Machine":
        connection = await asyncpg.connect(dsn, timeout=30)
        try:
            version, synchronous_commit, fsync = [
                str(await connection.fetchval(f"show {name}"))
                for name in ("server_version", "synchronous_commit", "fsync")
            ]
        finally:
            await connection.close()
        commit = await asyncio.to_thread(_commit)
        return cls(len(os.sched_getaffinity(0)), version, synchronous_commit, fsync, commit)


def ordered(rows: Sequence[Row]) -> list[Row]:
    """What missed its target first, then in the order of measuring."""
    return sorted(rows, key=lambda row: row.met is not False)


def warnings(rows: Sequence[Row]) -> list[str]:
    """What makes this run's figures doubtful."""
    said = []
    for prefix, expected in (("append 2 items, 8 ", REFERENCE_APPENDS), ("reload 50 items, 8 ", REFERENCE_RELOADS)):
        row = next((row for row in rows if row.name.startswith(prefix)), None)
        if row is not None and row.reference is not None and row.reference < expected / 2:
            said.append(
                f"the limit of '{row.name}' is {row.reference:,.0f}/s; the reference machine has {expected:,}/s: "
                "either this machine is slower, or something else was running"
            )
    return said


def write(path: Path, machine: Machine, rows: Sequence[Row]) -> None:
    """JSON, the machine in its first line and a row in each line after."""
    lines = ",\n".join(json.dumps(row.as_json(), ensure_ascii=False) for row in rows)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f'{{"machine": {json.dumps(vars(machine))}, "rows": [\n{lines}\n]}}\n')


def show(console: Console, machine: Machine, rows: Sequence[Row]) -> None:
    table = Table(title="Memstream, measured", title_justify="left")
    table.add_column("row")
    for column in ("ours", "reference", "ratio", "target"):
        table.add_column(column, justify="right")
    table.add_column("met")
    marks = {True: "[green]yes[/]", False: "[bold red]MISSED[/]", None: ""}
    for row in ordered(rows):
        ratio = "" if row.ratio is None else f"{row.ratio:.2f}"
        reference = "" if row.reference is None else _figure(row.reference, row.unit)
        target = "" if row.target is None else str(row.target)
        table.add_row(row.name, _figure(row.ours, row.unit), reference, ratio, target, marks[row.met])
    console.print(table)
    console.print(", ".join(f"{name.replace('_', ' ')} {value}" for name, value in vars(machine).items()))
    for warning in warnings(rows):
        console.print(f"[bold yellow]Warning:[/] {warning}.", soft_wrap=True)


def _figure(value: float, unit: str) -> str:
    return f"{value:,.0f}{unit}" if unit.startswith("/") else f"{value:,.{2 if value < 10 else 0}f} {unit}"


def _rounded(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.4g}")


def _commit() -> str:
    """The commit of the tree, with a mark when it was changed since."""
    answers = []
    for command in (["git", "rev-parse", "--short", "HEAD"], ["git", "status", "--porcelain"]):
        try:
            answers.append(subprocess.run(command, capture_output=True, text=True, timeout=10, check=True).stdout)
        except (OSError, subprocess.SubprocessError):
            return "unknown"
    return answers[0].strip() + (" with changes" if answers[1].strip() else "")
