"""`python -m services.standalone`: serves until Ctrl-C or SIGTERM. `… migrate` brings the databases up to date."""

import asyncio
import os
import signal
import sys
from collections.abc import Awaitable, Callable

import uvloop

from libs.chassis import logs
from libs.chassis.app import settle_heap
from services.standalone.app import running
from services.standalone.databases import upgrade_all
from services.standalone.embedded import EmbeddedError
from services.standalone.settings import SERVICES, Settings, UsageError
from services.standalone.welcome import welcome


def main() -> int:
    """The exit status: 0 after an asked stop, 1 when it cannot run, 2 for a wrong setting."""
    if sys.argv[1:] == ["migrate"]:
        upgrade_all({name: os.environ[f"DATABASE_URL_{name.upper()}"] for name in SERVICES})
        return 0
    return run(serve)


def run(work: Callable[[Settings], Awaitable[int]]) -> int:
    """Runs with the environment's settings until done or a signal; a failure is one line on stderr."""
    try:
        settings = Settings.from_environment()
        logs.configure(settings.log_level)
        return uvloop.run(_until_signal(work(settings)))
    except UsageError as error:
        return failed(error, 2)
    except EmbeddedError as error:
        return failed(error)


async def serve(settings: Settings) -> int:
    async with running(settings) as standalone:
        settle_heap()
        print(welcome(standalone), flush=True)
        try:
            await standalone.ended()
        except EmbeddedError as error:
            # Said now: without its servers the stop may fail in other ways.
            return failed(error)
    return 0


def failed(error: Exception, status: int = 1) -> int:
    print(f"error: {error}", file=sys.stderr, flush=True)
    return status


async def _until_signal(work: Awaitable[int]) -> int:
    """Cancels the work at the first signal and waits for it; a stop that was asked for is a success."""
    asked = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, asked.set)
    task, stop = asyncio.ensure_future(work), asyncio.ensure_future(asked.wait())
    try:
        await asyncio.wait({task, stop}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            task.cancel()
            await asyncio.wait({task})
        return 0 if task.cancelled() else task.result()
    finally:
        stop.cancel()
        task.cancel()


if __name__ == "__main__":
    sys.exit(main())
