"""A model's answer that costs something: within the budget, noted before it is asked for, kept before it is used."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
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


async def outlasting(write: Callable[[bool], Awaitable[None]]) -> None:
    """Tries again to write what was paid for while the database is away, some seconds long.

    `write` is told whether a try before it may have been committed. Raises the last try's `Unavailable` or
    `OutcomeUnknown`.
    """
    may_be_done = False
    for pause_s in PAUSES_S:
        try:
            await write(may_be_done)
            return
        except Unavailable:
            pass
        except OutcomeUnknown:
            may_be_done = True
        await asyncio.sleep(pause_s)
    await write(may_be_done)


class PaidAnswers:
    def __init__(
        self, answers: Answers, usage: Usage, lanes: Lanes, unit_of_work: UnitOfWork, metrics: Metrics
    ) -> None:
        self._answers = answers
        self._usage = usage
        self._lanes = lanes
        self._unit_of_work = unit_of_work
        self._metrics = metrics

    async def ask(
        self, lease: Lease, model: Model, question: BaseModel, call: Callable[[], Awaitable[Reply]]
    ) -> tuple[UUID, str]:
        """The batch that keeps the answer, and the answer. Raises by owner, `OverBudget` and `Fenced`."""
        await self._check_budget(lease.pipeline)
        batch_id = uuid7()
        await self._answers.asked(lease, lease.pipeline, batch_id, question)
        try:
            reply = await call()
        except ProviderFailure:
            await self._answers.drop(batch_id)
            raise
        except Failed as failed:
            if isinstance(failed.cause, ProviderFailure):
                self._metrics.breaker_open.labels(model.name).set(1)
            self._metrics.count(failed.spent)
            await self._conclude(lease, failed.spent, partial(self._answers.dropped, batch_id=batch_id))
            if failed.recovered:
                await self._recovered(model)
            raise failed.cause from None
        keep = partial(self._answers.answered, batch_id=batch_id, answer=reply.text, spent=reply.spent)
        await self._conclude(lease, reply.spent, keep)
        self._metrics.count(reply.spent)
        if reply.recovered:
            await self._recovered(model)
        return batch_id, reply.text

    async def _conclude(self, lease: Lease, spent: Spent, end: Callable[[Tx], Awaitable[bool]]) -> None:
        """Ends a question and books its call in one transaction, or else it would be paid for again.

        What a try before had committed finds no question to `end`, and is booked once.
        """

        async def write(may_be_done: bool) -> None:
            async with self._unit_of_work.begin() as tx:
                if await end(tx) or not may_be_done:
                    await self._usage.spend(tx, lease.pipeline, spent)

        await outlasting(write)

    async def _check_budget(self, pipeline: Pipeline) -> None:
        """By the budget as it is now, of whoever pays."""
        budget, spent = await self._usage.budget(pipeline.payer_uid)
        if budget is not None and spent >= budget:
            raise OverBudget(f"the daily_token_budget of {budget} is spent")

    async def _recovered(self, model: Model) -> None:
        """The endpoint answers again: every lane that waits for it goes on."""
        self._metrics.breaker_open.labels(model.name).set(0)
        await self._lanes.wake_provider(model.provider)
