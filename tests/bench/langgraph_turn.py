"""One turn of a conversation in a LangGraph checkpointer, whichever: load 50 messages, append 3."""

import json
from itertools import cycle, islice
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointMetadata, empty_checkpoint

from tests.bench.payload import ITEMS, RELOADED
from tests.bench.windows import Step

APPENDED = 3
METADATA: CheckpointMetadata = {"source": "loop", "step": 0, "parents": {}}


async def turns(saver: BaseCheckpointSaver[str], thread: str) -> Step:
    """Each turn finds as long a history, so that all cost the same."""
    config: Any = {"configurable": {"thread_id": thread, "checkpoint_ns": ""}}
    first = {"messages": saver.get_next_version(None, None)}
    await saver.aput(config, checkpoint(RELOADED, first), METADATA, {**first})

    async def turn() -> None:
        loaded = await saver.aget_tuple(config)
        if loaded is None or len(loaded.checkpoint["channel_values"]["messages"]) < RELOADED:
            raise AssertionError("the thread's messages are not there")
        version = saver.get_next_version(str(loaded.checkpoint["channel_versions"]["messages"]), None)
        newer = {"messages": version}
        await saver.aput(loaded.config, checkpoint(RELOADED + APPENDED, newer), METADATA, {**newer})

    return turn


def checkpoint(messages: int, versions: dict[str, Any]) -> Any:
    values = {"messages": list(islice(cycle(_said()), messages))}
    return empty_checkpoint() | {"channel_values": values, "channel_versions": versions}


def _said() -> list[BaseMessage]:
    user, assistant = map(json.loads, ITEMS)
    return [HumanMessage(user["content"]), AIMessage(assistant["content"][0]["text"])]
