"""The connections of what serves blocking and asynchronous callers alike."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Generic, TypeVar
from weakref import WeakKeyDictionary

from typing_extensions import Self

from memstream.aio.client import AsyncAgentKitClient
from memstream.client import AgentKitClient
from memstream.credentials import token_of_environment

B = TypeVar("B")
A = TypeVar("A")


class Connected(Generic[B, A]):
    """Something on a blocking client, and something on a client of each event loop, to which its connections belong.

    Both are made when first used, or used again. `with` and `async with` close theirs when the last of those who
    entered leaves.
    """

    def __init__(
        self,
        base_url: str,
        token: str | None,
        blocking: Callable[[AgentKitClient], B],
        awaited: Callable[[AsyncAgentKitClient], A],
    ) -> None:
        self._base_url = base_url
        self._token = token_of_environment if token is None else token
        self._make_blocking = blocking
        self._make_awaited = awaited
        self._lock = threading.Lock()
        # Containers, because LangGraph makes shallow copies of a checkpointer, which share them.
        self._blocking: list[tuple[AgentKitClient, B]] = []
        self._awaited: WeakKeyDictionary[asyncio.AbstractEventLoop, tuple[AsyncAgentKitClient, A]] = WeakKeyDictionary()
        self._entered: dict[asyncio.AbstractEventLoop | None, int] = {}

    @property
    def blocking(self) -> B:
        with self._lock:
            if not self._blocking:
                client = AgentKitClient(base_url=self._base_url, token=self._token)
                self._blocking.append((client, self._make_blocking(client)))
            return self._blocking[0][1]

    @property
    def awaited(self) -> A:
        """That of the running loop."""
        loop = asyncio.get_running_loop()
        with self._lock:
            found = self._awaited.get(loop)
            if found is None:
                client = AsyncAgentKitClient(base_url=self._base_url, token=self._token)
                found = self._awaited[loop] = client, self._make_awaited(client)
            return found[1]

    def __enter__(self) -> Self:
        self._enter(None)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._is_last_to_leave(None):
            with self._lock:
                closing = self._blocking.pop() if self._blocking else None
            if closing is not None:
                closing[0].close()

    async def __aenter__(self) -> Self:
        self._enter(asyncio.get_running_loop())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        loop = asyncio.get_running_loop()
        if self._is_last_to_leave(loop):
            with self._lock:
                closing = self._awaited.pop(loop, None)
            if closing is not None:
                await closing[0].close()

    def _enter(self, loop: asyncio.AbstractEventLoop | None) -> None:
        with self._lock:
            self._entered[loop] = self._entered.get(loop, 0) + 1

    def _is_last_to_leave(self, loop: asyncio.AbstractEventLoop | None) -> bool:
        with self._lock:
            left = self._entered.pop(loop) - 1
            if left:
                self._entered[loop] = left
            return left == 0
