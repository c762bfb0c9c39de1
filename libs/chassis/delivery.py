"""What happens to a message: exceptions decide, handlers do not. The one place that acknowledges, delays and parks.

    returned                            acknowledged
    Reject, invalid body or value       parked at once with the reason
    a dependency of ours away,          back after a delay, for as long as it takes
    or others in the way
    Retry, anything else                back after the consumer's next delay; parked when its attempts are used up

Attempts are counted here and not by the broker, which also counts what an outage or a killed replica cost: a message
may be tried more often than its consumer says, never less.

A long handler keeps its message by saying so at a third of the consumer's `ack_wait`. A request (no JetStream metadata)
is answered with `Refused` when its handler fails.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import datetime
from json import JSONDecodeError
from typing import Any

import asyncpg
from fast_depends.exceptions import ValidationError as DependencyValidationError
from faststream import BaseMiddleware, ContextRepo
from faststream.exceptions import NackMessage
from faststream.message import StreamMessage
from nats.aio.msg import Msg
from nats.errors import NotJSMessageError
from pydantic import ValidationError

from libs.chassis.errors import OutcomeUnknown, Reject, Retry, Unavailable
from libs.chassis.logs import logger
from libs.chassis.metrics import Metrics
from libs.chassis.parked import ParkedMessages
from libs.contracts.requests import Refused
from libs.contracts.topology import Consumer

# A value that the database refuses, it will refuse again.
INVALID = (ValidationError, DependencyValidationError, UnicodeDecodeError, JSONDecodeError, asyncpg.DataError)
AWAY_DELAY_S = 5.0
REMEMBERED = 10_000

# A message of a consumer: the broker's sequence begins anew when it loses its data, hence the time.
Key = tuple[str, int, datetime]

log = logger(__name__)


class Delivery:
    """Makes a `_Delivery` per message; built once per bus."""

    def __init__(self, consumers: tuple[Consumer, ...], parked: ParkedMessages, metrics: Metrics) -> None:
        # By both: a durable name is unique within its stream only.
        self.consumers: Mapping[tuple[str, str], Consumer] = {(each.stream, each.durable): each for each in consumers}
        self.parked = parked
        self.metrics = metrics
        self._failures: dict[Key, int] = {}

    def failed(self, key: Key) -> int:
        """Counts a failure that was the message's own; which one it was."""
        if len(self._failures) >= REMEMBERED:
            self._failures.clear()
        self._failures[key] = self._failures.get(key, 0) + 1
        return self._failures[key]

    def forget(self, key: Key) -> None:
        self._failures.pop(key, None)

    def __call__(self, msg: Msg | None, /, *, context: ContextRepo) -> "_Delivery":
        return _Delivery(msg, context=context, owner=self)

    def count(self, consumer: Consumer, outcome: str) -> None:
        self.metrics.deliveries.labels(consumer.durable, outcome).inc()


class _Delivery(BaseMiddleware[Any, Any]):
    def __init__(self, msg: Msg | None, /, *, context: ContextRepo, owner: Delivery) -> None:
        super().__init__(msg, context=context)
        self._owner = owner

    async def consume_scope(
        self, call_next: Callable[[StreamMessage[Any]], Awaitable[Any]], msg: StreamMessage[Any]
    ) -> Any:
        try:
            metadata = msg.raw_message.metadata
        except NotJSMessageError:
            return await refusing(msg.raw_message.subject, call_next(msg))
        consumer = self._owner.consumers[metadata.stream, metadata.consumer]
        key = (metadata.consumer, metadata.sequence.stream, metadata.timestamp)
        async with _kept(msg, consumer):
            outcome = await self._handle(call_next, msg, consumer, key)
        self._owner.forget(key)
        self._owner.count(consumer, outcome)
        return None

    async def _handle(
        self,
        call_next: Callable[[StreamMessage[Any]], Awaitable[Any]],
        msg: StreamMessage[Any],
        consumer: Consumer,
        key: Key,
    ) -> str:
        try:
            await call_next(msg)
        except Reject as rejected:
            return await self._park(msg, consumer, self._owner.failed(key), str(rejected))
        except INVALID as invalid:
            reason = f"invalid body: {type(invalid).__name__}"
            return await self._park(msg, consumer, self._owner.failed(key), reason)
        except (Unavailable, OutcomeUnknown):
            self._owner.count(consumer, "away")
            raise NackMessage(delay=AWAY_DELAY_S) from None
        except Exception as failed:  # an unknown failure is a late message, never a lost one
            attempt = self._owner.failed(key)
            reason = str(failed) if isinstance(failed, Retry) else type(failed).__name__
            if not isinstance(failed, Retry):
                log.error("handler_failed", consumer=consumer.durable, attempt=attempt, exc_info=failed)
            if attempt > len(consumer.delays_s):
                return await self._park(msg, consumer, attempt, reason)
            self._owner.count(consumer, "retried")
            raise NackMessage(delay=consumer.delays_s[attempt - 1]) from None
        return "done"

    async def _park(self, msg: StreamMessage[Any], consumer: Consumer, attempt: int, reason: str) -> str:
        try:
            await self._owner.parked.park(consumer.event.subject, msg.raw_message.data, reason, attempt)
        except Exception as failed:  # a message that can be neither handled nor parked must not come back at once
            log.error("parking_failed", consumer=consumer.durable, error=type(failed).__name__)
            raise NackMessage(delay=AWAY_DELAY_S) from None
        log.warning("message_parked", consumer=consumer.durable, reason=reason, attempts=attempt)
        return "parked"


async def refusing(subject: str, answer: Awaitable[Any]) -> Any:
    """The answer to a question, or why there is none: the asker must hear of it, whatever it was."""
    try:
        return await answer
    except INVALID as invalid:
        log.warning("request_invalid", subject=subject, error=type(invalid).__name__)
        return Refused(error="invalid request", retry=False)
    except Exception as failed:
        log.warning("request_failed", subject=subject, error=type(failed).__name__)
        return Refused(error=type(failed).__name__, undone=isinstance(failed, Unavailable))


@asynccontextmanager
async def _kept(msg: StreamMessage[Any], consumer: Consumer) -> AsyncIterator[None]:
    """Says "in progress" while the block runs; costs nothing for a handler that is quick."""
    loop = asyncio.get_running_loop()
    pause = consumer.ack_wait_s / 3
    reminders: set[asyncio.Task[None]] = set()

    def remind() -> None:
        reminders.add(loop.create_task(msg.raw_message.in_progress()))
        timers.append(loop.call_later(pause, remind))

    timers = [loop.call_later(pause, remind)]
    try:
        yield
    finally:
        timers[-1].cancel()
        if reminders:
            await asyncio.wait(reminders)
