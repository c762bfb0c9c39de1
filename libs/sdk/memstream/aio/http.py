"""What differs between the two clients: how to wait, and who may give tokens. `memstream.http` is the other one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping

from memstream.credentials import WorkspaceConfig, bearer, chosen

Token = str | Callable[[], str] | Callable[[], Awaitable[str]]
Headers = Callable[[], Awaitable[Mapping[str, str]]]


async def sleep(seconds: float) -> None:
    await asyncio.sleep(seconds)


def authorization(config: WorkspaceConfig | None, token: Token | None) -> Headers:
    """The headers that say who asks, anew for each request. `authenticate` may block, hence a thread."""
    if token is None and config is not None:

        async def authenticated() -> Mapping[str, str]:
            headers: Mapping[str, str] = await asyncio.to_thread(config.authenticate)
            return headers

        return authenticated
    known: Token = chosen(token)

    async def headers() -> Mapping[str, str]:
        found = known() if callable(known) else known
        return bearer(found if isinstance(found, str) else await found)

    return headers
