"""One step of a consolidation: read, group, ask about what nobody has looked at, hand the rewrites over.

It works on the lane of its actor, so nothing is distilled for them meanwhile. What it got wrong is left as it is: a
consolidation that fails is over, never parks a lane, and comes again when there is a reason for it.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any
from uuid import UUID

from libs.chassis.errors import ApiError, Reject, Retry
from libs.chassis.logs import logger
from libs.chassis.outbox import OutboxRow, Relay
from libs.contracts.events import Rewrite
from libs.contracts.limits import CHANGES_PER_BATCH
from libs.contracts.requests import EntriesRead, ReadEntries, Related, RelatedEntries, RelatedEntry, StoredEntry
from services.distiller.consolidation.answer import Rewritings
from services.distiller.consolidation.overlap import Group, fingerprint, groups_of
from services.distiller.consolidation.prompts import messages
from services.distiller.consolidation.rewrites import check, paths_of, rewrites_of
from services.distiller.domain import (
    Fenced,
    LaneFailure,
    Lease,
    OverBudget,
    Overlaps,
    ProviderFailure,
    Truncated,
    batch_of,
    estimated_tokens,
)
from services.distiller.llm import ChatCompletions, Model, shaped
from services.distiller.metrics import Metrics
from services.distiller.paid import PaidAnswers
from services.distiller.store import Answers, Batches, Consolidations

READ_PAGES = 16  # of at most 256 KiB, terms counted, and 500 entries

# What is nobody's fault here: the lane waits, or another worker has it.
WAITS = (ApiError, Retry, ProviderFailure, OverBudget, Fenced)

Ask = Callable[..., Awaitable[Any]]

log = logger(__name__)


class Consolidator:
    def __init__(
        self,
        consolidations: Consolidations,
        answers: Answers,
        batches: Batches,
        paid: PaidAnswers,
        relay: Relay,
        ask: Ask,
        batch_tokens: int,
        metrics: Metrics,
    ) -> None:
        self._consolidations = consolidations
        self._answers = answers
        self._batches = batches
        self._paid = paid
        self._relay = relay
        self._ask = ask
        self._batch_tokens = batch_tokens
        self._metrics = metrics
        self._comparing = asyncio.Lock()

    async def step(self, lease: Lease, model: Model) -> bool:
        """Looks at as many groups as one question holds; False when there is nothing left to look at.

        Raises only what makes a lane wait (`WAITS`); whatever else goes wrong ends it.
        """
        return await self._unless_it_fails(lease, self._step(lease, model))

    async def resumed(self, lease: Lease, batch_id: UUID, asked: Overlaps, text: str) -> bool:
        """Hands over an answer that a killed worker had paid for; False when it is of no use. Raises as `step`."""
        return await self._unless_it_fails(lease, self._finish(lease, batch_id, asked, text))

    async def _unless_it_fails(self, lease: Lease, work: Awaitable[bool]) -> bool:
        try:
            return await work
        except WAITS:
            raise
        except (LaneFailure, Reject) as failure:
            log.warning("consolidation_failed", reason=str(failure))
        except Exception as failed:
            log.error("consolidation_failed", exc_info=failed)
        self._metrics.distillations.labels("consolidation_failed").inc()
        await self._consolidations.end(lease)
        return False

    async def _step(self, lease: Lease, model: Model) -> bool:
        groups: list[Group] = []
        if isinstance(model, ChatCompletions):
            # One memory at a time, on a thread: to compare takes longer than the loop that serves everybody can wait.
            async with self._comparing:
                read = await self._read(lease)
                groups = await asyncio.to_thread(groups_of, read.entries)
                read.entries.clear()  # only what is asked about waits for the model
            known = await self._consolidations.considered(lease)
            new = [group for group in groups if fingerprint(group) not in known]
            while new and not await self._looked_at(lease, model, self._portion(new), read):
                new = new[1:]
            if new:
                return True
        await self._consolidations.end(lease, [fingerprint(group) for group in groups])
        return False

    async def _read(self, lease: Lease) -> EntriesRead:
        """What may be rewritten, the oldest first, up to `READ_PAGES`; what is merged makes room for the next."""
        entries: list[StoredEntry] = []
        first: EntriesRead | None = None
        after: UUID | None = None
        pages = 0
        while first is None or (after is not None and pages < READ_PAGES):
            page: EntriesRead = await self._ask(
                ReadEntries(
                    store_uid=lease.pipeline.memory_store_uid,
                    actor_id=lease.actor_id,
                    session_store_uid=lease.pipeline.session_store_uid,
                    after=after,
                ),
                EntriesRead,
            )
            first = first or page
            entries += page.entries
            after = page.after
            pages += 1
        return first.model_copy(update={"entries": entries})

    def _portion(self, groups: list[Group]) -> list[Group]:
        """As many groups as fit in a question, one at least."""
        portion: list[Group] = []
        tokens = entries = 0
        for group in groups:
            tokens += sum(estimated_tokens(entry.path + entry.statement) for entry in group)
            entries += len(group)
            if portion and (tokens > self._batch_tokens or entries > CHANGES_PER_BATCH):
                break
            portion.append(group)
        return portion

    async def _looked_at(self, lease: Lease, model: ChatCompletions, groups: list[Group], read: EntriesRead) -> bool:
        """With half as many groups when the answer is cut. False when that of one is: it is left as it is."""
        asked = Overlaps(groups=groups, memory_epoch=read.memory_epoch, source_epoch=read.source_epoch)
        question = messages(asked, lease.pipeline.instructions)
        try:
            batch_id, text = await self._paid.ask(
                lease, model, asked, lambda: model.complete(question, Rewritings, len(groups))
            )
            return await self._finish(lease, batch_id, asked, text)
        except Truncated:
            if len(groups) > 1:
                return await self._looked_at(lease, model, groups[: len(groups) // 2], read)
            await self._consolidations.consider(lease, [fingerprint(groups[0])])
            return False

    async def _finish(self, lease: Lease, batch_id: UUID, asked: Overlaps, text: str) -> bool:
        """Hands an answer over; one that fails is dropped, for it would fail the next time too."""
        try:
            answer = shaped(text, Rewritings)
            check(answer, asked)
            rewrites = rewrites_of(answer, asked, await self._held(lease, paths_of(answer)))
            await self._consolidations.consider(lease, [fingerprint(group) for group in asked.groups])
            await self._emit(lease, batch_id, asked, rewrites)
        except WAITS:
            raise
        except Exception:
            await self._answers.drop(batch_id)
            raise
        return True

    async def _held(self, lease: Lease, paths: list[str]) -> list[RelatedEntry]:
        if not paths:
            return []
        related: Related = await self._ask(
            RelatedEntries(store_uid=lease.pipeline.memory_store_uid, actor_id=lease.actor_id, texts=[], paths=paths),
            Related,
        )
        return related.entries

    async def _emit(self, lease: Lease, batch_id: UUID, asked: Overlaps, rewrites: list[Rewrite]) -> None:
        event = batch_of(
            lease.pipeline,
            batch_id,
            lease.actor_id,
            run_id=lease.run_id,
            source_epoch=asked.source_epoch,
            memory_epoch=asked.memory_epoch,
            rewrites=rewrites,
        )
        row = OutboxRow.of(event)
        if not await self._batches.emit(lease, event, row, more=True, again_taken={}):
            raise Fenced
        self._relay.offer([row])
