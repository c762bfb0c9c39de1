"""Keeps an endpoint that fails from being asked by everybody."""

import asyncio

PROBE_INTERVAL_S = 30.0
LONGEST_PAUSE_S = 3600.0


class Breaker:
    """Open after a failure: then one probe at a time, when its pause is over."""

    def __init__(self) -> None:
        self._open_until: float | None = None
        self._failed_at = 0.0

    @property
    def is_open(self) -> bool:
        return self._open_until is not None

    @property
    def is_shut(self) -> bool:
        """Open, and its pause is not over."""
        return self._open_until is not None and asyncio.get_running_loop().time() < self._open_until

    @property
    def is_failing(self) -> bool:
        """Open, as far as is known: whoever has asked nothing since the pause, and a probe's time, knows nothing."""
        if self._open_until is None:
            return False
        return asyncio.get_running_loop().time() < self._open_until + PROBE_INTERVAL_S

    @property
    def failed_ago_s(self) -> float:
        """Since the last failure that opened it."""
        return asyncio.get_running_loop().time() - self._failed_at

    def end_pause(self) -> None:
        """The next caller is the probe."""
        if self._open_until is not None:
            self._open_until = asyncio.get_running_loop().time()

    def wait_s(self) -> float:
        """How long to stay away; 0 lets the caller through, who is the one probe while the breaker is open."""
        if self._open_until is None:
            return 0.0
        now = asyncio.get_running_loop().time()
        if now < self._open_until:
            return self._open_until - now
        self._open_until = now + PROBE_INTERVAL_S
        return 0.0

    def failed(self, pause_s: float = PROBE_INTERVAL_S) -> None:
        self._failed_at = asyncio.get_running_loop().time()
        self._open_until = self._failed_at + pause_s

    def passed(self) -> bool:
        """Closes it; True when it was open."""
        was_open, self._open_until = self.is_open, None
        return was_open


def pause_s(retry_after: str | None) -> float:
    """What a `Retry-After` header asks for, in seconds and at most an hour."""
    try:
        asked = float(retry_after or "")
    except ValueError:  # a date, or nothing that says how long
        return PROBE_INTERVAL_S
    return min(asked, LONGEST_PAUSE_S) if asked >= 0 else PROBE_INTERVAL_S
