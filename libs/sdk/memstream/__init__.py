"""Memstream's client: durable sessions and streaming long-term memory for AI agents.

Begin at `AgentKitClient`, or `AsyncAgentKitClient`, whose classes are in `memstream.aio`. What a call can raise is
drawn in `memstream.errors`. Names are loaded when first used, so that importing the package costs nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from memstream.aio.client import AsyncAgentKitClient
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
    from memstream.memories import Memory, MemorySearchResult, MemoryStore, MemoryStores, SearchResults
    from memstream.pipelines import Pipeline, Pipelines
    from memstream.records import (
        AnalysisProgress,
        EmbeddingProgress,
        ErasureReceipt,
        Evidence,
        ExtractedMemory,
        Lane,
        MemoryChange,
        MemoryVersion,
        NewItem,
        Permission,
        PipelineRun,
        Replay,
        ReplayedActors,
        SessionItem,
        Usage,
        WaitFor,
    )
    from memstream.sessions import Session, SessionStore, SessionStores

__version__ = "0.5.0"

_HOMES = {
    "aio.client": ("AsyncAgentKitClient",),
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
    "memories": (
        "Memory",
        "MemorySearchResult",
        "MemoryStore",
        "MemoryStores",
        "SearchResults",
    ),
    "pipelines": (
        "Pipeline",
        "Pipelines",
    ),
    "records": (
        "AnalysisProgress",
        "EmbeddingProgress",
        "ErasureReceipt",
        "Evidence",
        "ExtractedMemory",
        "Lane",
        "MemoryChange",
        "MemoryVersion",
        "NewItem",
        "Permission",
        "PipelineRun",
        "Replay",
        "ReplayedActors",
        "SessionItem",
        "Usage",
        "WaitFor",
    ),
    "sessions": (
        "Session",
        "SessionStore",
        "SessionStores",
    ),
}

__all__ = [
    "Aborted",
    "AgentKitClient",
    "AlreadyExists",
    "AnalysisProgress",
    "AsyncAgentKitClient",
    "EmbeddingProgress",
    "ErasureReceipt",
    "Evidence",
    "ExtractedMemory",
    "FailedPrecondition",
    "InternalError",
    "InvalidParameterValue",
    "Lane",
    "Memory",
    "MemoryChange",
    "MemorySearchResult",
    "MemoryStore",
    "MemoryStores",
    "MemoryVersion",
    "MemstreamError",
    "NewItem",
    "NotFound",
    "Permission",
    "PermissionDenied",
    "Pipeline",
    "PipelineRun",
    "Pipelines",
    "Replay",
    "ReplayedActors",
    "ResourceExhausted",
    "SearchResults",
    "Session",
    "SessionItem",
    "SessionStore",
    "SessionStores",
    "Unauthenticated",
    "Unavailable",
    "Unreachable",
    "Usage",
    "WaitFor",
    "__version__",
]


def __getattr__(name: str) -> Any:
    for module, names in _HOMES.items():
        if name in names:
            return getattr(import_module(f"memstream.{module}"), name)
    raise AttributeError(f"module 'memstream' has no attribute '{name}'")


def __dir__() -> list[str]:
    return __all__
