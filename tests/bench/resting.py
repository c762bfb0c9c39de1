"""What each service's process holds when nothing happens any more."""

import asyncio

import psutil

from tests.bench.report import Row, at_most
from tests.bench.stand import Stand

REST_S = 5.0
TARGETS_MB = {"session": 120.0, "distiller": 150.0, "memory": 120.0}


async def resting_rows(stand: Stand, after: str) -> list[Row]:
    """A row for each service of the stand; `after` says what it did before."""
    await asyncio.sleep(REST_S)
    rows = []
    for service, running in stand.services.items():
        memory = psutil.Process(running.process.pid).memory_full_info()
        note = f"resident set after {after}; proportional set {memory.pss / 1e6:.0f} MB"
        rows.append(
            Row(
                f"memory at rest, {service}, after {after}",
                "MB",
                memory.rss / 1e6,
                None,
                at_most(TARGETS_MB[service]),
                note,
            )
        )
    return rows
