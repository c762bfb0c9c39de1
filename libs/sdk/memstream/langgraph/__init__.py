"""Memstream for LangGraph: `pip install memstream[langgraph]`."""

from memstream.langgraph.addresses import thread_config
from memstream.langgraph.saver import MemstreamSaver, checkpointer

__all__ = ["MemstreamSaver", "checkpointer", "thread_config"]
