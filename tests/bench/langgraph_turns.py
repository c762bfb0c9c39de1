"""A LangGraph turn through the checkpointer: load 50 messages, append 3. And what a turn costs as a thread grows."""

import asyncio
from itertools import cycle, islice
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langgraph.checkpoint.base import CheckpointMetadata, empty_checkpoint
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from memstream.client import AgentKitClient
from memstream.langgraph import MemstreamSaver, thread_config
from memstream.langgraph.threads import Threads
from tests.bench.appends import PARTS
from tests.bench.report import Row, at_most
from tests.bench.stand import SESSION_STORE, Stand
from tests.bench.windows import Step, side_by_side
from tests.support.counted import CountedTransport, Traffic

LOADED, APPENDED = 50, 3
CLIENTS = (1, 8)
LENGTHS = (10, 100, 1000)
METADATA: CheckpointMetadata = {"source": "loop", "step": 0, "parents": {}}
SAID: tuple[BaseMessage, ...] = (
    HumanMessage("Could you move my appointment at the dentist to Thursday afternoon, and tell Marta?"),
    AIMessage("Done: Thursday at 15:30. Marta knows that you will be late."),
)


async def langgraph_rows(stand: Stand, window_s: float) -> list[Row]:
    token = stand.headers["Authorization"].removeprefix("Bearer ")
    async with MemstreamSaver(SESSION_STORE, stand.url("session"), token) as saver:
        loads = {
            f"{clients}": [await _turns(saver, f"turn-{clients}-{client}") for client in range(clients)]
            for clients in CLIENTS
        }
        found = await side_by_side(loads, window_s)
    wire = CountedTransport()
    with AgentKitClient(base_url=stand.url("session"), token=token, http_transport=wire) as client:
        costs = await asyncio.to_thread(_costs, Threads(client, SESSION_STORE, transcript=False), wire)
    note = f"{PARTS}, the client in the same process; p95 {found['1'].p95_ms:.1f} ms"
    what = f"LangGraph turn (load {LOADED} messages, append {APPENDED})"
    grown, short = costs[LENGTHS[-1]], costs[LENGTHS[0]]
    lengths = f"LangGraph turn at {LENGTHS[-1]:,} checkpoints against {LENGTHS[0]}"
    growth = f"get the newest checkpoint, put the next, at {', '.join(map(str, LENGTHS))} checkpoints"
    return [
        Row(f"{what}, 1 client, p50", "ms", found["1"].p50_ms, None, None, note),
        Row(f"{what}, 8 clients", "/s", found["8"].per_s, None, None, f"{PARTS}; p50 {found['8'].p50_ms:.1f} ms"),
        *(
            Row(lengths, unit, ours, least, target, growth)
            for unit, ours, least, target in (
                ("requests", grown.requests, short.requests, at_most(1)),
                ("items", grown.items_read + grown.items_appended, short.items_read + short.items_appended, at_most(1)),
                ("bytes", grown.bytes, short.bytes, at_most(1.05)),
            )
        ),
    ]


async def _turns(saver: MemstreamSaver, thread: str) -> Step:
    """Each turn finds the same history, so that all cost the same."""
    config = thread_config(thread)
    versions: dict[str, Any] = {"messages": saver.get_next_version(None, None)}
    await saver.aput(config, _checkpoint(LOADED, versions), METADATA, versions)

    async def turn() -> None:
        loaded = await saver.aget_tuple(config)
        if loaded is None or len(loaded.checkpoint["channel_values"]["messages"]) < LOADED:
            raise AssertionError("the thread's messages are not there")
        newer: dict[str, Any] = {"messages": saver.get_next_version(versions["messages"], None)}
        await saver.aput(loaded.config, _checkpoint(LOADED + APPENDED, newer), METADATA, newer)

    return turn


def _costs(threads: Threads, wire: CountedTransport) -> dict[int, Traffic]:
    """Of a turn with one message, by the number of checkpoints before it."""
    serde, costs = JsonPlusSerializer(), {}
    for number in range(LENGTHS[-1] + 1):
        versions: dict[str, Any] = {"messages": f"{number:032}"}
        wire.take()
        newest = threads.get_tuple(serde, thread_config("growing"))
        config = newest.config if newest else thread_config("growing")
        threads.put(serde, config, _checkpoint(1, versions), METADATA, versions)
        costs[number] = wire.take()
    return costs


def _checkpoint(messages: int, versions: dict[str, Any]) -> Any:
    values = {"messages": list(islice(cycle(SAID), messages))}
    return empty_checkpoint() | {"channel_values": values, "channel_versions": versions}
