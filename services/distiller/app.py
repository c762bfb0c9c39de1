"""The composition root of the distiller."""

from fastapi import FastAPI

from libs.chassis import metrics as chassis_metrics
from libs.chassis.app import Chassis
from libs.chassis.housekeeping import Pass
from libs.contracts import events, requests
from services.distiller.access import Access
from services.distiller.api import (
    Authorization,
    ExtractionApi,
    LaneApi,
    PipelineAccess,
    PipelineApi,
    RepairApi,
    ReplayApi,
    RunApi,
)
from services.distiller.consolidation.consolidator import Consolidator
from services.distiller.distil import Distiller
from services.distiller.extraction import Extractor
from services.distiller.gone_stores import GoneStores
from services.distiller.handlers import Handlers, Unanswered
from services.distiller.lanes import LaneWorkers
from services.distiller.leftovers import Leftovers
from services.distiller.llm import Models
from services.distiller.metrics import Metrics
from services.distiller.paid import PaidAnswers, PaidCalls
from services.distiller.providers import Providers
from services.distiller.reading import Reader
from services.distiller.replays import Replayer
from services.distiller.restored import Restored
from services.distiller.runs import Runner
from services.distiller.settings import DistillerSettings
from services.distiller.store import (
    Answers,
    Batches,
    Consolidations,
    Erasures,
    Lanes,
    Leases,
    Pipelines,
    ReplayActors,
    Replays,
    Runs,
    Usage,
)
from services.distiller.store import replays as replays_store
from services.distiller.store import runs as runs_store
from services.distiller.store.batches import expired
from services.distiller.sweep import Sweeper

RUN_STEP_S = 0.5
SCHEDULE_STEP_S = 30.0
MODELS_STEP_S = 60.0
PROVIDERS_STEP_S = 5.0


def build(
    settings: DistillerSettings, metrics: chassis_metrics.Metrics | None = None, models: Models | None = None
) -> FastAPI:
    """The HTTP application; entering its lifespan runs consumers, lane workers and sweeps."""
    chassis = Chassis("distiller", settings, metrics)
    counted = Metrics(chassis.metrics.registry)
    models = models or Models.of(settings)
    for model in models.endpoints:
        counted.watch(model.name, model.breaker)
    bus, unit_of_work = chassis.bus, chassis.unit_of_work
    pipelines, lanes = Pipelines(chassis.database), Lanes(chassis.database)
    leases = Leases(chassis.database)
    batches, runs = Batches(chassis.database, settings.consolidate_after, settings.batch_lines), Runs(chassis.database)
    answers, usage = Answers(chassis.database), Usage(chassis.database)

    reader, creators = Reader(settings, lanes, bus.ask), Access(bus.ask, models)
    calls = PaidCalls(unit_of_work, lanes, counted)
    paid = PaidAnswers(calls, answers, usage)
    consolidator = Consolidator(
        Consolidations(chassis.database), answers, batches, paid, chassis.relay, bus.ask, settings.batch_tokens, counted
    )
    distiller = Distiller(leases, answers, batches, chassis.relay, creators, reader, paid, consolidator)
    workers = LaneWorkers(settings, leases, distiller, counted)
    runner = Runner(settings, runs, pipelines, workers, unit_of_work, creators, bus.ask)
    replays, actors = Replays(chassis.database), ReplayActors(chassis.database)
    leftovers = Leftovers(lanes, chassis.parked)
    chassis.parked.redrive_with(events.MemoriesDistilled.subject, leftovers.redrive)
    restored = Restored(lanes, batches, actors, leftovers, unit_of_work, chassis.relay, bus.ask)
    sweeper = Sweeper(settings, pipelines, lanes, workers, bus.ask, restored, counted)
    replayer = Replayer(settings.replay_actors, replays, actors, pipelines, workers, unit_of_work, creators, bus.ask)
    unanswered = Unanswered(batches, unit_of_work, counted, settings.unanswered_after_s)
    erasures = Erasures()
    gone_stores = GoneStores(erasures, creators, unit_of_work)
    handlers = Handlers(
        pipelines, lanes, batches, replays, erasures, leftovers, workers, chassis.parked, unit_of_work, counted
    )

    bus.consume(events.ItemsAppended, handlers.on_items_appended)
    bus.consume(events.BatchesApplied, handlers.on_batches_applied)
    bus.consume(events.SessionDeleted, handlers.on_session_deleted)
    bus.consume(events.SessionStoreDeleted, handlers.on_session_store_deleted)
    bus.consume(events.MemoryStoreDeleted, handlers.on_memory_store_deleted)
    bus.consume(events.SessionActorErased, handlers.on_session_actor_erased)
    bus.consume(events.MemoryActorErased, handlers.on_memory_actor_erased)
    bus.answer(requests.HastenLane, handlers.on_hasten_lane)

    chassis.close_with(replayer.close)
    chassis.close_with(calls.close)
    chassis.close_with(models.close)
    chassis.run(workers.run)
    chassis.drain_with(workers.drain)
    chassis.every("runs", RUN_STEP_S, runner.step, runner.wake)
    chassis.every("replays", RUN_STEP_S, replayer.step, replayer.wake)
    chassis.every("schedule", SCHEDULE_STEP_S, runner.schedule)
    chassis.every("models", MODELS_STEP_S, models.read_again)
    chassis.every("providers", PROVIDERS_STEP_S, Providers(models, lanes, workers).look)
    chassis.every("sweep", min(settings.sweep_interval_s, 5.0), sweeper.sweep, sweeper.wake)
    chassis.every("unanswered", min(settings.unanswered_after_s, 5.0), unanswered.send_again)
    chassis.every("purge_gone_stores", settings.housekeeping_interval_s, gone_stores.purge)
    chassis.housekeep(
        Pass("expire_batches", expired),
        Pass("expire_replays", replays_store.expired),
        Pass("expire_run_goals", runs_store.expired),
    )

    extractor = Extractor(reader, calls, usage, counted, bus.ask, settings.extraction_timeout_s)
    authorization = Authorization(bus.ask)
    access = PipelineAccess(pipelines, authorization)
    limits = settings.limits
    apis = (
        PipelineApi(
            limits,
            models,
            pipelines,
            lanes,
            replays,
            runner,
            sweeper,
            workers,
            unit_of_work,
            authorization,
            access,
            creators,
        ),
        RunApi(runs, runner, unit_of_work, access),
        LaneApi(models, lanes, usage, workers, access),
        ExtractionApi(limits, models, authorization, extractor),
        RepairApi(pipelines, sweeper, restored),
        ReplayApi(limits, replays, actors, replayer, unit_of_work, authorization, access),
    )
    return chassis.http("Memstream distiller", [api.routes() for api in apis])
