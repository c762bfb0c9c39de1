"""Memstream's client: durable sessions and streaming long-term memory for AI agents.

Names are loaded when first used, so that importing the package costs nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from memstream.client import AgentKitClient
    from memstream.errors import (
        Aborted,
        AlreadyExists,
        FailedPrecondition,
        InternalError,
        InvalidParameterValue,
        MemstreamError,
        NotFound,
        PermissionDenied,
        ResourceExhausted,
        Unauthenticated,
        Unavailable,
        Unreachable,
    )
    from memstream.memories import Memory, MemorySearchResult, MemoryStore, MemoryStores, SearchResults, WaitFor
    from memstream.pipelines import Lane, Pipeline, PipelineRun, Pipelines
    from memstream.sessions import NewItem, Session, SessionItem, SessionStore, SessionStores

__version__ = "0.5.0"

_HOMES = {
    "client": ("AgentKitClient",),
    "errors": (
        "Aborted",
        "AlreadyExists",
        "FailedPrecondition",
        "InternalError",
        "InvalidParameterValue",
        "MemstreamError",
        "NotFound",
        "PermissionDenied",
        "ResourceExhausted",
        "Unauthenticated",
        "Unavailable",
        "Unreachable",
    ),
    "memories": ("Memory", "MemorySearchResult", "MemoryStore", "MemoryStores", "SearchResults", "WaitFor"),
    "pipelines": ("Lane", "Pipeline", "PipelineRun", "Pipelines"),
    "sessions": ("NewItem", "Session", "SessionItem", "SessionStore", "SessionStores"),
}

__all__ = [
    "Aborted",
    "AgentKitClient",
    "AlreadyExists",
    "FailedPrecondition",
    "InternalError",
    "InvalidParameterValue",
    "Lane",
    "Memory",
    "MemorySearchResult",
    "MemoryStore",
    "MemoryStores",
    "MemstreamError",
    "NewItem",
    "NotFound",
    "PermissionDenied",
    "Pipeline",
    "PipelineRun",
    "Pipelines",
    "ResourceExhausted",
    "SearchResults",
    "Session",
    "SessionItem",
    "SessionStore",
    "SessionStores",
    "Unauthenticated",
    "Unavailable",
    "Unreachable",
    "WaitFor",
    "__version__",
]


def __getattr__(name: str) -> Any:
    for module, names in _HOMES.items():
        if name in names:
            return getattr(import_module(f"memstream.{module}"), name)
    raise AttributeError(f"module 'memstream' has no attribute '{name}'")
