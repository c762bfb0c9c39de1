"""One distillation of one lane: read, ask, keep the answer, check it, hand it over.

Everything before the last step may be repeated at no harm; the last is one transaction, fenced by the lease.
"""

from uuid import UUID

from libs.chassis.outbox import OutboxRow, Relay
from libs.chassis.unit_of_work import UnitOfWork
from libs.contracts.events import Change, MemoriesDistilled
from libs.contracts.ids import uuid7
from services.distiller.access import Access
from services.distiller.domain import (
    Fenced,
    LaneFailure,
    Lease,
    OverBudget,
    Pipeline,
    ProviderFailure,
    Question,
    changes_of,
    known_entries,
)
from services.distiller.llm import Failed, Model, Models, Reply, parse
from services.distiller.metrics import Metrics
from services.distiller.reading import Reader
from services.distiller.store import Batches, Lanes
from services.distiller.store.batches import Spent

SESSIONS_PER_BATCH = 20


class Distiller:
    def __init__(
        self,
        models: Models,
        lanes: Lanes,
        batches: Batches,
        unit_of_work: UnitOfWork,
        relay: Relay,
        access: Access,
        reader: Reader,
        metrics: Metrics,
    ) -> None:
        self._models = models
        self._lanes = lanes
        self._batches = batches
        self._unit_of_work = unit_of_work
        self._relay = relay
        self._access = access
        self._reader = reader
        self._metrics = metrics

    async def distil(self, lease: Lease) -> bool:
        """Distils a portion of the lane; False when there was nothing to do.

        Raises `LaneFailure`, `ProviderFailure` or `Retry` by owner, and `Fenced` when the lease was lost.
        """
        pipeline = lease.pipeline
        model = self._models.get(pipeline.model)
        if model is None:
            raise LaneFailure(f"unknown model '{pipeline.model}'; known are {', '.join(self._models.names)}")
        await self._access.check(pipeline)
        kept = await self._batches.kept_answer(lease) if model.paid else None
        if kept is not None:
            kept.question.complete = False  # more may have come since it was asked: look again
            await self._finish(lease, pipeline, kept.batch_id, kept.question, kept.answer)
            return True
        behind = await self._lanes.behind(lease, SESSIONS_PER_BATCH + 1)
        if not behind:
            return False
        question = await self._reader.question(
            pipeline.session_store_uid,
            pipeline.memory_store_uid,
            lease.actor_id,
            behind[:SESSIONS_PER_BATCH],
            lease.max_lines,
        )
        question.complete &= len(behind) <= SESSIONS_PER_BATCH
        await self._ask(lease, pipeline, model, question)
        return True

    async def _ask(self, lease: Lease, pipeline: Pipeline, model: Model, question: Question) -> None:
        """A paid answer is committed before it is looked at, so that nobody pays for it again."""
        batch_id = uuid7()
        if not question.has_evidence:
            await self._emit(lease, pipeline, batch_id, question, [])
        elif not model.paid:
            reply = await self._reply(model, pipeline, question)
            await self._emit(lease, pipeline, batch_id, question, _checked(reply.text, question))
        else:
            await self._check_budget(pipeline)
            await self._batches.asked(lease, pipeline, batch_id, question)
            reply = await self._paid_reply(model, pipeline, batch_id, question)
            await self._finish(lease, pipeline, batch_id, question, reply.text)

    async def _finish(self, lease: Lease, pipeline: Pipeline, batch_id: UUID, question: Question, answer: str) -> None:
        try:
            changes = _checked(answer, question)
        except LaneFailure:
            await self._batches.drop(batch_id)
            raise
        await self._emit(lease, pipeline, batch_id, question, changes)

    async def _check_budget(self, pipeline: Pipeline) -> None:
        budget = pipeline.daily_token_budget
        if budget is not None and await self._batches.tokens_today(pipeline.pipeline_uid) >= budget:
            raise OverBudget(f"the daily_token_budget of {budget} is spent")

    async def _paid_reply(self, model: Model, pipeline: Pipeline, batch_id: UUID, question: Question) -> Reply:
        try:
            reply = await self._reply(model, pipeline, question)
        except ProviderFailure:
            await self._batches.drop(batch_id)
            raise
        except Failed as failed:
            if isinstance(failed.cause, ProviderFailure):
                self._metrics.breaker_open.labels(model.name).set(1)
            self._count(failed.spent)
            async with self._unit_of_work.begin() as tx:
                await self._batches.spend(tx, pipeline, failed.spent)
            await self._batches.drop(batch_id)
            if failed.recovered:
                await self._recovered(model)
            raise failed.cause from None
        async with self._unit_of_work.begin() as tx:
            await self._batches.answered(tx, batch_id, reply.text, reply.spent)
            await self._batches.spend(tx, pipeline, reply.spent)
        self._count(reply.spent)
        if reply.recovered:
            await self._recovered(model)
        return reply

    async def _recovered(self, model: Model) -> None:
        """The endpoint answers again: every lane that waits for it goes on."""
        self._metrics.breaker_open.labels(model.name).set(0)
        await self._lanes.wake_provider(model.provider)

    async def _reply(self, model: Model, pipeline: Pipeline, question: Question) -> Reply:
        return await model.ask(question.asked, known_entries(question.related), pipeline.instructions)

    def _count(self, spent: Spent) -> None:
        self._metrics.model_calls.labels(spent.model, spent.outcome).inc()
        self._metrics.model_tokens.labels(spent.model, "prompt").inc(spent.prompt_tokens)
        self._metrics.model_tokens.labels(spent.model, "completion").inc(spent.completion_tokens)

    async def _emit(
        self,
        lease: Lease,
        pipeline: Pipeline,
        batch_id: UUID,
        question: Question,
        changes: list[Change],
    ) -> None:
        event = MemoriesDistilled(
            event_id=batch_id,
            workspace_id=pipeline.workspace_id,
            batch_id=batch_id,
            store_uid=pipeline.memory_store_uid,
            actor_id=lease.actor_id,
            pipeline_uid=pipeline.pipeline_uid,
            run_id=lease.run_id,
            session_store_uid=pipeline.session_store_uid,
            session_store_id=pipeline.session_store_id,
            source_epoch=question.source_epoch,
            memory_epoch=question.memory_epoch,
            oldest_appended_at=question.oldest_appended_at,
            ranges=question.ranges,
            changes=changes,
        )
        row = OutboxRow.of(event)
        more = not question.complete
        if not await self._batches.emit(lease, event, row, more=more, again_left=question.again_left):
            raise Fenced
        self._relay.offer([row])


def _checked(answer: str, question: Question) -> list[Change]:
    return changes_of(parse(answer), question.lines, question.related)
