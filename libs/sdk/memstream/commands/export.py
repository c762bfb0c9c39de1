"""`memstream export`: a session store into a conversation file, as `memstream import` reads it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from memstream.commands.import_ import DEFAULT_SESSION_STORE
from memstream.commands.progress import progress
from memstream.console import console


def export_conversations(
    ctx: typer.Context,
    file: Annotated[Path, typer.Argument(help="Written when all is there; see the SDK's README.", show_default=False)],
    session_store: Annotated[
        str, typer.Option("--session-store", envvar="AGENT_SESSION_STORE", help="Whose sessions.")
    ] = DEFAULT_SESSION_STORE,
) -> None:
    """Export conversations; `memstream import` reads the file, here or elsewhere."""
    out = console(ctx)
    # Imported here: the HTTP client would be half of the start of `memstream --help`.
    from memstream.exporting import check_destination, export_file

    check_destination(file)
    with out.client() as client:
        store = client.session_stores.get(session_store)
        with progress(out, "exporting", None) as advance:
            exported = export_file(store, file, advance)
    out.show(
        {"sessions": exported.sessions, "turns": exported.turns, "session_store": store.name, "file": str(file)},
        f"{exported.sessions} sessions, {exported.turns} turns from session-stores/{store.name} in {file}",
    )
