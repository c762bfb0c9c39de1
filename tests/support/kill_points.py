"""SIGKILL at a named step of a distillation, in a real process, by wrapping the product's own functions there.

A point is armed by a file of its name; of all the processes that reach it, the one that takes the file dies.
"""

import os
import signal
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

from nats.aio.msg import Msg

from libs.chassis.bus import Bus
from libs.contracts.events import MemoriesDistilled
from services.distiller import replays
from services.distiller.distil import Distiller
from services.distiller.reading import Reader
from services.distiller.replays import Replayer
from services.distiller.store import Answers, Batches, Leases
from services.memory.handlers import Handlers
from services.memory.replays import Replays

KILL_POINTS = (
    "after_lease",
    "after_read",
    "asked",
    "answered",
    "committed",
    "published",
    "applied",
    "acknowledged",
)
# Of a replay: before memory is asked to swap, after it has swapped, after a withdrawn swap was asked about.
SWAP_POINTS = ("swap_asked", "swap_made", "withdrawn")
ASKED_AGAIN_S = 4.0  # instead of half a minute, memory about a swap that a kill left unanswered


class KillPoints:
    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def arm(self, point: str) -> None:
        (self._directory / point).touch()

    def is_armed(self, point: str) -> bool:
        return (self._directory / point).exists()

    def reached(self, point: str) -> None:
        try:
            (self._directory / point).unlink()
        except FileNotFoundError:
            return
        os.kill(os.getpid(), signal.SIGKILL)

    def install(self) -> None:
        """Wraps the functions in this process, before its service is built."""
        self._after(Leases, "take", "after_lease", lambda found, *_: bool(found))
        self._after(Reader, "question", "after_read")
        self._after(Answers, "asked", "asked")
        self._before(Distiller, "_finish", "answered")
        self._after(Batches, "emit", "committed")
        self._after(Bus, "publish", "published", lambda _, __, row: row.subject == MemoriesDistilled.subject)
        self._after(Handlers, "on_memories_distilled", "applied")
        self._before(Replayer, "_swap", "swap_asked")
        self._after(Replays, "swap", "swap_made")
        self._after(Replays, "withdraw", "withdrawn")
        replays.SWAP_TIMEOUT_S = ASKED_AGAIN_S
        ack = Msg.ack

        async def acknowledge(message: Msg) -> None:
            await ack(message)
            if message.subject == MemoriesDistilled.subject:
                await message._client.flush()
                self.reached("acknowledged")

        Msg.ack = acknowledge  # type: ignore[assignment,method-assign]

    def _before(self, owner: type, name: str, point: str) -> None:
        wrapped = getattr(owner, name)

        @wraps(wrapped)
        async def run(*args: Any, **kwargs: Any) -> Any:
            self.reached(point)
            return await wrapped(*args, **kwargs)

        setattr(owner, name, run)

    def _after(self, owner: type, name: str, point: str, is_meant: Callable[..., bool] = lambda *_: True) -> None:
        wrapped = getattr(owner, name)

        @wraps(wrapped)
        async def run(*args: Any, **kwargs: Any) -> Any:
            result = await wrapped(*args, **kwargs)
            if is_meant(result, *args):
                self.reached(point)
            return result

        setattr(owner, name, run)
