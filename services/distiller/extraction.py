"""Synchronous extraction: one session distilled now, without a pipeline, into the slots that a pipeline would write."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from libs.chassis.errors import Internal, OutcomeUnknown, Retry, Unavailable
from libs.contracts.events import Change, MemoriesDistilled
from libs.contracts.ids import uuid7
from libs.contracts.requests import ApplyBatch, BatchApplied, FoundSession
from services.distiller.domain import (
    Behind,
    LaneFailure,
    ProviderFailure,
    Question,
    Truncated,
    changes_of,
    known_entries,
)
from services.distiller.llm import Failed, Model, parse
from services.distiller.reading import Reader

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


class Extractor:
    def __init__(self, reader: Reader, ask: Ask) -> None:
        self._reader = reader
        self._ask = ask

    async def extract(self, wanted: Extraction, model: Model) -> list[Extracted]:
        """Distils the whole session, portion by portion. Raises `Unavailable` only while nothing is written."""
        found: list[Extracted] = []
        after, max_lines = 0, None
        try:
            while after < wanted.session.last_position:
                question = await self._question(wanted, after, max_lines)
                try:
                    changes = await self._changes(question, model, wanted.instructions)
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

    async def _changes(self, question: Question, model: Model, instructions: str | None) -> list[Change]:
        if not question.has_evidence:
            return []
        try:
            reply = await model.ask(question.asked, known_entries(question.related), instructions)
        except Failed as failed:
            raise failed.cause from None
        return changes_of(parse(reply.text), question.lines, question.related)

    async def _write(self, wanted: Extraction, question: Question, changes: list[Change]) -> list[Extracted]:
        now = datetime.now(UTC)
        if wanted.dry_run or not changes:
            return [Extracted(change, None, now) for change in changes if change.op == "set"]
        batch_id = uuid7()
        batch = MemoriesDistilled(
            event_id=batch_id,
            workspace_id=wanted.workspace_id,
            batch_id=batch_id,
            store_uid=wanted.memory_store_uid,
            actor_id=wanted.session.actor_id,
            pipeline_uid=NO_PIPELINE,
            session_store_uid=wanted.session_store_uid,
            session_store_id=wanted.session_store_id,
            source_epoch=question.source_epoch,
            memory_epoch=question.memory_epoch,
            oldest_appended_at=None,
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
