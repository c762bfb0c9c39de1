"""Synchronous extraction: one session distilled now, without a pipeline, into the slots that a pipeline would write."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from libs.chassis.errors import Internal, OutcomeUnknown, Retry, Unavailable
from libs.chassis.unit_of_work import UnitOfWork
from libs.contracts.events import Change, MemoriesDistilled
from libs.contracts.ids import part_of, uuid7
from libs.contracts.requests import ApplyBatch, BatchApplied, FoundSession
from services.distiller.domain import (
    Behind,
    LaneFailure,
    ProviderFailure,
    Question,
    Truncated,
    batch_of,
    changes_of,
    known_entries,
)
from services.distiller.llm import Failed, Model, parse
from services.distiller.metrics import Metrics
from services.distiller.reading import Reader
from services.distiller.store import Lanes, Usage
from services.distiller.store.usage import Spent

NO_PIPELINE = UUID(int=0)
APPLY_TIMEOUT_S = 10.0

Ask = Callable[..., Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class Extracted:
    """A statement that was found; `entry_id` is None where nothing was written."""

    change: Change
    entry_id: str | None
    at: datetime


@dataclass(frozen=True, slots=True)
class Extraction:
    """What is extracted from where into where, already authorised."""

    workspace_id: int
    session_store_uid: UUID
    session_store_id: str
    session_id: str
    session: FoundSession
    memory_store_uid: UUID
    instructions: str | None
    dry_run: bool

    @property
    def pipeline_uid(self) -> UUID:
        return NO_PIPELINE


class Extractor:
    def __init__(
        self,
        reader: Reader,
        usage: Usage,
        lanes: Lanes,
        unit_of_work: UnitOfWork,
        metrics: Metrics,
        ask: Ask,
        timeout_s: float,
    ) -> None:
        self._reader = reader
        self._usage = usage
        self._lanes = lanes
        self._unit_of_work = unit_of_work
        self._metrics = metrics
        self._ask = ask
        self._timeout_s = timeout_s

    async def extract(self, wanted: Extraction, model: Model) -> list[Extracted]:
        """Distils the whole session, portion by portion. Raises `Unavailable` only while nothing is written."""
        deadline = asyncio.get_running_loop().time() + self._timeout_s
        found: list[Extracted] = []
        after, max_lines = 0, None
        try:
            while after < wanted.session.last_position:
                try:
                    async with asyncio.timeout_at(deadline):
                        question = await self._question(wanted, after, max_lines)
                        changes = await self._changes(question, model, wanted)
                except Truncated as truncated:
                    if truncated.lines <= 1:
                        raise
                    max_lines = truncated.lines // 2
                    continue
                found += await self._write(wanted, question, changes)
                through = question.ranges[0].through
                if through <= after:
                    break
                after = through
        except TimeoutError:
            raise Internal(
                f"It took longer than {self._timeout_s:g} s; what is written stays, and repeating is safe.",
                reason="DEADLINE",
            ) from None
        except LaneFailure as failure:
            raise Internal(f"The model's answer is of no use ({failure}).", reason="MODEL_FAILED") from None
        except (ProviderFailure, Retry) as failure:
            if any(each.entry_id for each in found):
                raise Internal("The extraction was interrupted; repeating it is safe.", reason="INTERRUPTED") from None
            raise Unavailable(f"Nothing was written: {failure}.") from None
        return found

    async def _question(self, wanted: Extraction, after: int, max_lines: int | None) -> Question:
        assert wanted.session.session_uid is not None  # noqa: S101 - found before
        behind = Behind(
            wanted.session.session_uid, wanted.session_id, after, wanted.session.last_position, oldest_appended_at=None
        )
        return await self._reader.question(
            wanted.session_store_uid, wanted.memory_store_uid, wanted.session.actor_id, [behind], max_lines
        )

    async def _changes(self, question: Question, model: Model, wanted: Extraction) -> list[Change]:
        if not question.has_evidence:
            return []
        try:
            reply = await model.ask(question.asked, known_entries(question.related), wanted.instructions)
        except Failed as failed:
            await self._book(wanted, model, failed.spent, recovered=failed.recovered)
            raise failed.cause from None
        except asyncio.CancelledError:
            await asyncio.shield(self._book(wanted, model, Spent(model.name, "deadline"), recovered=False))
            raise
        await self._book(wanted, model, reply.spent, recovered=reply.recovered)
        return changes_of(parse(reply.text), question.lines, question.related)

    async def _book(self, wanted: Extraction, model: Model, spent: Spent, *, recovered: bool) -> None:
        """On the pair of stores, for there is no pipeline; lanes that wait for the endpoint hear that it is there."""
        if not model.paid:
            return
        self._metrics.count(spent)
        pair = part_of(wanted.session_store_uid, str(wanted.memory_store_uid))
        async with self._unit_of_work.begin() as tx:
            await self._usage.book(tx, wanted.workspace_id, pair, spent)
        if recovered:
            self._metrics.breaker_open.labels(model.name).set(0)
            await self._lanes.wake_provider(model.provider)

    async def _write(self, wanted: Extraction, question: Question, changes: list[Change]) -> list[Extracted]:
        now = datetime.now(UTC)
        if wanted.dry_run or not changes:
            return [Extracted(change, None, now) for change in changes if change.op == "set"]
        batch = batch_of(
            wanted,
            uuid7(),
            wanted.session.actor_id,
            source_epoch=question.source_epoch,
            memory_epoch=question.memory_epoch,
            ranges=question.ranges,
            changes=changes,
        )
        applied = await self._apply(batch)
        return [
            Extracted(change, result.entry_id, now)
            for change, result in zip(changes, applied.outcomes, strict=True)
            if change.op == "set" and result.outcome in ("applied", "confirmed", "history")
        ]

    async def _apply(self, batch: MemoriesDistilled) -> BatchApplied:
        """Asks twice: the batch's id makes a repeat harmless."""
        try:
            applied: BatchApplied = await self._ask(ApplyBatch(batch=batch), BatchApplied, timeout_s=APPLY_TIMEOUT_S)
        except Retry:
            try:
                applied = await self._ask(ApplyBatch(batch=batch), BatchApplied, timeout_s=APPLY_TIMEOUT_S)
            except Retry:
                raise OutcomeUnknown from None
        return applied
