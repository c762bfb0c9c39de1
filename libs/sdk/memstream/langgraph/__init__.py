"""Memstream for LangGraph; needs the extra `langgraph`."""

from memstream.langgraph.addresses import thread_config
from memstream.langgraph.base_store import MemstreamStore, store
from memstream.langgraph.history import History, read_history
from memstream.langgraph.memory_tools import memory_tools
from memstream.langgraph.saver import MemstreamSaver, checkpointer

__all__ = [
    "History",
    "MemstreamSaver",
    "MemstreamStore",
    "checkpointer",
    "memory_tools",
    "read_history",
    "store",
    "thread_config",
]
