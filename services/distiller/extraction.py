"""Synchronous extraction: one session distilled now, without a pipeline, into the slots that a pipeline would write."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from libs.chassis.errors import Aborted, Internal, OutcomeUnknown, Retry, Unavailable, Undone
from libs.chassis.unit_of_work import Tx
from libs.contracts.events import AppliedChange, Change, MemoriesDistilled
from libs.contracts.ids import part_of, uuid7
from libs.contracts.requests import ApplyBatch, BatchApplied, FoundSession
from services.distiller.domain import (
    AGAIN_LIMIT,
    Behind,
    LaneFailure,
    ProviderFailure,
    Question,
    Truncated,
    batch_of,
    known_entries,
)
from services.distiller.llm import Model, Reply
from services.distiller.metrics import Metrics
from services.distiller.paid import PaidCalls
from services.distiller.reading import Reader
from services.distiller.store import Usage
from services.distiller.store.usage import Spent

NO_PIPELINE = UUID(int=0)
APPLY_TIMEOUT_S = 10.0
APPLY_AGAIN_S = 15.0
APPLY_PAUSE_S, APPLY_LONGEST_PAUSE_S = 0.25, 2.0
WRITTEN = ("applied", "confirmed", "history")
NOBODY = ("erased", "gone")

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


@dataclass(slots=True)
class _Progress:
    """How far a session is extracted. `again` are lines of which somebody else wrote a slot meanwhile."""

    after: int = 0
    complete: bool = False
    again: list[int] = field(default_factory=list)
    conflicts: Counter[int] = field(default_factory=Counter)
    max_lines: int | None = None
    has_paid: bool = False
    has_written: bool = False
    found: dict[tuple[str | None, str, str | None], Extracted] = field(default_factory=dict)
    unwritten: list[AppliedChange] = field(default_factory=list)

    @property
    def is_over(self) -> bool:
        """All is done, or there is nobody any more to do it for."""
        return (self.complete and not self.again) or any(each.outcome in NOBODY for each in self.unwritten)

    def read(self, question: Question) -> None:
        reached = question.ranges[0]
        self.after, self.complete = reached.through, question.complete
        taken = question.again_taken[reached.session_uid]
        self.again = [position for position in self.again if position not in taken]

    def find(self, change: Change, entry_id: str | None = None) -> None:
        """What a line says that is asked about again, it says once."""
        if change.op == "set":
            self.found[entry_id, change.path, change.statement] = Extracted(change, entry_id, datetime.now(UTC))

    def conclude(self, changes: Sequence[Change], outcomes: Sequence[AppliedChange]) -> None:
        """The lines of a conflict are asked about again, a few times; what is not written is told at the end."""
        conflicting: set[int] = set()
        for change, applied in zip(changes, outcomes, strict=True):
            positions = [position for evidence in change.evidence for position in evidence.positions]
            if applied.outcome in WRITTEN:
                self.has_written = True
                self.find(change, applied.entry_id)
            elif applied.outcome == "conflict" and all(self.conflicts[each] < AGAIN_LIMIT for each in positions):
                conflicting.update(positions)
            elif applied.outcome != "gone" or change.op == "set":
                self.unwritten.append(applied)
        self.conflicts.update(conflicting)
        self.again = sorted({*self.again, *conflicting})


class Extractor:
    def __init__(
        self,
        reader: Reader,
        calls: PaidCalls,
        usage: Usage,
        metrics: Metrics,
        ask: Ask,
        timeout_s: float,
    ) -> None:
        self._reader = reader
        self._calls = calls
        self._usage = usage
        self._metrics = metrics
        self._ask = ask
        self._timeout_s = timeout_s

    async def extract(self, wanted: Extraction, model: Model) -> list[Extracted]:
        """Distils the whole session, portion by portion.

        Raises `Unavailable`, which clients send again by themselves, only while nothing is written or paid for.
        `Aborted` tells why something was not written; the rest is.
        """
        deadline = asyncio.get_running_loop().time() + self._timeout_s
        progress = _Progress()
        try:
            while not progress.is_over:
                try:
                    async with asyncio.timeout_at(deadline):
                        question = await self._question(wanted, progress)
                        changes = await self._changes(question, model, wanted, progress)
                except Truncated as truncated:
                    if truncated.lines <= 1:
                        raise
                    progress.max_lines = truncated.lines // 2
                    progress.has_paid = True
                    continue
                await self._write(wanted, question, changes, progress)
        except TimeoutError:
            raise Internal(
                f"It took longer than {self._timeout_s:g} s; what is written stays, and repeating is safe.",
                reason="DEADLINE",
            ) from None
        except LaneFailure as failure:
            raise Internal(f"The model's answer is of no use ({failure}).", reason="MODEL_FAILED") from None
        except (ProviderFailure, Retry, Unavailable) as failure:
            why = "the database cannot be reached" if isinstance(failure, Unavailable) else failure
            if progress.has_paid or progress.has_written:
                raise Internal(
                    f"It was interrupted ({why}); what is written stays, and repeating is safe.",
                    reason="INTERRUPTED",
                ) from None
            raise Unavailable(f"Nothing was written: {why}.") from None
        if progress.unwritten:
            reasons = sorted({f"{each.outcome}: {each.reason}" for each in progress.unwritten})
            raise Aborted(
                f"Not all was written ({'; '.join(reasons)}). The rest stays, and repeating is safe.",
                reason="NOT_WRITTEN",
            )
        return list(progress.found.values())

    async def _question(self, wanted: Extraction, progress: _Progress) -> Question:
        session = wanted.session
        assert session.session_uid is not None  # noqa: S101 - found before
        behind = Behind(
            session.session_uid,
            wanted.session_id,
            progress.after,
            session.last_position,
            oldest_appended_at=None,
            again=tuple(progress.again),
        )
        return await self._reader.question(
            wanted.session_store_uid, wanted.memory_store_uid, session.actor_id, [behind], progress.max_lines
        )

    async def _changes(self, question: Question, model: Model, wanted: Extraction, progress: _Progress) -> list[Change]:
        if not question.has_evidence:
            return []
        reply = await self._reply(question, model, wanted, progress)
        return await self._reader.changes(wanted.memory_store_uid, wanted.session.actor_id, question, reply.text)

    async def _reply(self, question: Question, model: Model, wanted: Extraction, progress: _Progress) -> Reply:
        async def ask() -> Reply:
            reply = await model.ask(question.asked, known_entries(question.related), wanted.instructions)
            progress.has_paid |= model.paid
            return reply

        async def book(tx: Tx, spent: Sequence[Spent], _: str | None, __: bool) -> None:
            """On the pair of stores, for there is no pipeline. What may be booked already is booked again: rather once
            too often than never.
            """
            pair = part_of(wanted.session_store_uid, str(wanted.memory_store_uid))
            for each in spent:
                await self._usage.book(tx, wanted.workspace_id, pair, each)

        return await self._calls.make(model, ask, book) if model.paid else await ask()

    async def _write(self, wanted: Extraction, question: Question, changes: list[Change], progress: _Progress) -> None:
        progress.read(question)
        if wanted.dry_run or not changes:
            for change in changes:
                progress.find(change)
            return
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
        self._metrics.count_outcomes(applied.outcomes)
        progress.conclude(changes, applied.outcomes)

    async def _apply(self, batch: MemoriesDistilled) -> BatchApplied:
        """Asks until it is answered: the batch's id makes a repeat harmless.

        Raises `OutcomeUnknown` where a question may have been heard and no answer told what became of it.
        """
        last_at = asyncio.get_running_loop().time() + APPLY_AGAIN_S
        is_known, pause_s = True, APPLY_PAUSE_S
        while True:
            try:
                applied: BatchApplied = await self._ask(
                    ApplyBatch(batch=batch), BatchApplied, timeout_s=APPLY_TIMEOUT_S
                )
                return applied
            except Retry as failure:
                is_known = is_known and isinstance(failure, Undone)
                if asyncio.get_running_loop().time() >= last_at:
                    raise (failure if is_known else OutcomeUnknown()) from None
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, APPLY_LONGEST_PAUSE_S)  # each waits for the actor with a connection of memory's
