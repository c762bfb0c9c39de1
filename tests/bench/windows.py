"""Closed loops in windows of some seconds; figures are the median of five, of three where no target hangs on them."""

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

WINDOWS, FEWER = 5, 3
WINDOW_S = 2.0
WARM_UP_S = 0.5

Step = Callable[[], Awaitable[object]]


@dataclass(frozen=True)
class Window:
    per_s: float
    p50_ms: float
    p95_ms: float
    client_share: float  # of a core, used by this process

    @classmethod
    def middle(cls, windows: Sequence["Window"]) -> "Window":
        """The median of each figure by itself."""
        return cls(
            median(window.per_s for window in windows),
            median(window.p50_ms for window in windows),
            median(window.p95_ms for window in windows),
            median(window.client_share for window in windows),
        )


async def window(clients: Sequence[Step], seconds: float) -> Window:
    """Each client takes its next step when the one before is answered, and one at least."""
    took: list[float] = []
    begun, cpu = time.perf_counter(), time.process_time()
    end = begun + seconds

    async def run(step: Step) -> None:
        now = time.perf_counter()
        while True:
            await step()
            done = time.perf_counter()
            took.append(done - now)
            now = done
            if now >= end:
                break

    async with asyncio.TaskGroup() as tasks:
        for step in clients:
            tasks.create_task(run(step))
    elapsed = time.perf_counter() - begun
    share = (time.process_time() - cpu) / elapsed
    return Window(len(took) / elapsed, percentile(took, 0.5) * 1e3, percentile(took, 0.95) * 1e3, share)


async def side_by_side(
    loads: Mapping[str, Sequence[Step]], seconds: float, *, windows: int = WINDOWS
) -> dict[str, Window]:
    """Windows in turns, so that what disturbs the machine disturbs all of them alike."""
    found: dict[str, list[Window]] = {name: [] for name in loads}
    for clients in loads.values():
        await window(clients, min(WARM_UP_S, seconds))
    for _ in range(windows):
        for name, clients in loads.items():
            found[name].append(await window(clients, seconds))
    return {name: Window.middle(each) for name, each in found.items()}


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least that share of the values do not exceed."""
    if not values:
        raise ValueError("nothing was measured")
    ordered = sorted(values)
    return ordered[max(0, math.ceil(len(ordered) * share) - 1)]
