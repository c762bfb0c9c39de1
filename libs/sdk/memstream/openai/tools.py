"""The memory tools as the Agents SDK takes them."""

from __future__ import annotations

import logging
from typing import Any

from agents import FunctionTool, RunContextWrapper, default_tool_error_function, function_tool

from memstream import tools
from memstream.client import AgentKitClient
from memstream.errors import MemstreamError

log = logging.getLogger(__name__)


def memory_tools(actor: str, store: str | None = None, *, client: AgentKitClient | None = None) -> list[FunctionTool]:
    """`remember`, `recall`, `forget` and `list_memories` of one actor; none when no memory store is configured.

    The store is the argument, then AGENT_MEMORY_STORE. The actor is bound here: no model can name another. Take
    `actor` from the authenticated request. What fails is told to the model, and the run goes on.
    """
    return [function_tool(tool, failure_error_function=_told) for tool in tools.memory_tools(actor, store, client)]


def _told(context: RunContextWrapper[Any], error: Exception) -> str:
    """The framework's own words would have the model try again what it may not do."""
    if not isinstance(error, MemstreamError):
        return default_tool_error_function(context, error)
    log.warning("a memory tool failed: %s", error.error_code or type(error).__name__)
    return f"This did not work: {error.message}"
