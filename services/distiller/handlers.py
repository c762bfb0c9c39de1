"""What the distiller does when something happened elsewhere."""

from collections.abc import Awaitable, Callable
from uuid import UUID

from libs.chassis.outbox import OutboxRow
from libs.chassis.parked import ParkedMessages
from libs.chassis.unit_of_work import Tx, UnitOfWork
from libs.contracts.events import (
    BatchesApplied,
    DistillerActorErased,
    ItemsAppended,
    MemoriesDistilled,
    MemoryActorErased,
    MemoryStoreDeleted,
    SessionActorErased,
    SessionDeleted,
    SessionStoreDeleted,
)
from libs.contracts.ids import uuid7
from libs.contracts.requests import HastenLane, LaneHastened
from services.distiller.lanes import LaneWorkers
from services.distiller.leftovers import Leftovers, is_left, left_of
from services.distiller.metrics import Metrics
from services.distiller.store import Batches, Erasures, Lanes, Mark, Pipelines, Replays
from services.distiller.store.patience import PATIENCE_MS

STORE_DELETED = "NOT_FOUND: the {} store was deleted; another needs a pipeline of its own"


class Handlers:
    def __init__(
        self,
        pipelines: Pipelines,
        lanes: Lanes,
        batches: Batches,
        replays: Replays,
        erasures: Erasures,
        leftovers: Leftovers,
        workers: LaneWorkers,
        parked: ParkedMessages,
        unit_of_work: UnitOfWork,
        metrics: Metrics,
    ) -> None:
        self._pipelines = pipelines
        self._lanes = lanes
        self._batches = batches
        self._replays = replays
        self._erasures = erasures
        self._leftovers = leftovers
        self._workers = workers
        self._parked = parked
        self._unit_of_work = unit_of_work
        self._metrics = metrics

    async def on_items_appended(self, event: ItemsAppended) -> None:
        due_in_s = await self._lanes.mark_one(
            Mark(
                store_uid=event.store_uid,
                session_uid=event.session_uid,
                session_id=event.session_id,
                actor_id=event.actor_id,
                last_position=event.last_position,
                appended_at=event.occurred_at,
            )
        )
        if due_in_s is not None:
            self._workers.due_in(due_in_s)

    async def on_batches_applied(self, event: BatchesApplied) -> None:
        """Memory has the batch: its lane goes on. A repeated answer finds the batch settled and changes nothing.

        A batch that is unknown was erased, or will be distilled again.
        """
        outcomes = event.model_dump_json(include={"outcomes"})
        changed = sum(applied.outcome == "applied" for applied in event.outcomes)
        if any(map(is_left, event.outcomes)):
            async with self._unit_of_work.begin() as tx:
                sent = await self._batches.settle_in(tx, event.store_uid, event.batch_id, outcomes, changed)
                if sent is None:
                    return
                batch = MemoriesDistilled.model_validate_json(sent)
                await self._leftovers.keep(tx, batch, left_of(batch, event.outcomes))
            is_due = True
        else:
            settled = await self._batches.settle(event.store_uid, event.batch_id, outcomes, changed)
            if settled is None:
                return
            is_due = settled
        if is_due:
            self._workers.due_in(0)
        self._metrics.count_outcomes(event.outcomes)

    async def on_session_deleted(self, event: SessionDeleted) -> None:
        async with self._unit_of_work.begin(patience_ms=PATIENCE_MS) as tx:
            await self._erasures.forget_session(tx, event.session_uid)

    async def on_session_store_deleted(self, event: SessionStoreDeleted) -> None:
        await self._forget_store(event.store_uid, "session")

    async def on_memory_store_deleted(self, event: MemoryStoreDeleted) -> None:
        await self._forget_store(event.store_uid, "memory")

    async def _forget_store(self, store_uid: UUID, kind: str) -> None:
        async with self._unit_of_work.begin(patience_ms=PATIENCE_MS) as tx:
            await self._replays.stop_of_store(tx, store_uid, STORE_DELETED.format(kind))
            await self._erasures.forget_store(tx, store_uid)

    async def on_session_actor_erased(self, event: SessionActorErased) -> None:
        """Drops what is known of the actor and confirms; a repeat only confirms."""
        await self._erase(event, self._erasures.forget_said)

    async def on_memory_actor_erased(self, event: MemoryActorErased) -> None:
        """What was stored for an actor who was erased in a memory store goes, and that is confirmed."""
        if not event.in_session_store:
            await self._erase(event, self._erasures.forget_remembered)

    async def _erase(
        self,
        event: SessionActorErased | MemoryActorErased,
        forget: Callable[[Tx, UUID, str], Awaitable[int]],
    ) -> None:
        async with self._unit_of_work.begin(patience_ms=PATIENCE_MS) as tx:
            removed = 0
            is_news, epoch = await self._erasures.begin(tx, event)
            if is_news:
                await self._replays.forget_actor(tx, event.store_uid, event.actor_id)
                removed = await forget(tx, event.store_uid, event.actor_id)
                removed += await self._parked.forget_actor(tx, event.store_uid, event.actor_id)
            tx.emit(
                DistillerActorErased(
                    workspace_id=event.workspace_id,
                    caused_by=event.event_id,
                    store_uid=event.store_uid,
                    actor_id=event.actor_id,
                    epoch=event.epoch,
                    erasure_id=event.erasure_id,
                    removed=removed,
                    known_epoch=epoch,
                )
            )

    async def on_hasten_lane(self, request: HastenLane) -> LaneHastened:
        """Somebody waits for a session: its lane is due now, unless only a run or a redrive would help."""
        pipelines = await self._pipelines.feeding(
            request.workspace_id, request.memory_store_uid, request.session_store_id
        )
        if not pipelines:
            return LaneHastened(reason="none")
        reasons: list[str] = []
        for pipeline in pipelines:
            if pipeline.trigger != "CONTINUOUS":
                reasons.append("manual")
                continue
            reason = await self._lanes.hasten(pipeline.pipeline_uid, request.actor_id, request.session_id)
            reasons.append(reason or "due")
        self._workers.due_in(0)
        for reason in ("due", "parked", "manual"):
            if reason in reasons:
                return LaneHastened.model_validate({"reason": reason})
        return LaneHastened(reason="none")


class Unanswered:
    """Sends again what memory has not answered in time, under the same `batch_id` and a new message id.

    A lane whose batch is gone is freed.
    """

    def __init__(self, batches: Batches, unit_of_work: UnitOfWork, metrics: Metrics, after_s: float) -> None:
        self._batches = batches
        self._unit_of_work = unit_of_work
        self._metrics = metrics
        self._after_s = after_s

    async def send_again(self) -> None:
        async with self._unit_of_work.begin() as tx:
            late = await self._batches.claim_unanswered(tx, self._after_s, 500)
            tx.emitted.extend(OutboxRow(uuid7(), MemoriesDistilled.subject, event) for event in late)
        self._metrics.reemitted.inc(len(late))
        async with self._unit_of_work.begin(patience_ms=PATIENCE_MS) as tx:
            await self._batches.free_lost(tx)
