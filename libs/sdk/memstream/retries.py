"""Whether and when a request is sent again.

429 and 503 promise that nothing was written, so after them any request waits as told (`Retry-After`, else twice as long
each time) and is repeated. Where no connection came about, nothing was sent: three repeats. Where the answer was lost
(cut, timed out, 502, 504, or `OUTCOME_UNKNOWN`), only a request that reads, or that carries an `Idempotency-Key`, is
repeated. A client waits no longer than its patience in all: a minute, unless it is told otherwise.
"""

from __future__ import annotations

import random

import httpx

LOST_ANSWER_DELAYS_S = (0.2, 0.4, 0.8)
PATIENCE_S = 60.0
FIRST_WAIT_S, LONGEST_WAIT_S = 0.5, 20.0
WAITING_STATUSES = (429, 503)
LOST_STATUSES = (502, 504)
OUTCOME_UNKNOWN = "OUTCOME_UNKNOWN"
NOTHING_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)
HOPELESS = (httpx.UnsupportedProtocol, httpx.LocalProtocolError)


class Attempts:
    """Of one request. `is_safe`: twice is as good as once. The methods give seconds to wait, or None to give up."""

    def __init__(self, *, is_safe: bool, patience_s: float) -> None:
        self._is_safe = is_safe
        self._delays = iter(LOST_ANSWER_DELAYS_S)
        self._wait_s = FIRST_WAIT_S
        self._left_s = patience_s

    def after_loss(self, lost: httpx.TransportError) -> float | None:
        if isinstance(lost, HOPELESS) or not (self._is_safe or isinstance(lost, NOTHING_SENT)):
            return None
        return self._affordable(next(self._delays, None))

    def after_answer(self, status: int, reason: str | None, retry_after: str | None) -> float | None:
        if status in WAITING_STATUSES:
            return self._waiting(retry_after)
        is_lost = status in LOST_STATUSES or reason == OUTCOME_UNKNOWN
        return self._affordable(next(self._delays, None)) if is_lost and self._is_safe else None

    def _waiting(self, retry_after: str | None) -> float | None:
        if retry_after and retry_after.isdigit():
            wait_s = min(float(retry_after), LONGEST_WAIT_S)
        else:
            wait_s, self._wait_s = self._wait_s, min(2 * self._wait_s, LONGEST_WAIT_S)
        return self._affordable(wait_s * (1 + random.random() / 4))  # noqa: S311 - jitter

    def _affordable(self, wait_s: float | None) -> float | None:
        if wait_s is None or wait_s > self._left_s:
            return None
        self._left_s -= wait_s
        return wait_s


def backoff_s(failures: int) -> float:
    """How long to wait after so many failures on end, from half a second to 20 s."""
    return min(FIRST_WAIT_S * 2.0 ** min(failures - 1, 10), LONGEST_WAIT_S)
