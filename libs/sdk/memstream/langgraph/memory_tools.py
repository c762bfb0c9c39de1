"""The four memory tools, for LangChain."""

from __future__ import annotations

from langchain_core.tools import BaseTool, StructuredTool

from memstream import tools
from memstream.client import AgentKitClient


def memory_tools(actor: str, store: str | None = None, client: AgentKitClient | None = None) -> list[BaseTool]:
    """remember, recall, forget and list_memories for one actor; none when no memory store is configured.

    `store` is a memory store's name; without one AGENT_MEMORY_STORE. `client` may speak for another user than
    MEMSTREAM_TOKEN does.
    """
    found = tools.memory_tools(actor, store, client)
    return [StructuredTool.from_function(each, parse_docstring=True) for each in found]
