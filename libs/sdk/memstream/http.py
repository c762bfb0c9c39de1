"""What differs between the two clients: how to wait, and who may give tokens. `memstream.aio.http` is the other one."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from memstream.credentials import WorkspaceConfig, bearer, chosen

Token = str | Callable[[], str]
Headers = Callable[[], Mapping[str, str]]


def sleep(seconds: float) -> None:
    time.sleep(seconds)


def authorization(config: WorkspaceConfig | None, token: Token | None) -> Headers:
    """The headers that say who asks, anew for each request."""
    if token is None and config is not None:
        return config.authenticate
    known: Token = chosen(token)
    return lambda: bearer(known() if callable(known) else known)
