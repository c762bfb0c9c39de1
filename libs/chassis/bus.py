"""The broker: one connection of a service, its topology, its handlers, its questions.

FastStream's pitfalls are met here: a client that gives up would freeze the process, hence reconnecting for ever; a
stream declared by a subscriber would overwrite the table's, hence `declare=False` and `apply_topology`; a consumer that
vanished is never made again by its subscriber, hence `_watch`.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import Any, TypeVar
from urllib.parse import urlparse
from uuid import UUID

import msgspec
from faststream import AckPolicy
from faststream.nats import JStream, NatsBroker, PullSub
from faststream.specification import AsyncAPI
from nats.aio.client import Client
from nats.errors import Error as NatsError
from nats.errors import NoRespondersError
from nats.js import JetStreamContext
from nats.js.api import AckPolicy as ServerAckPolicy
from nats.js.api import ConsumerConfig, RetentionPolicy, StorageType, StreamConfig
from nats.js.errors import BadRequestError, NotFoundError
from pydantic import BaseModel, ValidationError

from libs.chassis.delivery import Delivery, refusing
from libs.chassis.errors import Reject, Retry, Undone
from libs.chassis.logs import logger
from libs.chassis.metrics import Metrics
from libs.chassis.outbox import OutboxRow
from libs.chassis.parked import ParkedMessages
from libs.chassis.together import Together
from libs.contracts.events import Event
from libs.contracts.limits import REPLY_BYTES
from libs.contracts.requests import Message, Refused
from libs.contracts.topology import CONSUMERS, STREAMS, Consumer, Stream, consumers_of, stream_of

WATCH_INTERVAL_S = 5.0
PUBLISH_TIMEOUT_S = 5.0
REQUEST_WORKERS = 8
QUESTIONS_AT_ONCE = 16
_ANSWERS = msgspec.json.Decoder(list[msgspec.Raw])

log = logger(__name__)
EventT = TypeVar("EventT", bound=Event)
RequestT = TypeVar("RequestT", bound=Message)
AnswerT = TypeVar("AnswerT", bound=BaseModel)


@dataclass
class BusHealth:
    """`missing_since`: loop time since when NATS answers but a consumer of the topology is not there.

    `refused`: what NATS does not allow this service; without it the service is deaf or mute, and nothing else tells.
    """

    started: bool = False
    missing_since: float | None = None
    refused: str | None = None


@dataclass(frozen=True, slots=True)
class _Question:
    subject: str
    store_uid: UUID | None
    body: bytes
    timeout_s: float


class Bus:
    def __init__(self, service: str, url: str, parked: ParkedMessages, metrics: Metrics, replicas: int = 1) -> None:
        self._service = service
        self._replicas = replicas
        self._metrics = metrics
        self._client: Client | None = None
        self._stream: JetStreamContext | None = None
        self._questions = Together(
            self._ask,
            at_once=QUESTIONS_AT_ONCE,
            # One store's long answers delay no other's.
            alike=lambda each: (each.subject, each.store_uid, each.timeout_s),
            under_way=REQUEST_WORKERS,
        )
        self.health = BusHealth()
        self.broker = NatsBroker(
            url,
            name=f"memstream-{service}",
            max_reconnect_attempts=-1,  # once the client gives up, the pull loop spins without yielding (0.7.8)
            reconnect_time_wait=1,
            ack_policy=AckPolicy.NACK_ON_ERROR,  # the default terminates a message on any exception
            middlewares=[Delivery(consumers_of(service), parked, metrics)],
            logger=None,
            graceful_timeout=5,
            inbox_prefix=f"_INBOX_{service}",
            error_cb=self._on_error,
            specification_url=f"nats://{urlparse(url).hostname or 'nats'}",
        )

        for event in (event for stream in STREAMS for event in stream.events if stream.name == service.upper()):
            self.broker.publisher(event.subject, schema=event)  # for the AsyncAPI document: the relay publishes

    @property
    def connected(self) -> bool:
        return self.health.started and self._client is not None and self._client.is_connected

    @cached_property
    def asyncapi(self) -> str:
        """The AsyncAPI document, as JSON: events published and heard, questions answered."""
        document = AsyncAPI(self.broker, title=f"Memstream {self._service}", version="1", schema_version="3.0.0")
        return document.to_specification().to_json()

    def consume(self, event: type[EventT], handler: Callable[[EventT], Awaitable[None]]) -> None:
        """Registers the service's durable consumer for an event."""
        consumer = next(c for c in consumers_of(self._service) if c.event is event)
        self.broker.subscriber(
            event.subject,
            durable=consumer.durable,
            config=_consumer_config(consumer),
            stream=JStream(consumer.stream, declare=False),
            pull_sub=PullSub(consumer.batch_size),
            inbox_prefix=f"_INBOX_{self._service}.".encode(),  # the broker's own is not handed on to a pull (0.7.8)
        )(handler)

    def listen(self, event: type[EventT], handler: Callable[[EventT], Awaitable[None]]) -> None:
        """Hears an event on every replica, at most once and never again: for waking, not for work."""
        self.broker.subscriber(event.subject, no_reply=True)(handler)

    def answer(self, request: type[RequestT], handler: Callable[[RequestT], Awaitable[Message]]) -> None:
        """Answers a question; one replica of the service does. Of questions that came together, each has its answer."""
        subject = request.subject
        limit = asyncio.Semaphore(REQUEST_WORKERS)  # however many came together

        async def answer_one(asked: RequestT) -> Message:
            async with limit:
                return await handler(asked)

        async def answered(asked: Any) -> bytes:
            if not isinstance(asked, list):
                return (await answer_one(asked)).model_dump_json().encode()
            answers = await asyncio.gather(*(refusing(subject, answer_one(each)) for each in asked))
            return _joined(_fitting([answer.model_dump_json().encode() for answer in answers]))

        # For the check of what arrives, and the AsyncAPI document.
        answered.__annotations__["asked"] = request | list[request]  # type: ignore[valid-type]
        answered.__name__ = request.__name__
        self.broker.subscriber(subject, queue=self._service, max_workers=REQUEST_WORKERS)(answered)

    async def ask(self, request: Message, answer: type[AnswerT], *, timeout_s: float = 2.0) -> AnswerT:
        """Asks another service. Raises `Retry` when nobody answers in time or cannot now, `Reject` if never.

        The `Retry` is `Undone` where nothing was written for certain.
        What is asked at once travels together; the wait for those before it counts.
        """
        question = _Question(
            request.subject, getattr(request, "store_uid", None), request.model_dump_json().encode(), timeout_s
        )
        try:
            async with asyncio.timeout(timeout_s):
                reply = await self._questions.ask(question)
        except TimeoutError as error:
            raise Retry(f"{request.subject}: TimeoutError") from error
        try:
            # First: an answer whose fields all have defaults would take a refusal for an empty answer.
            refused = Refused.model_validate_json(reply)
        except ValidationError:
            return answer.model_validate_json(reply)
        if not refused.retry:
            raise Reject(f"{request.subject}: {refused.error}")
        raise (Undone if refused.undone else Retry)(f"{request.subject}: {refused.error}")

    async def _ask(self, questions: Sequence["_Question"]) -> Sequence[bytes]:
        subject = questions[0].subject
        if self._client is None or not self._client.is_connected:
            raise Undone(f"{subject}: NATS is away")
        bodies = _fitting([question.body for question in questions])
        is_alone = len(bodies) == 1
        body = bodies[0] if is_alone else _joined(bodies)
        try:
            reply = await self._client.request(subject, body, timeout=questions[0].timeout_s)
        except NoRespondersError as error:
            raise Undone(f"{subject}: {type(error).__name__}") from error
        except (NatsError, TimeoutError) as error:
            raise Retry(f"{subject}: {type(error).__name__}") from error
        return [reply.data] if is_alone else [bytes(each) for each in _ANSWERS.decode(reply.data)]

    async def publish(self, row: OutboxRow) -> None:
        if self._stream is None:
            raise ConnectionError("NATS is away")
        await self._stream.publish(
            row.subject,
            row.payload.encode(),
            stream=stream_of(row.subject),
            timeout=PUBLISH_TIMEOUT_S,
            headers={"Nats-Msg-Id": str(row.message_id)},
        )

    async def run(self) -> None:
        """Connects however long it takes, applies the topology, starts the handlers and watches until cancelled."""
        log.info("bus_connecting", service=self._service)
        try:
            while self._client is None:
                try:
                    self._client = await self.broker.connect()
                except (OSError, NatsError, TimeoutError) as error:
                    log.warning("bus_unreachable", service=self._service, error=type(error).__name__)
                    await asyncio.sleep(1)
            self._stream = self._client.jetstream(timeout=PUBLISH_TIMEOUT_S)
            while not await self._apply() or not await self._start():
                _end_if_asked()
                await asyncio.sleep(1)
            self.health.started = True
            log.info("bus_started", service=self._service)
            await self._watch()
        finally:
            self.health.started = False
            with suppress(NatsError):  # while the client reconnects it refuses even to be drained
                await self.broker.stop()
            self._client = self._stream = None

    async def _on_error(self, error: Exception) -> None:
        told = str(error).lower()
        if "permissions violation" in told:
            log.error("bus_refused", service=self._service, error=told)
            if "subscription to" in told or "$js.api" in told:
                self.health.refused = told

    async def _apply(self) -> bool:
        assert self._stream is not None  # noqa: S101 - run() made it
        try:
            await apply_topology(self._stream, self._service, self._replicas)
        except (NatsError, TimeoutError) as error:
            log.error("topology_refused", service=self._service, error=str(error))
            return False
        return True

    async def _start(self) -> bool:
        try:
            await self.broker.start()
        except (NatsError, TimeoutError, OSError) as error:
            log.error("bus_not_started", service=self._service, error=str(error))
            return False
        return True

    async def _watch(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            self._metrics.bus_connected.labels(self._service).set(int(self.connected))
            if self.connected:
                try:
                    missing = await self._missing()
                except (NatsError, TimeoutError):
                    missing = []
                if missing:
                    self.health.missing_since = self.health.missing_since or loop.time()
                    log.error("consumers_missing", service=self._service, consumers=missing)
                    if await self._apply():
                        self._metrics.topology_repairs.labels(self._service).inc()
                else:
                    self.health.missing_since = None
            _end_if_asked()
            await asyncio.sleep(WATCH_INTERVAL_S)

    async def _missing(self) -> list[str]:
        assert self._stream is not None  # noqa: S101 - run() made it
        missing = []
        for consumer in consumers_of(self._service):
            try:
                await self._stream.consumer_info(consumer.stream, consumer.durable)
            except NotFoundError:
                missing.append(consumer.durable)
        return missing


def _fitting(parts: Sequence[bytes]) -> Sequence[bytes]:
    """As many as fit in a message, and at least one; the others travel alone."""
    sizes = accumulate(len(part) + 1 for part in parts)
    return parts[: max(1, sum(size < REPLY_BYTES for size in sizes))]


def _joined(parts: Sequence[bytes]) -> bytes:
    return b"[" + b",".join(parts) + b"]"


def _end_if_asked() -> None:
    """nats-py waits with `asyncio.wait_for`, which in Python 3.11 swallows a cancellation that comes with an answer."""
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError


async def apply_topology(stream: JetStreamContext, service: str, replicas: int = 1) -> None:
    """Makes or updates a service's stream, its consumers, and every consumer of its stream: what nobody listens for is
    dropped where the retention is by interest. Others' streams are made when missing, never changed.

    Subjects are only added, so that during an upgrade an older replica takes none away. Raises when the server refuses.
    """
    for wanted in STREAMS:
        config = _stream_config(wanted, replicas)
        if wanted.name != service.upper():
            with suppress(BadRequestError):  # it exists, and is not quite so
                await stream.add_stream(config)
            continue
        try:
            held = (await stream.stream_info(wanted.name)).config.subjects or []
        except NotFoundError:
            await stream.add_stream(config)
        else:
            config.subjects = [*(config.subjects or []), *(each for each in held if each not in wanted.subjects)]
            await stream.update_stream(config)
    for consumer in CONSUMERS:
        if service in (consumer.service, consumer.stream.lower()):
            await stream.add_consumer(consumer.stream, _consumer_config(consumer))


def _stream_config(stream: Stream, replicas: int) -> StreamConfig:
    return StreamConfig(
        name=stream.name,
        subjects=list(stream.subjects),
        retention=RetentionPolicy.INTEREST if stream.retention == "interest" else RetentionPolicy.LIMITS,
        storage=StorageType.FILE,
        max_age=stream.max_age_s,
        duplicate_window=stream.duplicate_window_s,
        num_replicas=replicas,
    )


def _consumer_config(consumer: Consumer) -> ConsumerConfig:
    """`max_deliver` stays unlimited: delivery parks, and what waits for Postgres must not run out."""
    return ConsumerConfig(
        name=consumer.durable,
        durable_name=consumer.durable,
        ack_policy=ServerAckPolicy.EXPLICIT,
        ack_wait=consumer.ack_wait_s,
        max_deliver=-1,
        max_ack_pending=consumer.max_ack_pending,
        filter_subject=consumer.event.subject,
    )
