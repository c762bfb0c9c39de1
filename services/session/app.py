"""The composition root of the session service."""

from pathlib import Path

from fastapi import FastAPI

from libs.chassis.app import Chassis
from libs.chassis.metrics import Metrics
from libs.chassis.permissions import permission_routes
from libs.chassis.stores import Stores
from libs.contracts.events import DistillerActorErased, MemoryActorErased
from libs.contracts.requests import AuthorizeSessionStore, FindSession, ReadTranscript, SessionsChanged
from services.session.api.erasures import erasure_routes
from services.session.api.items import OPERATIONS, ItemRoutes
from services.session.api.neighbours import CONFIG_PATH, neighbour_routes
from services.session.api.sessions import session_routes
from services.session.api.stores import KIND, store_routes
from services.session.handlers import Handlers
from services.session.settings import SessionSettings
from services.session.store import purges, retention
from services.session.store.access import Access
from services.session.store.erasures import Erasures
from services.session.store.items import Items
from services.session.store.pages import ItemPages
from services.session.store.sessions import Sessions
from services.session.store.transcripts import Transcripts

REVISIONS = Path(__file__).parent / "migrations"


def build(settings: SessionSettings, metrics: Metrics | None = None) -> FastAPI:
    """The service, wired; entering the application's lifespan runs it."""
    chassis = Chassis("session", settings, metrics)
    database, unit_of_work, limits = chassis.database, chassis.unit_of_work, settings.limits
    stores = Stores(KIND, database, unit_of_work, settings.store_creators)
    access = Access(stores)
    sessions = Sessions(access, database, unit_of_work)
    items = Items(access, database, unit_of_work, chassis.relay)
    erasures = Erasures(stores, database, unit_of_work, chassis.parked, repeat_s=settings.erasure_repeat_s)
    handlers = Handlers(stores, Transcripts(database), erasures, unit_of_work)

    chassis.bus.answer(ReadTranscript, handlers.read_transcript)
    chassis.bus.answer(SessionsChanged, handlers.sessions_changed)
    chassis.bus.answer(FindSession, handlers.find_session)
    chassis.bus.answer(AuthorizeSessionStore, handlers.authorize_store)
    chassis.bus.consume(DistillerActorErased, handlers.on_distiller_actor_erased)
    chassis.bus.consume(MemoryActorErased, handlers.on_memory_actor_erased)
    chassis.housekeep(retention.SWEEP, *purges.PASSES)
    chassis.every("erasures", settings.erasure_repeat_s, erasures.settle, erasures.wake)

    return chassis.http(
        "Memstream sessions",
        [
            store_routes(stores, limits),
            session_routes(sessions, limits),
            erasure_routes(erasures, limits),
            permission_routes(stores, limits),
            neighbour_routes(),
        ],
        ItemRoutes(items, ItemPages(access, database), limits).routes(),
        OPERATIONS,
        open_paths=[CONFIG_PATH],
    )
