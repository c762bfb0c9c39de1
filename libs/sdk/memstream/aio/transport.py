"""How a request is sent: pooled connections, deadlines, and repeats where repeating is safe (`memstream.retries`)."""

from __future__ import annotations

import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import suppress
from typing import Any

import httpx

from memstream import __version__
from memstream.aio.http import Headers, sleep
from memstream.errors import MemstreamError, Unavailable, Unreachable, error_of
from memstream.retries import Attempts, backoff_s
from memstream.sse import EventReader, ServerEvent
from memstream.values import PAGE_MAX, check_page_size, dumps

BASE = "/api/2.0/agents"
TIMEOUT_S = 60.0
CONNECT_TIMEOUT_S = 5.0
SILENCE_S = 30.0  # a stream says something every 15 s
LIMITS = httpx.Limits(max_connections=32, max_keepalive_connections=32)


class Transport:
    """`headers` says who asks, anew for each attempt. `timeout_s` is how long an answer may let wait for itself,
    `patience_s` how long repeats may be waited for. Paths are below
    `prefix`."""

    def __init__(
        self,
        base_url: str,
        headers: Headers,
        *,
        timeout_s: float,
        patience_s: float,
        transport: httpx.AsyncBaseTransport | None,
        prefix: str = BASE,
    ) -> None:
        self.base_url = base_url
        self._headers = headers
        self._timeout_s = timeout_s
        self._patience_s = patience_s
        self._prefix = prefix
        self._client = httpx.AsyncClient(base_url=base_url, limits=LIMITS, transport=transport)

    async def close(self) -> None:
        await self._client.aclose()

    async def get(self, path: str, params: Mapping[str, Any] | None = None, *, wait_s: float = 0.0) -> dict[str, Any]:
        return await self.send("GET", path, params=params, is_safe=True, wait_s=wait_s)

    async def create(self, path: str, *, params: Mapping[str, Any] | None = None, body: Any = None) -> dict[str, Any]:
        """A POST under an Idempotency-Key of its own, so that it is done once however often it is sent."""
        return await self.send("POST", path, params=params, body=body or {}, key=str(uuid.uuid4()))

    async def send(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, Any] | None = None,
        body: Any = None,
        key: str | None = None,
        is_safe: bool = False,
        wait_s: float = 0.0,
    ) -> dict[str, Any]:
        """The answer's JSON object. `key` is the Idempotency-Key; `is_safe` says that a repeat does no harm.

        The server may take `wait_s` longer than usual. Raises `MemstreamError`.
        """
        headers = {"Idempotency-Key": key} if key else {}
        answer = await self._answer(
            method, path, params=params, body=body, headers=headers, is_safe=is_safe or key is not None, wait_s=wait_s
        )
        return _object(answer)

    async def pages(
        self,
        path: str,
        field: str,
        *,
        page_size: int | None,
        params: Mapping[str, Any] | None = None,
        first: Mapping[str, Any] | None = None,
        wait_s: float = 0.0,
        maximum: int = PAGE_MAX,
    ) -> AsyncIterator[dict[str, Any]]:
        """Every element of a list, page after page. `first` is asked, and `wait_s` waited, with the first one only."""
        check_page_size(page_size, maximum=maximum)
        asked = {**(params or {}), "page_size": page_size}
        page = await self.get(path, {**asked, **(first or {})}, wait_s=wait_s)
        while True:
            for raw in page.get(field) or ():
                yield raw
            token = page.get("next_page_token")
            if not token:
                return
            page = await self.get(path, {**asked, "page_token": token})

    async def events(
        self, path: str, *, params: Mapping[str, Any], after: str | None
    ) -> AsyncGenerator[ServerEvent, None]:
        """Server-sent events for ever, from the one called `after` on; a cut is made good, however long it lasts.

        Raises when there is no server to begin with, and what it answers to who may no longer ask.
        """
        has_begun, failures = False, 0
        while True:
            try:
                answer = await self._answer(
                    "GET",
                    path,
                    params=params,
                    headers={"Accept": "text/event-stream", **({"Last-Event-ID": after} if after else {})},
                    is_safe=True,
                    is_stream=True,
                    wait_s=SILENCE_S,
                )
            except (Unreachable, Unavailable):
                if not has_begun:
                    raise
            else:
                has_begun = True
                reader = EventReader()
                try:
                    with suppress(httpx.TransportError):
                        async for line in answer.aiter_lines():
                            if event := reader.feed(line):
                                after, failures = event.id, 0
                                yield event
                finally:
                    await answer.aclose()
            failures += 1
            await sleep(backoff_s(failures))

    async def _answer(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, Any] | None = None,
        body: Any = None,
        headers: Mapping[str, str],
        is_safe: bool,
        is_stream: bool = False,
        wait_s: float = 0.0,
    ) -> httpx.Response:
        fixed = {"Accept": "application/json", "User-Agent": f"memstream/{__version__}", **headers}
        if body is not None:
            fixed["Content-Type"] = "application/json"
        content = None if body is None else dumps(body)
        asked = {name: value for name, value in (params or {}).items() if value is not None}
        timeout = httpx.Timeout(self._timeout_s + wait_s, connect=CONNECT_TIMEOUT_S)
        attempts = Attempts(is_safe=is_safe, patience_s=self._patience_s)
        while True:
            request = self._client.build_request(
                method,
                f"{self._prefix}{path}",
                params=asked,
                content=content,
                headers={**fixed, **await self._headers()},
                timeout=timeout,
            )
            try:
                answer = await self._client.send(request, stream=is_stream)
                if is_stream and not answer.is_success:
                    await answer.aread()
            except httpx.TransportError as lost:
                delay_s = attempts.after_loss(lost)
                if delay_s is None:
                    raise self._unreachable(lost) from lost
            else:
                if answer.is_success:
                    return answer
                error = error_of(answer.status_code, _json(answer))
                delay_s = attempts.after_answer(answer.status_code, error.reason, answer.headers.get("Retry-After"))
                if delay_s is None:
                    raise error
            await sleep(delay_s)

    def _unreachable(self, lost: httpx.TransportError) -> MemstreamError:
        what = "did not answer in time" if isinstance(lost, httpx.TimeoutException) else "cannot be reached"
        return Unreachable(
            f"{self.base_url} {what}: {lost or type(lost).__name__}",
            hint="is it running? `make run` starts one; --url or MEMSTREAM_URL names another",
        )


def _json(answer: httpx.Response) -> Any:
    try:
        return answer.json()
    except ValueError:
        return None


def _object(answer: httpx.Response) -> dict[str, Any]:
    if not answer.content:
        return {}
    body = _json(answer)
    if not isinstance(body, dict):
        raise MemstreamError(
            f"{answer.url.host} answered something that is not a JSON object", hint="is the URL that of a Memstream?"
        )
    return body
