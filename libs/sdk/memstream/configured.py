"""What an adapter uses when it is told nothing: stores and server by environment, one client for the process.

Stores: the argument, then AGENT_SESSION_STORE or AGENT_MEMORY_STORE, then none.
"""

from __future__ import annotations

import os
from functools import cache

from memstream.client import AgentKitClient
from memstream.credentials import server_url, token_of_environment


def session_store_name(store: str | None) -> str | None:
    return store or os.environ.get("AGENT_SESSION_STORE") or None


def memory_store_name(store: str | None) -> str | None:
    return store or os.environ.get("AGENT_MEMORY_STORE") or None


def process_client() -> AgentKitClient:
    """The client of MEMSTREAM_URL that everything in this process shares; MEMSTREAM_TOKEN is read at each request."""
    return _client(server_url(None, None))


@cache
def _client(url: str) -> AgentKitClient:
    return AgentKitClient(base_url=url, token=token_of_environment)
