"""Passes in the background: each in small transactions, and by one replica at a time."""

import asyncio
import zlib
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass

from libs.chassis.errors import ApiError, Reject, Retry
from libs.chassis.logs import logger
from libs.chassis.metrics import Metrics
from libs.chassis.unit_of_work import Tx, UnitOfWork

BATCH = 5000

log = logger(__name__)

# Returns how many rows it touched; called again while that is a full batch.
PassFunction = Callable[[Tx], Awaitable[int]]


@dataclass(frozen=True)
class Pass:
    name: str
    run: PassFunction
    batch: int = BATCH


def expiring(table: str, keep: str) -> Pass:
    """Deletes rows of `table` whose `created_at` is older than `keep`, an interval."""
    sql = (
        f"delete from {table} where ctid = any(array(select ctid from {table}"
        f" where created_at < now() - interval '{keep}' limit {BATCH}))"
    )
    return Pass(f"expire_{table}", lambda tx: tx.execute(sql))


COMMON = (
    expiring("idempotency_keys", "24 hours"),
    expiring("parked_messages", "30 days"),
)


async def run_pass(unit_of_work: UnitOfWork, wanted: Pass) -> None:
    """Runs a pass to its end, unless another replica is at it."""
    while True:
        async with unit_of_work.begin() as tx:
            if not await tx.fetchval("select pg_try_advisory_xact_lock($1)", zlib.crc32(wanted.name.encode())):
                return
            touched = await wanted.run(tx)
        if touched < wanted.batch:
            return


async def every(
    name: str,
    interval_s: float,
    job: Callable[[], Awaitable[None]],
    metrics: Metrics,
    wake: asyncio.Event | None = None,
) -> None:
    """Runs `job` every `interval_s` seconds, or when woken, until cancelled; a failure is logged and survived."""
    wake = wake or asyncio.Event()
    while True:
        await guarded(name, job, metrics)
        with suppress(TimeoutError):
            async with asyncio.timeout(interval_s):
                await wake.wait()
        wake.clear()


async def guarded(name: str, job: Callable[[], Awaitable[None]], metrics: Metrics) -> None:
    """Runs a job once; a failure is counted and logged, and must not end the others."""
    try:
        await job()
    except (ApiError, Retry, Reject) as away:
        metrics.job_failures.labels(name).inc()
        log.warning("job_failed", job=name, error=str(away))
    except Exception as failed:
        metrics.job_failures.labels(name).inc()
        log.error("job_failed", job=name, exc_info=failed)
