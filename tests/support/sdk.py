"""Both clients behind one face, so that a test is written once: every method is awaited, every list is asynchronous."""

import asyncio
import inspect
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

import memstream.aio.client
import memstream.aio.memories
import memstream.aio.pipelines
import memstream.aio.sessions
import memstream.client
import memstream.memories
import memstream.pipelines
import memstream.sessions

CLIENTS = {"blocking": memstream.client.AgentKitClient, "awaited": memstream.aio.client.AsyncAgentKitClient}
CLASSES = {
    "blocking": (
        memstream.client.AgentKitClient,
        memstream.sessions.SessionStores,
        memstream.sessions.SessionStore,
        memstream.sessions.Session,
        memstream.memories.MemoryStores,
        memstream.memories.MemoryStore,
        memstream.memories.Memory,
        memstream.pipelines.Pipelines,
        memstream.pipelines.Pipeline,
    ),
    "awaited": (
        memstream.aio.client.AsyncAgentKitClient,
        memstream.aio.sessions.SessionStores,
        memstream.aio.sessions.SessionStore,
        memstream.aio.sessions.Session,
        memstream.aio.memories.MemoryStores,
        memstream.aio.memories.MemoryStore,
        memstream.aio.memories.Memory,
        memstream.aio.pipelines.Pipelines,
        memstream.aio.pipelines.Pipeline,
    ),
}
OF_A_CLIENT = ("memstream.client", "memstream.memories", "memstream.pipelines", "memstream.sessions", "memstream.aio.")

both_clients = pytest.mark.parametrize("kind", sorted(CLIENTS))


def public_methods(kind: str) -> set[str]:
    """`Class.method` of every method of a client and of what it hands out, under the blocking client's names."""
    return {
        _name(cls, name)
        for cls in CLASSES[kind]
        for name, _ in inspect.getmembers(cls, inspect.isfunction)
        if not name.startswith("_")
    }


class Face:
    """An object of either client. `called` hears of every method that has been called."""

    def __init__(self, target: Any, called: set[str]) -> None:
        self.target = target
        self.called = called

    def __getattr__(self, name: str) -> Any:
        value = getattr(self.target, name)
        if not inspect.ismethod(value):
            return _faced(value, self.called)
        if inspect.isgeneratorfunction(value) or inspect.isasyncgenfunction(value):
            return lambda *given, **named: self._stream(name, value(*given, **named))
        return lambda *given, **named: self._call(name, value, given, named)

    def __iter__(self) -> Iterator[Any]:
        return iter([_faced(each, self.called) for each in self.target])

    def __getitem__(self, index: int) -> Any:
        return _faced(self.target[index], self.called)

    def __len__(self) -> int:
        return len(self.target)

    async def _call(self, name: str, method: Any, given: Any, named: Any) -> Any:
        self.called.add(_name(type(self.target), name))
        if inspect.iscoroutinefunction(method):
            answer = await method(*given, **named)
        else:
            answer = await asyncio.to_thread(method, *given, **named)
        return _faced(answer, self.called)

    async def _stream(self, name: str, values: Any) -> AsyncIterator[Any]:
        self.called.add(_name(type(self.target), name))
        done = object()
        try:
            while True:
                if inspect.isasyncgen(values):
                    value = await anext(values, done)
                else:
                    value = await asyncio.to_thread(next, values, done)
                if value is done:
                    return
                yield _faced(value, self.called)
        finally:
            if inspect.isasyncgen(values):
                await values.aclose()
            else:
                values.close()


def face(kind: str, *given: Any, **named: Any) -> Face:
    """A client of that kind."""
    return Face(CLIENTS[kind](*given, **named), set())


async def everything(values: AsyncIterator[Any]) -> list[Any]:
    return [value async for value in values]


def _faced(value: Any, called: set[str]) -> Any:
    return Face(value, called) if type(value).__module__.startswith(OF_A_CLIENT) else value


def _name(cls: type, method: str) -> str:
    return f"{cls.__name__.removeprefix('Async')}.{method}"
