"""One distillation of one lane: read, ask, keep the answer, check it, hand it over.

Everything before the last step may be repeated at no harm; the last is one transaction, fenced by the lease.
"""

from uuid import UUID

from libs.chassis.outbox import OutboxRow, Relay
from libs.contracts.events import Change
from libs.contracts.ids import uuid7
from services.distiller.access import Access
from services.distiller.consolidation.consolidator import Consolidator
from services.distiller.domain import (
    Fenced,
    LaneFailure,
    Lease,
    Overlaps,
    Pipeline,
    Question,
    batch_of,
    known_entries,
)
from services.distiller.llm import Model, Reply
from services.distiller.paid import PaidAnswers
from services.distiller.reading import Reader
from services.distiller.store import Answers, Batches, Leases
from services.distiller.store.answers import Kept

SESSIONS_PER_BATCH = 20


class Distiller:
    def __init__(
        self,
        leases: Leases,
        answers: Answers,
        batches: Batches,
        relay: Relay,
        access: Access,
        reader: Reader,
        paid: PaidAnswers,
        consolidator: Consolidator,
    ) -> None:
        self._leases = leases
        self._answers = answers
        self._batches = batches
        self._relay = relay
        self._access = access
        self._reader = reader
        self._paid = paid
        self._consolidator = consolidator

    async def distil(self, lease: Lease) -> bool:
        """Distils a portion of the lane, or else puts its memory in order; False when there was nothing to do.

        Raises `LaneFailure`, `ProviderFailure` or `Retry` by owner, and `Fenced` when the lease was lost.
        """
        pipeline = lease.pipeline
        model = self._access.model_of(pipeline)
        if pipeline.parent_uid is None:  # else the replay asks
            await self._access.check(pipeline)
        kept = await self._answers.kept(lease) if model.paid else None
        if kept is not None and await self._resumed(lease, pipeline, kept):
            return True
        behind = await self._leases.behind(lease, SESSIONS_PER_BATCH + 1)
        if not behind:
            # What a replay gathers is put in order where it is swapped to.
            is_wanted = lease.consolidate and pipeline.parent_uid is None
            return is_wanted and await self._consolidator.step(lease, model)
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

    async def _resumed(self, lease: Lease, pipeline: Pipeline, kept: Kept) -> bool:
        """Whether what a killed worker had paid for is handed over."""
        if isinstance(kept.question, Overlaps):
            return await self._consolidator.resumed(lease, kept.batch_id, kept.question, kept.answer)
        kept.question.complete = False  # more may have come since it was asked: look again
        await self._finish(lease, pipeline, kept.batch_id, kept.question, kept.answer)
        return True

    async def _ask(self, lease: Lease, pipeline: Pipeline, model: Model, question: Question) -> None:
        """A paid answer is committed before it is looked at, so that nobody pays for it again."""

        async def ask() -> Reply:
            return await model.ask(question.asked, known_entries(question.related), pipeline.instructions)

        if not question.has_evidence:
            await self._emit(lease, pipeline, uuid7(), question, [])
        elif not model.paid:
            reply = await ask()
            await self._emit(lease, pipeline, uuid7(), question, await self._changes(lease, question, reply.text))
        else:
            batch_id, text = await self._paid.ask(lease, model, question, ask)
            await self._finish(lease, pipeline, batch_id, question, text)

    async def _finish(self, lease: Lease, pipeline: Pipeline, batch_id: UUID, question: Question, answer: str) -> None:
        try:
            changes = await self._changes(lease, question, answer)
        except LaneFailure:
            await self._answers.drop(batch_id)
            raise
        await self._emit(lease, pipeline, batch_id, question, changes)

    async def _changes(self, lease: Lease, question: Question, answer: str) -> list[Change]:
        return await self._reader.changes(lease.pipeline.memory_store_uid, lease.actor_id, question, answer)

    async def _emit(
        self,
        lease: Lease,
        pipeline: Pipeline,
        batch_id: UUID,
        question: Question,
        changes: list[Change],
    ) -> None:
        event = batch_of(
            pipeline,
            batch_id,
            lease.actor_id,
            run_id=lease.run_id,
            source_epoch=question.source_epoch,
            memory_epoch=question.memory_epoch,
            oldest_appended_at=question.oldest_appended_at,
            ranges=question.ranges if pipeline.parent_uid is None else question.ranges_with_lines,
            changes=changes,
        )
        row = OutboxRow.of(event)
        more = not question.complete
        if not await self._batches.emit(lease, event, row, more=more, again_taken=question.again_taken):
            raise Fenced
        self._relay.offer([row])
