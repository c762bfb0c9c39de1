"""Where the server is and who asks: arguments, then a workspace client, then MEMSTREAM_URL and MEMSTREAM_TOKEN."""

from __future__ import annotations

import os
from typing import Any, Protocol, TypeVar

from memstream.errors import TOKEN_HINT, MemstreamError

T = TypeVar("T")

DEFAULT_URL = "http://127.0.0.1:8080"


class WorkspaceConfig(Protocol):
    @property
    def host(self) -> Any: ...

    def authenticate(self) -> Any: ...


class WorkspaceClient(Protocol):
    """Anything whose `config` has a `host` and an `authenticate()` that gives the headers of a request."""

    @property
    def config(self) -> Any: ...


def server_url(base_url: str | None, config: WorkspaceConfig | None) -> str:
    url = base_url or (str(config.host) if config else None) or os.environ.get("MEMSTREAM_URL") or DEFAULT_URL
    if not url.startswith(("http://", "https://")):
        raise MemstreamError(f"'{url}' is not the URL of a server", hint="it begins with http:// or https://")
    return url.rstrip("/")


def token_of_environment() -> str:
    known = os.environ.get("MEMSTREAM_TOKEN")
    if not known:
        raise MemstreamError("there is no token", hint=TOKEN_HINT)
    return known


def chosen(token: T | None) -> T | str:
    """The environment's where none was given. An empty one is refused: the environment's may be another caller's."""
    if token is None:
        return token_of_environment()
    if not token:
        raise MemstreamError("the token is empty", hint=TOKEN_HINT)
    return token


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}
