"""The memory tools as the Agents SDK takes them."""

from __future__ import annotations

from agents import FunctionTool, function_tool

from memstream import tools
from memstream.client import AgentKitClient


def memory_tools(actor: str, store: str | None = None, *, client: AgentKitClient | None = None) -> list[FunctionTool]:
    """`remember`, `recall`, `forget` and `list_memories` of one actor; none when no memory store is configured.

    The store is the argument, then AGENT_MEMORY_STORE. The actor is bound here: no model can name another. Take
    `actor` from the authenticated request. What fails is told to the model, and the run goes on.
    """
    return [function_tool(tool) for tool in tools.memory_tools(actor, store, client)]
