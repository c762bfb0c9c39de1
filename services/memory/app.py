"""The composition root of the memory service."""

from pathlib import Path

from fastapi import FastAPI

from libs.chassis import metrics as chassis_metrics
from libs.chassis.app import Chassis
from libs.chassis.housekeeping import expiring, run_pass
from libs.chassis.permissions import permission_routes
from libs.chassis.stores import Stores
from libs.contracts.events import (
    BatchesApplied,
    DistillerActorErased,
    MemoriesDistilled,
    ReplayEnded,
    SessionActorErased,
)
from libs.contracts.requests import (
    ApplyBatch,
    AuthorizeMemoryStore,
    FindLacking,
    ReadEntries,
    RelatedEntries,
    ShadowStore,
    SwapMemories,
    WithdrawSwap,
)
from services.memory.api.entries import entry_routes
from services.memory.api.erasures import erasure_routes
from services.memory.api.search import OPERATIONS, search_route
from services.memory.api.stores import store_routes
from services.memory.api.versions import version_routes
from services.memory.api.watch import watch_routes
from services.memory.consolidation import EntryReader
from services.memory.embedding import Embedding
from services.memory.embeddings import Embeddings
from services.memory.evidence import Evidence
from services.memory.feed import Feed
from services.memory.freshness import Freshness, Wakers
from services.memory.handlers import Handlers
from services.memory.indexing import Indexing
from services.memory.metrics import Metrics
from services.memory.replays import Replays
from services.memory.search import Search
from services.memory.settings import MemorySettings
from services.memory.store import retention
from services.memory.store.batches import Batches
from services.memory.store.changes import EXPIRE_CHANGES, Changes
from services.memory.store.entries import Entries
from services.memory.store.erasures import Erasures
from services.memory.store.index import Index
from services.memory.store.postings import reanalysis
from services.memory.store.progress import Progress
from services.memory.store.purge import PURGE
from services.memory.store.related import Distilling
from services.memory.store.rewriting import Rewritable
from services.memory.store.shadows import DROP_LEFT_SHADOWS
from services.memory.store.vectors import DROP_UNWANTED, Vectors
from services.memory.store.versions import Versions
from services.memory.stores import MEMORY_STORE
from services.memory.turns import Turns

RETENTION_INTERVAL_S = 3600.0
PENDING_INTERVAL_S = 60.0
REVISIONS = Path(__file__).parent / "migrations"


def build(settings: MemorySettings, metrics: chassis_metrics.Metrics | None = None) -> FastAPI:
    chassis = Chassis("memory", settings, metrics)
    stores = Stores(MEMORY_STORE, chassis.database, chassis.unit_of_work, settings.store_creators)
    indexing = Indexing(settings.default_language, settings.weights)
    wakers = Wakers()
    entries = Entries(chassis.database, chassis.unit_of_work, indexing, settings.limits, Turns(), wakers.wake)
    versions = Versions(chassis.database)
    counted = Metrics(chassis.metrics.registry)
    embeddings = Embeddings.of(settings, counted)
    chassis.close_with(embeddings.close)
    vectors = Vectors(chassis.database, chassis.unit_of_work)
    for embedder in embeddings.embedders:
        embedding = Embedding(
            vectors,
            embedder,
            counted,
            batch=settings.embedding_batch,
            timeout_s=settings.embedding_timeout_s,
            interval_s=settings.embedding_interval_s,
        )
        wakers.listeners.append(embedding.wake)
        chassis.every("embed", settings.embedding_interval_s, embedding.work, embedding.awake)
        chassis.every("count_pending_vectors", PENDING_INTERVAL_S, embedding.count)
    search = Search(Index(chassis.database), versions, indexing, embeddings)
    erasures = Erasures(chassis.database, chassis.unit_of_work, indexing)
    freshness = Freshness(Progress(chassis.database), chassis.bus, wakers)
    handlers = Handlers(
        chassis.unit_of_work,
        stores,
        Batches(chassis.database, indexing, settings.limits.path_bytes),
        Distilling(chassis.database),
        search,
        erasures,
        counted,
    )
    chassis.bus.consume(MemoriesDistilled, handlers.on_memories_distilled)
    chassis.bus.consume(SessionActorErased, handlers.on_session_actor_erased)
    chassis.bus.consume(DistillerActorErased, handlers.on_distiller_actor_erased)
    chassis.bus.listen(BatchesApplied, freshness.on_batches_applied)
    chassis.bus.answer(ApplyBatch, handlers.apply_batch)
    chassis.bus.answer(FindLacking, handlers.find_lacking)
    replays = Replays(chassis.unit_of_work, indexing, wakers.wake)
    chassis.bus.consume(ReplayEnded, replays.on_replay_ended)
    chassis.bus.answer(ShadowStore, replays.shadow)
    chassis.bus.answer(SwapMemories, replays.swap)
    chassis.bus.answer(WithdrawSwap, replays.withdraw)
    chassis.bus.answer(RelatedEntries, handlers.related_entries)
    chassis.bus.answer(ReadEntries, EntryReader(Rewritable(chassis.database)).read)
    chassis.bus.answer(AuthorizeMemoryStore, handlers.authorize_store)
    chassis.every(
        "announce_erasures", settings.erasure_repeat_s, lambda: erasures.announce_again(settings.erasure_repeat_s)
    )

    async def retain() -> None:
        for each in retention.PASSES:
            await run_pass(chassis.unit_of_work, each)

    chassis.every("retention", RETENTION_INTERVAL_S, retain)
    chassis.housekeep(
        PURGE,
        reanalysis(indexing),
        DROP_UNWANTED,
        DROP_LEFT_SHADOWS,
        expiring("batches", "30 days"),
        EXPIRE_CHANGES,
    )
    routers = [
        entry_routes(stores, entries, versions, freshness, Evidence(chassis.bus), settings.limits),
        store_routes(stores, settings.limits, indexing, embeddings, vectors),
        version_routes(stores, entries, versions, settings.limits),
        watch_routes(stores, Feed(Changes(chassis.database), wakers), settings.limits),
        erasure_routes(stores, erasures, settings.limits),
        permission_routes(stores, settings.limits),
    ]
    app = chassis.http(
        "Memstream memory",
        routers,
        [search_route(stores, search, freshness, settings.limits)],
        OPERATIONS,
    )
    app.state.handlers = handlers
    app.state.erasures = erasures
    return app
