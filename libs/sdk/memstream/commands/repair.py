"""`memstream repair`: after the session or the memory database was restored to an older dump."""

from __future__ import annotations

from collections import Counter

import typer

from memstream.commands.progress import waiting
from memstream.console import console

STEPS = ("lanes", "batches")
PAGE_WAIT_S = 60.0


def repair(ctx: typer.Context) -> None:
    """Give a restored memory database what it lost, and distil what a restored session database holds anew.

    Run it as an admin before clients are let in; to repeat it is harmless.
    """
    out = console(ctx)
    done: Counter[str] = Counter()
    with out.rest("/ops/distiller") as rest, waiting(out, "repairing"):
        for step in STEPS:
            page = {"page_token": None}
            while page:
                answer = rest.send("POST", f"/{step}:repair", body=page, is_safe=True, wait_s=PAGE_WAIT_S)
                token = answer.pop("next_page_token", None)
                done.update(answer)
                page = {"page_token": token} if token else {}
    out.show(
        dict(done),
        f"{done['rewound']} of {done['sessions']} sessions are distilled anew; "
        f"{done['applied_again']} of {done['batches']} batches were applied again"
        + (f"; {done['left_out']} actors must be replayed again" if done["left_out"] else ""),
    )
