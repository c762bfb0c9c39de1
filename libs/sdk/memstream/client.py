"""The entrance: `AgentKitClient().session_stores`, `.memory_stores`, `.pipelines`."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Protocol

import httpx

from memstream.errors import MemstreamError
from memstream.memories import MemoryStores
from memstream.pipelines import Pipelines
from memstream.sessions import SessionStores
from memstream.transport import Transport

DEFAULT_URL = "http://127.0.0.1:8080"


class WorkspaceConfig(Protocol):
    @property
    def host(self) -> Any: ...

    def authenticate(self) -> Any: ...


class WorkspaceClient(Protocol):
    """Anything that knows a host and how to authenticate there."""

    @property
    def config(self) -> Any: ...


class AgentKitClient:
    """Thread-safe; pools its connections. Also a context manager that closes them.

    `base_url` and `token` default to MEMSTREAM_URL and MEMSTREAM_TOKEN; `token` may be a function that is asked before
    each request.
    """

    def __init__(
        self,
        workspace_client: WorkspaceClient | None = None,
        *,
        base_url: str | None = None,
        token: str | Callable[[], str] | None = None,
        http_transport: httpx.BaseTransport | None = None,
    ) -> None:
        config: WorkspaceConfig | None = workspace_client.config if workspace_client is not None else None
        url = base_url or (str(config.host) if config else None) or os.environ.get("MEMSTREAM_URL") or DEFAULT_URL
        self._transport = Transport(url, _headers(config, token), transport=http_transport)
        self.session_stores = SessionStores(self._transport)
        self.memory_stores = MemoryStores(self._transport)
        self.pipelines = Pipelines(self._transport)

    @property
    def base_url(self) -> str:
        return self._transport.base_url

    def close(self) -> None:
        self._transport.close()

    def __enter__(self) -> AgentKitClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _headers(config: WorkspaceConfig | None, token: str | Callable[[], str] | None) -> Callable[[], Mapping[str, str]]:
    if token is None and config is not None:
        return config.authenticate
    known = token or os.environ.get("MEMSTREAM_TOKEN")
    if not known:
        raise MemstreamError(
            "there is no token", hint="pass token= (--token) or set MEMSTREAM_TOKEN; `memstream tokens issue` makes one"
        )
    if callable(known):
        return lambda: {"Authorization": f"Bearer {known()}"}
    return lambda: {"Authorization": f"Bearer {known}"}
