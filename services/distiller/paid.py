"""A model's answer that costs something: within the budget, noted before it is asked for, kept before it is used."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any
from uuid import UUID

from pydantic import BaseModel

from libs.chassis.errors import OutcomeUnknown, Unavailable
from libs.chassis.unit_of_work import Tx, UnitOfWork
from libs.contracts.ids import uuid7
from services.distiller.domain import Lease, OverBudget, Pipeline, ProviderFailure
from services.distiller.llm import Failed, Model, Reply
from services.distiller.metrics import Metrics
from services.distiller.store import Answers, Lanes, Usage
from services.distiller.store.usage import Spent

# Together about as long as a database takes to fail over, and less than a lease.
PAUSES_S = (0.25, 0.5, 1.0, 2.0, 4.0)

# Writes what was spent, and the answer where there is one; told whether a try before it may have been committed.
Book = Callable[[Tx, Sequence[Spent], str | None, bool], Awaitable[None]]


class PaidCalls:
    """Calls of models that cost something: each is booked, whatever becomes of it and of whoever waits for it."""

    def __init__(self, unit_of_work: UnitOfWork, lanes: Lanes, metrics: Metrics) -> None:
        self._unit_of_work = unit_of_work
        self._lanes = lanes
        self._metrics = metrics
        self._bookings: set[asyncio.Task[None]] = set()

    async def make(self, model: Model, call: Callable[[], Awaitable[Reply]], book: Book) -> Reply:
        """The reply to a call, which is booked by then. Raises by owner."""
        try:
            reply = await call()
        except Failed as failed:
            await self._to_its_end(self._conclude(model, failed.spent, None, book, recovered=failed.recovered))
            raise failed.cause from None
        except asyncio.CancelledError:
            given_up = (Spent(model.name, "given_up"),)
            await self._to_its_end(self._conclude(model, given_up, None, book, recovered=False))
            raise
        await self._to_its_end(self._conclude(model, reply.spent, reply.text, book, recovered=reply.recovered))
        return reply

    async def close(self) -> None:
        """Returns when all that was spent is booked."""
        if self._bookings:
            await asyncio.wait(self._bookings)

    async def _to_its_end(self, booking: Coroutine[Any, Any, None]) -> None:
        """Whoever waits may give up, the deadline pass, or the service stop: what was paid for is booked first."""
        task = asyncio.create_task(booking)
        self._bookings.add(task)
        task.add_done_callback(self._bookings.discard)
        given_up: asyncio.CancelledError | None = None
        while not task.done():
            try:
                await asyncio.wait({task})
            except asyncio.CancelledError as told:
                given_up = told
        task.result()
        if given_up is not None:
            raise given_up

    async def _conclude(
        self, model: Model, spent: Sequence[Spent], answer: str | None, book: Book, *, recovered: bool
    ) -> None:
        """In one transaction; and lanes that wait for an endpoint that answers again go on."""
        for each in spent:
            self._metrics.count(each)
        may_be_done = False
        for pause_s in (*PAUSES_S, None):
            try:
                async with self._unit_of_work.begin() as tx:
                    await book(tx, spent, answer, may_be_done)
                break
            except (Unavailable, OutcomeUnknown) as lost:
                if pause_s is None:
                    raise
                may_be_done |= isinstance(lost, OutcomeUnknown)
                await asyncio.sleep(pause_s)
        if recovered:
            await self._lanes.wake_provider(model.provider)


class PaidAnswers:
    def __init__(self, calls: PaidCalls, answers: Answers, usage: Usage) -> None:
        self._calls = calls
        self._answers = answers
        self._usage = usage

    async def ask(
        self, lease: Lease, model: Model, question: BaseModel, call: Callable[[], Awaitable[Reply]]
    ) -> tuple[UUID, str]:
        """The batch that keeps the answer, and the answer. Raises by owner, `OverBudget` and `Fenced`."""
        await self._check_budget(lease.pipeline)
        batch_id = uuid7()
        await self._answers.asked(lease, lease.pipeline, batch_id, question)

        async def book(tx: Tx, spent: Sequence[Spent], answer: str | None, may_be_done: bool) -> None:
            """Ends the question with its calls, or else it would be paid for again.

            What a try before had committed finds no question to end, and is booked once.
            """
            if answer is None:
                is_news = await self._answers.dropped(tx, batch_id)
            else:
                is_news = await self._answers.answered(tx, batch_id, answer, spent[-1])
            if is_news or not may_be_done:
                await self._usage.spend(tx, lease.pipeline, spent)

        try:
            reply = await self._calls.make(model, call, book)
        except ProviderFailure:
            await self._answers.drop(batch_id)
            raise
        return batch_id, reply.text

    async def _check_budget(self, pipeline: Pipeline) -> None:
        """By the budget as it is now, of whoever pays."""
        budget = await self._usage.spent_budget(pipeline.payer_uid)
        if budget is not None:
            raise OverBudget(f"the daily_token_budget of {budget} is spent")
