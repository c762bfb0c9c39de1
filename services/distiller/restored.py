"""When a database was restored to an older dump, nothing that was promised stays lost.

- session: its positions are given again. A session whose watermark is above its last position is distilled from its
  beginning, for nobody knows which of its positions are the old ones; what memory has of them is only confirmed. Where
  only what is known of it is above, that is forgotten, and what is given again is news.
- memory: the settled batches that it lacks are applied again, in their order. So are the swaps of replays: what each
  was made of is gathered once more, in a shadow of its own. One that comes too late, for more is distilled by now, is
  left out: it would bring back what has changed since. So is one of which memory takes less than it did.
- distiller: the sweep finds what is known no more; what memory has already, a repeat only confirms.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from pydantic import TypeAdapter

from libs.chassis.outbox import OutboxRow, Relay
from libs.chassis.unit_of_work import UnitOfWork
from libs.contracts.events import MemoriesDistilled, Range, ReplayEnded
from libs.contracts.ids import uuid7
from libs.contracts.requests import (
    ApplyBatch,
    BatchApplied,
    ChangedSession,
    FindLacking,
    LackingBatches,
    MemoriesSwapped,
    ReadTranscript,
    Related,
    RelatedEntries,
    ShadowStore,
    StoreShadowed,
    SwapMemories,
    Transcript,
)
from services.distiller.domain import Pipeline, batch_of
from services.distiller.leftovers import Left, Leftovers, left_of
from services.distiller.store import Batches, Lanes, ReplayActors
from services.distiller.store.batches import Settled

APPLY_TIMEOUT_S = 10.0
SWAP_TIMEOUT_S = 30.0

SENT: TypeAdapter[MemoriesDistilled | SwapMemories] = TypeAdapter(MemoriesDistilled | SwapMemories)

Ask = Callable[..., Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class AppliedAgain:
    """A page of settled batches, looked through: how many memory lacked, and where the next page begins.

    `late`: swaps that were left out.
    """

    batches: int
    lacking: int
    late: int
    through: tuple[datetime, UUID] | None


class Restored:
    def __init__(
        self,
        lanes: Lanes,
        batches: Batches,
        actors: ReplayActors,
        leftovers: Leftovers,
        unit_of_work: UnitOfWork,
        relay: Relay,
        ask: Ask,
    ) -> None:
        self._lanes = lanes
        self._batches = batches
        self._actors = actors
        self._leftovers = leftovers
        self._unit_of_work = unit_of_work
        self._relay = relay
        self._ask = ask

    async def rewind(self, pipeline: Pipeline, sessions: Sequence[ChangedSession]) -> int:
        """Has those distilled anew whose watermark is above their last position; returns how many. Where only what was
        known is above it, that is forgotten.

        The sessions may have grown since they were listed, so each suspicion is asked about. A lane that waits for
        memory, or that a replay holds, is left to the next look.
        """
        rewound = 0
        for ahead in await self._lanes.ahead(pipeline.pipeline_uid, sessions):
            transcript: Transcript = await self._ask(
                ReadTranscript(
                    store_uid=pipeline.session_store_uid, session_uid=ahead.session_uid, after=ahead.known, limit=1
                ),
                Transcript,
            )
            last = transcript.last_position
            if transcript.gone or last >= ahead.known:
                continue
            if last < ahead.distilled:
                begun = Range(session_uid=ahead.session_uid, session_id=ahead.session_id, after=0, through=0)
                rewound += await self._begin_again(pipeline, ahead.actor_id, begun, ahead.distilled, transcript)
            else:
                await self._lanes.lower(pipeline.pipeline_uid, ahead, last)
        return rewound

    async def _begin_again(
        self, pipeline: Pipeline, actor_id: str, begun: Range, watermark: int, transcript: Transcript
    ) -> bool:
        """Sets a watermark back and has memory set its progress back, before anything more is distilled."""
        related: Related = await self._ask(
            RelatedEntries(store_uid=pipeline.memory_store_uid, actor_id=actor_id, texts=[]), Related
        )
        event = batch_of(
            pipeline,
            uuid7(),
            actor_id,
            source_epoch=transcript.epoch,
            memory_epoch=related.epoch,
            ranges=[begun],
            rewound=True,
        )
        row = OutboxRow.of(event)
        if not await self._batches.rewind(event, row, begun, watermark, transcript.last_position):
            return False
        self._relay.offer([row])
        return True

    async def apply_again(self, workspace_id: int, after: tuple[datetime, UUID] | None, limit: int) -> AppliedAgain:
        """Looks through the next settled batches of a workspace. Raises `Retry` when memory does not answer."""
        page = await self._batches.settled_page(workspace_id, after, limit)
        lacking = await self._lacking(page)
        late = 0
        for settled in page:
            if settled.batch_id in lacking:
                match SENT.validate_json(settled.event):
                    case MemoriesDistilled() as batch:
                        await self._apply(batch, settled.outcomes)
                    case SwapMemories() as swap:
                        late += not await self._swap(workspace_id, swap)
        through = (page[-1].settled_at, page[-1].batch_id) if len(page) == limit else None
        return AppliedAgain(len(page), len(lacking) - late, late, through)

    async def _lacking(self, page: Sequence[Settled]) -> set[UUID]:
        by_store: dict[UUID, list[UUID]] = {}
        for settled in page:
            by_store.setdefault(settled.memory_store_uid, []).append(settled.batch_id)
        answers: list[LackingBatches] = await asyncio.gather(
            *(
                self._ask(FindLacking(store_uid=store_uid, batch_ids=batch_ids), LackingBatches)
                for store_uid, batch_ids in by_store.items()
            )
        )
        return {batch_id for answer in answers for batch_id in answer.batch_ids}

    async def _swap(self, workspace_id: int, swap: SwapMemories) -> bool:
        """Gathers anew what a replay had gathered for an actor, and has it swapped; False when only a replay helps."""
        shadow_uid = uuid7()
        made: StoreShadowed = await self._ask(
            ShadowStore(workspace_id=workspace_id, store_uid=shadow_uid, of_store_uid=swap.store_uid), StoreShadowed
        )
        if made.gone:
            return True
        try:
            is_whole = True
            for sent, before in await self._actors.gathered(swap.swap_id):
                batch = MemoriesDistilled.model_validate_json(sent)
                again = batch.model_copy(update={"store_uid": shadow_uid, "memory_epoch": 0})
                is_whole &= not await self._left(again, before)
            if is_whole:
                swapped: MemoriesSwapped = await self._ask(
                    swap.model_copy(update={"shadow_uid": shadow_uid}), MemoriesSwapped, timeout_s=SWAP_TIMEOUT_S
                )
                is_whole = swapped.outcome != "behind"
        finally:
            async with self._unit_of_work.begin() as tx:
                tx.emit(ReplayEnded(workspace_id=workspace_id, store_uid=shadow_uid))
        return is_whole or not await self._actors.is_newest(swap.swap_id)

    async def _apply(self, batch: MemoriesDistilled, before: str | None) -> None:
        """One after the other: each batch was decided on what the one before had written."""
        if left := await self._left(batch, before):
            async with self._unit_of_work.begin() as tx:
                await self._leftovers.keep(tx, batch, left)

    async def _left(self, batch: MemoriesDistilled, before: str | None) -> list[Left]:
        """Has a batch applied; returns what is left over, without what was when memory answered `before`."""
        applied: BatchApplied = await self._ask(ApplyBatch(batch=batch), BatchApplied, timeout_s=APPLY_TIMEOUT_S)
        known = [] if before is None else BatchApplied.model_validate_json(before).outcomes
        return left_of(batch, applied.outcomes, known)
