"""One distillation of one lane: read, ask, keep the answer, check it, hand it over.

Everything before the last step may be repeated at no harm; the last is one transaction, fenced by the lease.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TypeVar
from uuid import UUID

from pydantic import BaseModel

from libs.chassis.unit_of_work import UnitOfWork
from libs.contracts.events import Change, MemoriesDistilled
from libs.contracts.ids import uuid7
from libs.contracts.requests import (
    AuthorizeMemoryStore,
    AuthorizeSessionStore,
    AuthorizeStore,
    ReadTranscript,
    Related,
    RelatedEntries,
    StoreAuthorization,
    Transcript,
)
from services.distiller.answer import Answer
from services.distiller.domain import (
    Fenced,
    LaneFailure,
    Lease,
    Numbered,
    OverBudget,
    Pipeline,
    Portion,
    changes_of,
    known_entries,
    request_sha256,
)
from services.distiller.extractive import extract
from services.distiller.llm import Failed, Model, Models, Reply, parse
from services.distiller.metrics import Metrics
from services.distiller.settings import DistillerSettings
from services.distiller.store import Batches, Lanes, Pipelines
from services.distiller.store.batches import Spent

ACCESS_CACHE_S = 60.0
SESSIONS_PER_BATCH = 20
CONTEXT_REACH = 20

AnswerT = TypeVar("AnswerT", bound=BaseModel)
Ask = Callable[..., Awaitable[AnswerT]]


class Access:
    """Whether a pipeline's creator may still read the one store and write the other; believed for a minute."""

    def __init__(self, ask: Ask[StoreAuthorization]) -> None:
        self._ask = ask
        self._allowed: dict[UUID, float] = {}

    async def check(self, pipeline: Pipeline) -> None:
        """Raises `LaneFailure` when the creator may not, or a store is gone; `Retry` when nobody can say."""
        now = asyncio.get_running_loop().time()
        if self._allowed.get(pipeline.pipeline_uid, 0.0) > now:
            return
        asked: tuple[tuple[str, AuthorizeStore], ...] = (
            (
                f"session-stores/{pipeline.session_store_id}",
                AuthorizeSessionStore(
                    workspace_id=pipeline.workspace_id,
                    principal_type=pipeline.creator_type,
                    principal=pipeline.creator,
                    permission="READ",
                    store_uid=pipeline.session_store_uid,
                ),
            ),
            (
                f"memory-stores/{pipeline.memory_store_id}",
                AuthorizeMemoryStore(
                    workspace_id=pipeline.workspace_id,
                    principal_type=pipeline.creator_type,
                    principal=pipeline.creator,
                    permission="WRITE",
                    store_uid=pipeline.memory_store_uid,
                ),
            ),
        )
        for name, question in asked:
            answer = await self._ask(question, StoreAuthorization)
            if answer.store_uid is None:
                raise LaneFailure(f"NOT_FOUND: {name} of this pipeline was deleted; a new one of that name is another")
            if not answer.allowed:
                raise LaneFailure(f"PERMISSION_DENIED: the pipeline's creator needs {question.permission} on {name}")
        self._allowed[pipeline.pipeline_uid] = now + ACCESS_CACHE_S


@dataclass(frozen=True)
class Question:
    """What one distillation asks, gathered."""

    pipeline: Pipeline
    model: Model
    portion: Portion
    related: Related
    source_epoch: int
    sha256: bytes

    @property
    def lines(self) -> list[Numbered]:
        return self.portion.lines


class Distiller:
    def __init__(
        self,
        settings: DistillerSettings,
        models: Models,
        pipelines: Pipelines,
        lanes: Lanes,
        batches: Batches,
        unit_of_work: UnitOfWork,
        ask: Ask[BaseModel],
        metrics: Metrics,
    ) -> None:
        self._settings = settings
        self._models = models
        self._pipelines = pipelines
        self._lanes = lanes
        self._batches = batches
        self._unit_of_work = unit_of_work
        self._ask = ask
        self._metrics = metrics
        self._access = Access(ask)  # type: ignore[arg-type]

    async def distil(self, workspace_id: int, lease: Lease) -> bool:
        """Distils a portion of the lane; False when there was nothing to do.

        Raises `LaneFailure`, `ProviderFailure` or `Retry` by owner, and `Fenced` when the lease was lost.
        """
        pipeline = await self._pipelines.get(workspace_id, lease.pipeline_uid)
        if pipeline is None:
            return False
        model = self._models.get(pipeline.model)
        if model is None:
            raise LaneFailure(f"unknown model '{pipeline.model}'; known are {', '.join(self._models.names)}")
        await self._access.check(pipeline)
        portion, source_epoch = await self._gather(pipeline, lease)
        if not portion.ranges:
            return False
        related = await self._related(pipeline, lease.actor_id, portion)
        portion = portion.without_echoes(related.entries)
        sha256 = request_sha256(model.name, pipeline.instructions, portion.lines)
        question = Question(pipeline, model, portion, related, source_epoch, sha256)
        batch_id, changes, spent = await self._answer(lease, question)
        await self._emit(lease, question, batch_id, changes, spent)
        return True

    async def _gather(self, pipeline: Pipeline, lease: Lease) -> tuple[Portion, int]:
        """Reads the lane's sessions from their watermarks, up to the limits of one batch."""
        settings = self._settings
        portion = Portion(lease.max_lines or settings.batch_lines, settings.batch_tokens, settings.context_lines)
        behind = await self._lanes.behind(lease, SESSIONS_PER_BATCH + 1)
        portion.complete = len(behind) <= SESSIONS_PER_BATCH
        epoch = 0
        for session in behind[:SESSIONS_PER_BATCH]:
            if portion.full:
                portion.complete = False
                break
            start = min((session.after, *(position - 1 for position in session.again)))
            transcript = await self._ask(
                ReadTranscript(
                    store_uid=pipeline.session_store_uid,
                    session_uid=session.session_uid,
                    after=max(0, start - CONTEXT_REACH),
                    limit=portion.max_lines + CONTEXT_REACH + 1,
                ),
                Transcript,
            )
            assert isinstance(transcript, Transcript)  # noqa: S101 - asked for it
            epoch = max(epoch, transcript.epoch)
            portion.add(session, transcript)
        return portion, epoch

    async def _related(self, pipeline: Pipeline, actor_id: str, portion: Portion) -> Related:
        """The slots that the lines are about: by their words, and by the paths that the built-in model would give."""
        fresh = [line for line in portion.lines if not line.asked.context]
        texts = [line.asked.text[:500] for line in fresh if line.asked.role == "user"]
        paths = sorted({change.path for change in extract(portion.asked, []).changes})
        related = await self._ask(
            RelatedEntries(store_uid=pipeline.memory_store_uid, actor_id=actor_id, texts=texts, paths=paths), Related
        )
        assert isinstance(related, Related)  # noqa: S101 - asked for it
        if related.gone:
            raise LaneFailure(f"NOT_FOUND: memory-stores/{pipeline.memory_store_id} of this pipeline was deleted")
        return related

    async def _answer(self, lease: Lease, question: Question) -> tuple[UUID, list[Change], Spent | None]:
        """The checked changes; a paid answer is committed before it is looked at, and found again after a crash."""
        if not any(not line.asked.context for line in question.lines):
            return uuid7(), [], None
        if not question.model.paid:
            reply = await self._ask_model(question)
            return uuid7(), self._checked(parse(reply.text), question), reply.spent
        kept = await self._batches.stored_answer(lease, question.sha256)
        if kept is not None:
            batch_id, text = kept
        else:
            await self._check_budget(question.pipeline)
            batch_id = uuid7()
            await self._batches.asked(lease, question.pipeline, batch_id, question.sha256)
            text = await self._paid_answer(lease, question, batch_id)
        try:
            return batch_id, self._checked(parse(text), question), None
        except LaneFailure:
            await self._batches.drop(batch_id)
            raise

    async def _check_budget(self, pipeline: Pipeline) -> None:
        budget = pipeline.daily_token_budget
        if budget is not None and await self._batches.tokens_today(pipeline.pipeline_uid) >= budget:
            raise OverBudget(f"the daily_token_budget of {budget} is spent")

    async def _paid_answer(self, lease: Lease, question: Question, batch_id: UUID) -> str:
        try:
            reply = await self._ask_model(question)
        except Failed as failed:
            self._count(failed.spent)
            async with self._unit_of_work.begin() as tx:
                await self._batches.spend(tx, question.pipeline, failed.spent)
            await self._batches.drop(batch_id)
            raise failed.cause from None
        async with self._unit_of_work.begin() as tx:
            await self._batches.answered(tx, batch_id, reply.text, reply.spent)
            await self._batches.spend(tx, question.pipeline, reply.spent)
        self._count(reply.spent)
        if reply.recovered:
            await self._lanes.wake_provider(question.model.provider)
        return reply.text

    def _count(self, spent: Spent) -> None:
        self._metrics.model_calls.labels(spent.model, spent.outcome).inc()
        self._metrics.model_tokens.labels(spent.model, "prompt").inc(spent.prompt_tokens)
        self._metrics.model_tokens.labels(spent.model, "completion").inc(spent.completion_tokens)

    async def _ask_model(self, question: Question) -> Reply:
        return await question.model.ask(
            question.portion.asked, known_entries(question.related.entries), question.pipeline.instructions
        )

    def _checked(self, answer: Answer, question: Question) -> list[Change]:
        return changes_of(answer, question.lines, question.related.entries)

    async def _emit(
        self, lease: Lease, question: Question, batch_id: UUID, changes: list[Change], spent: Spent | None
    ) -> None:
        pipeline, portion = question.pipeline, question.portion
        event = MemoriesDistilled(
            event_id=batch_id,
            occurred_at=datetime.now(UTC),
            workspace_id=pipeline.workspace_id,
            batch_id=batch_id,
            store_uid=pipeline.memory_store_uid,
            actor_id=lease.actor_id,
            pipeline_uid=pipeline.pipeline_uid,
            session_store_uid=pipeline.session_store_uid,
            session_store_id=pipeline.session_store_id,
            source_epoch=question.source_epoch,
            memory_epoch=question.related.epoch,
            oldest_appended_at=portion.oldest_appended_at,
            ranges=portion.ranges,
            changes=changes,
        )
        async with self._unit_of_work.begin() as tx:
            if not await self._lanes.hand_over(tx, lease, batch_id, more=not portion.complete):
                raise Fenced
            await self._lanes.advance(tx, lease, portion.ranges, portion.again_left)
            await self._batches.emitted(tx, lease, pipeline, batch_id, question.sha256, event.model_dump_json())
            if spent is not None:
                await self._batches.spend(tx, pipeline, spent)
            tx.emit(event)
