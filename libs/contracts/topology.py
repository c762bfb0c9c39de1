"""The one table of streams and durable consumers, and how hard a consumer tries.

A stream binds its events by exact subject, never `session.>`: a stream that covered a request's subject would answer
that request itself. `DISTILLER` carries statements, so a message there is gone once every consumer has it.
"""

from dataclasses import dataclass
from typing import Literal

from libs.contracts import events
from libs.contracts.events import Event

DAY_S = 86_400.0


@dataclass(frozen=True)
class Stream:
    name: str
    events: tuple[type[Event], ...]
    retention: Literal["limits", "interest"] = "limits"
    max_age_s: float = 7 * DAY_S
    duplicate_window_s: float = 120.0

    @property
    def subjects(self) -> tuple[str, ...]:
        return tuple(event.subject for event in self.events)


@dataclass(frozen=True)
class Consumer:
    """A durable of one service for one event. `delays_s`: the pause before each further attempt, then it is parked."""

    service: str
    event: type[Event]
    ack_wait_s: float = 30.0
    delays_s: tuple[float, ...] = (1, 2, 5, 10, 30, 60)
    batch_size: int = 32
    max_ack_pending: int = 1000

    @property
    def durable(self) -> str:
        """`<service>-<noun>-<participle>`."""
        _, noun, participle, _ = self.event.subject.split(".")
        return f"{self.service}-{noun}-{participle}"

    @property
    def stream(self) -> str:
        return stream_of(self.event.subject)


def stream_of(subject: str) -> str:
    """The stream that holds a subject: the name of its owner in capitals."""
    return subject.split(".", 1)[0].upper()


STREAMS = (
    Stream(
        "SESSION",
        (events.ItemsAppended, events.SessionDeleted, events.SessionStoreDeleted, events.SessionActorErased),
    ),
    Stream(
        "DISTILLER",
        (events.MemoriesDistilled, events.DistillerActorErased, events.ReplayEnded),
        retention="interest",
    ),
    Stream("MEMORY", (events.BatchesApplied, events.MemoryStoreDeleted, events.MemoryActorErased)),
)

CONSUMERS = (
    Consumer("distiller", events.ItemsAppended, batch_size=200, max_ack_pending=2000),
    Consumer("distiller", events.SessionDeleted),
    Consumer("distiller", events.SessionStoreDeleted),
    Consumer("distiller", events.SessionActorErased),
    Consumer("distiller", events.BatchesApplied),
    Consumer("distiller", events.MemoryStoreDeleted),
    Consumer("distiller", events.MemoryActorErased),
    Consumer("memory", events.MemoriesDistilled),
    Consumer("memory", events.SessionActorErased),
    Consumer("memory", events.DistillerActorErased),
    Consumer("memory", events.ReplayEnded),
    Consumer("session", events.MemoryActorErased),
    Consumer("session", events.DistillerActorErased),
)


def consumers_of(service: str) -> tuple[Consumer, ...]:
    return tuple(consumer for consumer in CONSUMERS if consumer.service == service)
