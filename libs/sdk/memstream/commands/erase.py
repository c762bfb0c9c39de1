"""`memstream erase`: forgets an actor."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from memstream.commands.options import Wait, WaitTimeout, Yes
from memstream.commands.progress import waited
from memstream.commands.views import show_done
from memstream.console import console
from memstream.errors import MemstreamError
from memstream.values import bare, segment

UNITS = {"distiller": "records of the distiller", "memory": "records of memory"}  # others are said by their names


def erase(
    ctx: typer.Context,
    actor: Annotated[str, typer.Option("--actor", help="Who is to be forgotten.", show_default=False)],
    session_store: Annotated[
        str | None, typer.Option("--session-store", help="Their conversations, and what was distilled from them alone.")
    ] = None,
    memory_store: Annotated[str | None, typer.Option("--memory-store", help="All that this store knows.")] = None,
    yes: Yes = False,
    wait: Wait = False,
    wait_timeout: WaitTimeout = 600,
) -> None:
    """Forget an actor for good; needs WRITE on the store, or an admin."""
    if (session_store is None) == (memory_store is None):
        raise typer.BadParameter("give one of --session-store and --memory-store; each takes a call of its own")
    collection = "session-stores" if memory_store is None else "memory-stores"
    store = f"/{collection}/{segment(bare(collection, session_store or memory_store or ''))}"
    out = console(ctx)
    out.confirm(f"Erase everything of {actor} in {store[1:]}? There is no way back.", yes=yes)
    with out.rest() as rest:
        receipt = rest.create(f"{store}/actors:erase", body={"actor_id": actor})
        if wait:
            path = f"{store}/erasures/{segment(receipt['erasure_id'])}"

            def late(seen: dict[str, Any]) -> MemstreamError:
                return MemstreamError(
                    f"erasure {seen['erasure_id']} is {seen['state']} after {wait_timeout} s and goes on by itself",
                    hint="the same command again waits on, with a receipt of its own",
                )

            receipt = waited(
                out, "erasing", lambda: rest.get(path), lambda raw: raw["state"] == "DONE", late, timeout_s=wait_timeout
            )
    counts = "".join(f", {count} {UNITS.get(what, what)}" for what, count in receipt["counts"].items())
    if receipt["state"] == "DONE" and not any(receipt["counts"].values()):
        counts = "; nothing was held of this actor"
    show_done(out, receipt, f"Erasure {receipt['erasure_id']} of {actor}: {receipt['state']}{counts}")
