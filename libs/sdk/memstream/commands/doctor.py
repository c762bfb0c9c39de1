"""`memstream doctor`: what is wrong between here, the server, the stores and the pipeline; this shell's settings."""

from __future__ import annotations

import os
from dataclasses import asdict
from importlib.metadata import entry_points
from typing import Annotated

import typer

from memstream.commands.views import Column, Listing, show_list
from memstream.console import Console, console

SETTINGS_GROUP = "memstream.settings"
MARKS = {"ok": "✓", "warning": "!", "failed": "✗", "skipped": "-"}
CHECKS = Listing(
    "checks",
    "check",
    (
        Column("", lambda row: MARKS[row["state"]], is_id=True),
        Column("check", "check", is_id=True),
        Column("finding", "detail", is_id=True),
        Column("help", "hint", is_id=True),
    ),
)
SETTINGS = Listing(
    "settings",
    "setting of this shell",
    (Column("setting", "name", is_id=True), Column("value", "value", is_id=True)),
    "settings of this shell; a server that runs may have others",
)

Session = Annotated[
    str | None, typer.Option("--session-store", envvar="AGENT_SESSION_STORE", help="Whose conversations.")
]
Memory = Annotated[str | None, typer.Option("--memory-store", envvar="AGENT_MEMORY_STORE", help="Whose memories.")]


def doctor(ctx: typer.Context, session_store: Session = None, memory_store: Memory = None) -> None:
    """Check the server, the token, the clock, the stores, the pipeline and the model; show this shell's settings."""
    # Imported here: the HTTP client would be half of the start of `memstream --help`.
    from memstream.diagnosis import FAILED, Doctor

    out = console(ctx)
    with out.rest("") as rest:
        findings = list(Doctor(rest, out.token, session_store or None, memory_store or None).findings())
        url = rest.base_url
    checks = {"checks": [asdict(finding) for finding in findings]}
    known = {"settings": [{"name": name, "value": value} for name, value in settings(out, url).items()]}
    if out.is_json:
        out.show({**checks, **known}, "")
    else:
        show_list(out, CHECKS, checks)
        show_list(out, SETTINGS, known)
    if any(finding.state == FAILED for finding in findings):
        raise typer.Exit(1)


def settings(out: Console, url: str) -> dict[str, str | None]:
    """What this shell's variables give the client, and a server that is started from it. Secrets are hidden."""
    from memstream.diagnosis import hidden

    known: dict[str, str | None] = {
        "MEMSTREAM_URL": hidden(url),
        "MEMSTREAM_TOKEN": "hidden" if out.token else None,
        "AGENT_SESSION_STORE": os.environ.get("AGENT_SESSION_STORE"),
        "AGENT_MEMORY_STORE": os.environ.get("AGENT_MEMORY_STORE"),
    }
    for found in entry_points(group=SETTINGS_GROUP):
        known |= {name: value and hidden(value) for name, value in found.load()().items()}
    return known
