"""The entrance: `.session_stores`, `.memory_stores`, `.pipelines`."""

from __future__ import annotations

from types import TracebackType

import httpx

from memstream.aio.http import Token, authorization
from memstream.aio.memories import MemoryStores
from memstream.aio.pipelines import Pipelines
from memstream.aio.sessions import SessionStores
from memstream.aio.transport import TIMEOUT_S, Transport
from memstream.credentials import WorkspaceClient, WorkspaceConfig, server_url
from memstream.retries import PATIENCE_S


class AsyncAgentKitClient:
    """One for a process is enough: it pools its connections and may be shared. `async with` closes them.

    `base_url` and `token` default to MEMSTREAM_URL and MEMSTREAM_TOKEN. `token` may be a function: it is asked before
    each request, so that it can refresh, or speak for the user whose request is being served. Instead of both, a
    `workspace_client` may be given: anything with `.config.host` and `.config.authenticate()`. An answer may let wait
    for `timeout_s` seconds, and the repeats of a request for `patience_s` in all. Raises `MemstreamError` when there is
    no token; every call may raise one.
    """

    def __init__(
        self,
        workspace_client: WorkspaceClient | None = None,
        *,
        base_url: str | None = None,
        token: Token | None = None,
        timeout_s: float = TIMEOUT_S,
        patience_s: float = PATIENCE_S,
        http_transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        config: WorkspaceConfig | None = workspace_client.config if workspace_client is not None else None
        self._transport = Transport(
            server_url(base_url, config),
            authorization(config, token),
            timeout_s=timeout_s,
            patience_s=patience_s,
            transport=http_transport,
        )
        self.session_stores = SessionStores(self._transport)
        self.memory_stores = MemoryStores(self._transport)
        self.pipelines = Pipelines(self._transport)

    @property
    def base_url(self) -> str:
        return self._transport.base_url

    async def close(self) -> None:
        await self._transport.close()

    async def __aenter__(self) -> AsyncAgentKitClient:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
