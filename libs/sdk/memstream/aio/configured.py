"""The awaited client that adapters share. `memstream.configured` has the blocking one, and how stores are found."""

from __future__ import annotations

import asyncio

from memstream.aio.client import AsyncAgentKitClient
from memstream.credentials import server_url, token_of_environment

_clients: dict[tuple[asyncio.AbstractEventLoop, str], AsyncAgentKitClient] = {}


def process_client() -> AsyncAgentKitClient:
    """The client of MEMSTREAM_URL that everything on this event loop shares, because a connection belongs to a loop.

    MEMSTREAM_TOKEN is read at each request.
    """
    for known in [key for key in _clients if key[0].is_closed()]:
        del _clients[known]
    key = (asyncio.get_running_loop(), server_url(None, None))
    if key not in _clients:
        _clients[key] = AsyncAgentKitClient(base_url=key[1], token=token_of_environment)
    return _clients[key]
