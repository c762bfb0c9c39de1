"""The asynchronous client: the classes of `memstream`, under the same names, with methods to await.

`AsyncAgentKitClient` is the entrance. The blocking modules are made from the ones here by `generate.py`.
"""

from memstream.aio.client import AsyncAgentKitClient
from memstream.aio.memories import Memory, MemorySearchResult, MemoryStore, MemoryStores, SearchResults
from memstream.aio.pipelines import Pipeline, Pipelines
from memstream.aio.sessions import Session, SessionStore, SessionStores

__all__ = [
    "AsyncAgentKitClient",
    "Memory",
    "MemorySearchResult",
    "MemoryStore",
    "MemoryStores",
    "Pipeline",
    "Pipelines",
    "SearchResults",
    "Session",
    "SessionStore",
    "SessionStores",
]
