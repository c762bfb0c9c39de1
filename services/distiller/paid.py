"""A model's answer that costs something: within the budget, noted before it is asked for, kept before it is used."""

from collections.abc import Awaitable, Callable
from uuid import UUID

from pydantic import BaseModel

from libs.chassis.unit_of_work import UnitOfWork
from libs.contracts.ids import uuid7
from services.distiller.domain import Lease, OverBudget, Pipeline, ProviderFailure
from services.distiller.llm import Failed, Model, Reply
from services.distiller.metrics import Metrics
from services.distiller.store import Answers, Lanes, Usage


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
            async with self._unit_of_work.begin() as tx:
                await self._usage.spend(tx, lease.pipeline, failed.spent)
            await self._answers.drop(batch_id)
            if failed.recovered:
                await self._recovered(model)
            raise failed.cause from None
        async with self._unit_of_work.begin() as tx:
            await self._answers.answered(tx, batch_id, reply.text, reply.spent)
            await self._usage.spend(tx, lease.pipeline, reply.spent)
        self._metrics.count(reply.spent)
        if reply.recovered:
            await self._recovered(model)
        return batch_id, reply.text

    async def _check_budget(self, pipeline: Pipeline) -> None:
        budget = pipeline.daily_token_budget
        if budget is not None and await self._usage.tokens_today(pipeline.payer_uid) >= budget:
            raise OverBudget(f"the daily_token_budget of {budget} is spent")

    async def _recovered(self, model: Model) -> None:
        """The endpoint answers again: every lane that waits for it goes on."""
        self._metrics.breaker_open.labels(model.name).set(0)
        await self._lanes.wake_provider(model.provider)
