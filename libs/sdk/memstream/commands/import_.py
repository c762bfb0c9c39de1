"""`memstream import`: conversations from a file into a session store, distilled into a memory store."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from memstream.commands.progress import Advance, progress
from memstream.console import console
from memstream.conversations import check_file

DEFAULT_SESSION_STORE, DEFAULT_MEMORY_STORE = "conversations", "memories"


def import_conversations(
    ctx: typer.Context,
    file: Annotated[Path, typer.Argument(help="JSON Lines, a turn a line; see the SDK's README.", show_default=False)],
    session_store: Annotated[
        str, typer.Option("--session-store", envvar="AGENT_SESSION_STORE", help="Made when it is missing.")
    ] = DEFAULT_SESSION_STORE,
    memory_store: Annotated[
        str, typer.Option("--memory-store", envvar="AGENT_MEMORY_STORE", help="Made when it is missing.")
    ] = DEFAULT_MEMORY_STORE,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until everything is distilled.")] = False,
    wait_timeout: Annotated[int, typer.Option("--wait-timeout", min=1, help="Seconds to wait at most.")] = 3600,
) -> None:
    """Import conversations; to repeat it is safe at any time and adds only what is missing."""
    out = console(ctx)
    checked = check_file(file)
    # Imported here: the HTTP client would be half of the start of `memstream --help`.
    from memstream.distilling import wait_until_distilled
    from memstream.importing import CONTINUOUS, import_file, prepare

    with out.client() as client:
        target = prepare(client, session_store, memory_store)
        with progress(out, "importing", checked.turns) as advance:
            imported = import_file(target, checked, advance)
        added = sum(one.added for one in imported)
        parked: list[str] = []
        if wait:
            with progress(out, "distilling", checked.turns) as advance:
                parked = wait_until_distilled(target.pipeline, wait_timeout, _behind(checked.turns, advance))
    if parked:
        out.note(f"parked, tried again once an hour: actor {', '.join(parked)}")
    if target.pipeline.trigger != CONTINUOUS and not wait:
        out.note(f"pipeline {target.pipeline.id} is {target.pipeline.trigger}: it distils only when it runs")
    summary = {
        "sessions": len(imported),
        "turns": checked.turns,
        "added": added,
        "already_there": checked.turns - added,
        "session_store": target.session_store.name,
        "memory_store": target.memory_store.id,
        "pipeline": target.pipeline.name,
    }
    if wait:
        summary["parked_actors"] = parked
    distilled = f", distilled into {target.memory_store.name}" if wait and not parked else ""
    out.show(
        summary,
        f"{len(imported)} sessions, {checked.turns} turns: {added} added, {checked.turns - added} already there"
        f" in session-stores/{target.session_store.name}{distilled}",
    )
    if parked:
        raise typer.Exit(1)


def _behind(total: int, advance: Advance) -> Callable[[int, str], None]:
    """Turns how much is left into how much more is done."""
    told = 0

    def report(behind: int, why: str) -> None:
        nonlocal told
        done = max(told, total - behind)
        advance(done - told, why)
        told = done

    return report
