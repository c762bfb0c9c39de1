"""LangGraph's own conformance suite for checkpointers, all of it, against a running Memstream."""

import asyncio
import inspect
import uuid
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

import pytest
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.conformance import checkpointer_test, validate
from langgraph.checkpoint.conformance.capabilities import Capability

from memstream.langgraph import MemstreamSaver
from tests.support.standalone import StandaloneProcess


class Blocking(BaseCheckpointSaver[str]):
    """The suite awaits; this lets it drive the blocking methods."""

    def __init__(self, saver: MemstreamSaver) -> None:
        super().__init__()
        self._saver = saver

    async def aget_tuple(self, *given: Any, **named: Any) -> Any:
        return await asyncio.to_thread(self._saver.get_tuple, *given, **named)

    async def alist(self, *given: Any, **named: Any) -> AsyncIterator[Any]:
        for each in await asyncio.to_thread(lambda: list(self._saver.list(*given, **named))):
            yield each

    async def aput(self, *given: Any, **named: Any) -> Any:
        return await asyncio.to_thread(self._saver.put, *given, **named)

    async def aput_writes(self, *given: Any, **named: Any) -> None:
        await asyncio.to_thread(self._saver.put_writes, *given, **named)

    async def adelete_thread(self, *given: Any, **named: Any) -> None:
        await asyncio.to_thread(self._saver.delete_thread, *given, **named)

    async def adelete_for_runs(self, *given: Any, **named: Any) -> None:
        await asyncio.to_thread(self._saver.delete_for_runs, *given, **named)

    async def acopy_thread(self, *given: Any, **named: Any) -> None:
        await asyncio.to_thread(self._saver.copy_thread, *given, **named)

    async def aprune(self, *given: Any, **named: Any) -> None:
        await asyncio.to_thread(self._saver.prune, *given, **named)


@pytest.mark.parametrize("kind", ["awaited", "blocking"])
async def test_every_capability_conforms(standalone: StandaloneProcess, kind: str) -> None:
    async def made() -> AsyncGenerator[BaseCheckpointSaver[str], None]:
        name = f"t-{uuid.uuid4().hex[:12]}"
        with standalone.client() as client:
            client.session_stores.create(name)
        with MemstreamSaver(name, standalone.url, standalone.token) as saver:
            async with saver:
                yield saver if kind == "awaited" else Blocking(saver)

    report = await validate(checkpointer_test(f"memstream {kind}")(made))

    failures = [failure for result in report.results.values() for failure in result.failures]
    assert failures == []
    assert {name for name, result in report.results.items() if result.passed} == {each.value for each in Capability}


def test_nothing_of_the_interface_is_left_out() -> None:
    ours = {name for name in vars(MemstreamSaver) if not name.startswith("_")}
    theirs = {name for name, _ in inspect.getmembers(BaseCheckpointSaver, inspect.isfunction) if name[0] != "_"}

    assert theirs - ours == {"get", "aget", "with_allowlist"}
