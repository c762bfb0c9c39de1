"""How a request is sent: pooled connections, deadlines, and repeats where repeating is safe.

429 and 503 promise that nothing was written, so any request may be repeated after them. When the answer was lost, a
request is repeated only if it reads or carries an Idempotency-Key.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from urllib.parse import quote

import httpx

from memstream.errors import MemstreamError, Unreachable, error_of
from memstream.values import dumps

BASE = "/api/2.0/agents"
TIMEOUT = httpx.Timeout(60.0, connect=5.0)
LIMITS = httpx.Limits(max_connections=32, max_keepalive_connections=32)
WAITING_STATUSES = (429, 503)
WAITING_BUDGET_S = 60.0
LONGEST_WAIT_S = 20.0
LOST_ANSWER_DELAYS_S = (0.2, 0.4, 0.8)

Headers = Callable[[], Mapping[str, str]]


class Transport:
    """Thread-safe. `headers` gives the Authorization header anew for each request."""

    def __init__(self, base_url: str, headers: Headers, *, transport: httpx.BaseTransport | None = None) -> None:
        self.base_url = base_url.rstrip("/")
        self._headers = headers
        self._client = httpx.Client(base_url=self.base_url, timeout=TIMEOUT, limits=LIMITS, transport=transport)

    def close(self) -> None:
        self._client.close()

    def get(self, path: str, params: Mapping[str, Any] | None = None) -> dict[str, Any]:
        return self.send("GET", path, params=params, repeatable=True)

    def send(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, Any] | None = None,
        body: Any = None,
        key: str | None = None,
        repeatable: bool = False,
    ) -> dict[str, Any]:
        """The answer's JSON object; `key` is the Idempotency-Key. Raises `MemstreamError`."""
        headers = {"Accept": "application/json", **({"Idempotency-Key": key} if key else {})}
        if body is not None:
            headers["Content-Type"] = "application/json"
        content = None if body is None else dumps(body)
        asked = {name: value for name, value in (params or {}).items() if value is not None}
        delays = iter(LOST_ANSWER_DELAYS_S)
        deadline = time.monotonic() + WAITING_BUDGET_S
        while True:
            try:
                answer = self._client.request(
                    method, f"{BASE}{path}", params=asked, content=content, headers={**headers, **self._headers()}
                )
            except httpx.TransportError as lost:
                is_safe = repeatable or key is not None or isinstance(lost, httpx.ConnectError)
                delay = next(delays, None) if is_safe else None
                if delay is None:
                    raise self._unreachable(lost) from lost
                time.sleep(delay)
                continue
            if answer.is_success:
                return _object(answer)
            wait_s = _retry_after_s(answer)
            if answer.status_code not in WAITING_STATUSES or time.monotonic() + wait_s > deadline:
                raise error_of(answer.status_code, _json(answer))
            time.sleep(wait_s * (1 + random.random() / 4))  # noqa: S311 - jitter

    def pages(
        self, path: str, field: str, *, page_size: int | None, params: Mapping[str, Any] | None = None
    ) -> Iterator[dict[str, Any]]:
        """Every element of a list, page after page."""
        check_page_size(page_size)
        token: str | None = None
        while True:
            page = self.get(path, {**(params or {}), "page_size": page_size, "page_token": token})
            yield from page.get(field) or ()
            token = page.get("next_page_token")
            if not token:
                return

    def _unreachable(self, lost: httpx.TransportError) -> MemstreamError:
        what = "did not answer in time" if isinstance(lost, httpx.TimeoutException) else "cannot be reached"
        return Unreachable(
            f"{self.base_url} {what}: {lost or type(lost).__name__}",
            hint="is it running? `make run` starts one; --url or MEMSTREAM_URL names another",
        )


def segment(text: str) -> str:
    """An id as a segment of a URL."""
    return quote(text, safe=":@+~")


def bare(collection: str, name: str) -> str:
    """The id of `name`, which may be given as `collection/id`."""
    found = name.removeprefix(f"{collection}/")
    if not found or "/" in found:
        raise ValueError(f"'{name}' is neither an id nor '{collection}/<id>'")
    return found


def check_page_size(size: int | None, what: str = "page_size") -> None:
    if size is not None and (isinstance(size, bool) or not isinstance(size, int) or not 1 <= size <= 100):
        raise ValueError(f"{what} must be a whole number from 1 to 100")


def _retry_after_s(answer: httpx.Response) -> float:
    text = answer.headers.get("Retry-After", "")
    return min(float(text), LONGEST_WAIT_S) if text.isdigit() else 1.0


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
