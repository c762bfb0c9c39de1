"""The wire of a client, counted."""

import json
from collections.abc import Callable
from dataclasses import dataclass

import httpx


@dataclass
class Traffic:
    """Requests and what they brought: session items, and bytes in both directions."""

    requests: int = 0
    items_read: int = 0
    items_appended: int = 0
    bytes: int = 0


class CountedTransport(httpx.BaseTransport):
    """`before` is called with each request before it is sent."""

    def __init__(self, before: Callable[[httpx.Request], None] = lambda request: None) -> None:
        self._wire = httpx.HTTPTransport()
        self._before = before
        self.traffic = Traffic()

    def take(self) -> Traffic:
        """What there was since the last time."""
        taken, self.traffic = self.traffic, Traffic()
        return taken

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        self._before(request)
        answer = self._wire.handle_request(request)
        body = answer.read()
        self.traffic.requests += 1
        self.traffic.bytes += len(body) + len(request.read())
        items = len(json.loads(body).get("session_items", ()))
        if request.method == "GET":
            self.traffic.items_read += items
        else:
            self.traffic.items_appended += items
        return httpx.Response(
            answer.status_code, headers=_without_encoding(answer.headers), content=body, request=request
        )

    def close(self) -> None:
        self._wire.close()


def _without_encoding(headers: httpx.Headers) -> list[tuple[str, str]]:
    return [(name, value) for name, value in headers.items() if name != "content-encoding"]
