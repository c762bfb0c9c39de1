"""What the memory service does with messages: batches of the distiller, erasures, and other services' questions."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from uuid import UUID

from libs.chassis.stores import Stores
from libs.chassis.together import Together
from libs.chassis.unit_of_work import UnitOfWork
from libs.contracts.events import (
    BatchesApplied,
    DistillerActorErased,
    MemoriesDistilled,
    MemoryActorErased,
    SessionActorErased,
)
from libs.contracts.limits import REPLY_BYTES
from libs.contracts.requests import (
    ApplyBatch,
    AuthorizeMemoryStore,
    BatchApplied,
    FindLacking,
    LackingBatches,
    Related,
    RelatedEntries,
    RelatedEntry,
    StoreAuthorization,
)
from services.memory.domain import Entry, is_name, is_storable
from services.memory.metrics import Metrics
from services.memory.search import Search
from services.memory.store.access import PATIENCE_MS
from services.memory.store.batches import Batches, alike, first_together
from services.memory.store.erasures import Erasures
from services.memory.store.related import Distilling

# Room for the JSON around the entries of a reply.
RELATED_BYTES = REPLY_BYTES - 4096
CLIPPED_CHARS = 4000
RELATED_TEXTS = 200
TOGETHER = 16
TOGETHER_UNDER_WAY = 2


class Handlers:
    def __init__(
        self,
        unit_of_work: UnitOfWork,
        stores: Stores,
        batches: Batches,
        distilling: Distilling,
        search: Search,
        erasures: Erasures,
        metrics: Metrics,
    ) -> None:
        self._unit_of_work = unit_of_work
        self._stores = stores
        self._batches = batches
        self._distilling = distilling
        self._search = search
        self._erasures = erasures
        self._metrics = metrics
        self._applications = Together(self._apply, at_once=TOGETHER, alike=alike, under_way=TOGETHER_UNDER_WAY)

    async def on_memories_distilled(self, event: MemoriesDistilled) -> None:
        """Applied with those that came with it; one that cannot be now is late by itself."""
        await self._applications.ask(event)
        if event.oldest_appended_at is not None:
            self._metrics.freshness.observe((datetime.now(UTC) - event.oldest_appended_at).total_seconds())

    async def _apply(self, events: Sequence[MemoriesDistilled]) -> list[None]:
        """Several transactions, where one would be long; what comes after one that fails is left out."""
        done = 0
        while done < len(events):
            together = first_together(events[done:])
            try:
                await self._apply_together(together)
            except Exception:  # whoever is left out is asked alone, and fails by itself if at all
                if not done:
                    raise
                break
            done += len(together)
        return [None] * done

    async def _apply_together(self, together: Sequence[MemoriesDistilled]) -> None:
        async with self._unit_of_work.begin() as tx:
            applied = await self._batches.apply_all(tx, together, datetime.now(UTC))
            for event, outcomes in zip(together, applied, strict=True):
                tx.emit(
                    BatchesApplied(
                        caused_by=event.event_id,
                        workspace_id=event.workspace_id,
                        batch_id=event.batch_id,
                        store_uid=event.store_uid,
                        actor_id=event.actor_id,
                        outcomes=outcomes,
                    )
                )

    async def apply_batch(self, request: ApplyBatch) -> BatchApplied:
        """As the event, for somebody who waits."""
        async with self._unit_of_work.begin() as tx:
            return BatchApplied(outcomes=await self._batches.apply(tx, request.batch, datetime.now(UTC)))

    async def find_lacking(self, request: FindLacking) -> LackingBatches:
        return LackingBatches(batch_ids=await self._batches.lacking(request.store_uid, request.batch_ids))

    async def on_session_actor_erased(self, event: SessionActorErased) -> None:
        """An actor was erased in a session store: what rests on that store alone goes from every memory store."""
        async with self._unit_of_work.begin(patience_ms=PATIENCE_MS) as tx:
            epoch, since = await self._erasures.raise_source_epoch(tx, event)
        async with self._unit_of_work.begin() as tx:
            removed = await self._erasures.forget_source(tx, event, epoch)
            tx.emit(
                MemoryActorErased(
                    caused_by=event.event_id,
                    workspace_id=event.workspace_id,
                    store_uid=event.store_uid,
                    actor_id=event.actor_id,
                    epoch=event.epoch,
                    erasure_id=event.erasure_id,
                    removed=removed,
                    in_session_store=True,
                    known_epoch=since,
                )
            )

    async def on_distiller_actor_erased(self, event: DistillerActorErased) -> None:
        """The distiller confirms; an erasure that began in a session store is not ours to settle."""
        async with self._unit_of_work.begin() as tx:
            await self._erasures.confirm(tx, event)

    async def related_entries(self, request: RelatedEntries) -> Related:
        if not is_name(request.actor_id):
            return Related()
        # The epoch before the nearest: an erasure between the two makes the batch refused, never the entries wrong.
        paths = [path for path in request.paths if is_storable(path)]
        known = await self._distilling.known(request.store_uid, request.actor_id, paths)
        if known is None:
            return Related(gone=True)
        nearest = []
        if known.has_entries:
            nearest = await self._search.related(
                request.store_uid, request.actor_id, request.texts[:RELATED_TEXTS], request.limit
            )
        return Related(entries=_fitting(known.named, nearest), epoch=known.epoch)

    async def authorize_store(self, request: AuthorizeMemoryStore) -> StoreAuthorization:
        return await self._stores.authorize(request)


def _fitting(named: Iterable[Entry], nearest: Iterable[Entry]) -> list[RelatedEntry]:
    """As many as a reply holds, in that order; one that does not fit whole is there with its first words only."""
    entries: dict[UUID, RelatedEntry] = {}
    used = 0
    for entry in [*named, *nearest]:
        if entry.entry_uid in entries:
            continue
        related = _related(entry)
        size = len(related.model_dump_json().encode())
        if used + size > RELATED_BYTES:
            related = related.model_copy(update={"statement": related.statement[:CLIPPED_CHARS]})
            size = len(related.model_dump_json().encode())
        if used + size <= RELATED_BYTES:
            entries[entry.entry_uid] = related
            used += size
    return list(entries.values())


def _related(entry: Entry) -> RelatedEntry:
    return RelatedEntry(
        entry_id=entry.entry_id,
        path=entry.path,
        version=entry.version,
        statement=entry.value.content or "",
        kind=entry.value.kind,
        event_date=entry.value.event_date,
        retired=entry.value.retired,
    )
