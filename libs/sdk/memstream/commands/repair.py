"""`memstream repair`: after the session or the memory database was restored to an older dump."""

from __future__ import annotations

from collections import Counter
from typing import Any

import typer

from memstream.console import Console, console

STEPS = ("lanes", "batches")
TIMEOUT_S = 120.0


def repair(ctx: typer.Context) -> None:
    """Give a restored memory database what it lost, and distil what a restored session database holds anew.

    Run it as an admin before clients are let in; to repeat it is harmless.
    """
    out = console(ctx)
    done: Counter[str] = Counter()
    for step in STEPS:
        answer = _post(out, step, None)
        while True:
            token = answer.pop("next_page_token", None)
            done.update(answer)
            if token is None:
                break
            answer = _post(out, step, token)
    out.show(
        dict(done),
        f"{done['rewound']} of {done['sessions']} sessions are distilled anew; "
        f"{done['applied_again']} of {done['batches']} batches were applied again",
    )


def _post(out: Console, step: str, token: str | None) -> dict[str, Any]:
    """One page of a step. Raises `MemstreamError`."""
    # Imported here: the HTTP client would be half of the start of `memstream --help`.
    import httpx

    from memstream.errors import Unreachable, error_of

    with out.client() as client:
        url = f"{client.base_url}/ops/distiller/{step}:repair"
    try:
        answer = httpx.post(
            url, json={"page_token": token}, headers={"Authorization": f"Bearer {out.token}"}, timeout=TIMEOUT_S
        )
    except httpx.TransportError as lost:
        raise Unreachable(f"{url} cannot be reached: {lost}", hint="repeat it: what is repaired stays so") from lost
    body: dict[str, Any] = answer.json() if "json" in answer.headers.get("Content-Type", "") else {}
    if not answer.is_success:
        raise error_of(answer.status_code, body)
    return body
