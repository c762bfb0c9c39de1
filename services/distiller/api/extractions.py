"""`POST …/sessions/{id}/extractions`."""

from fastapi import APIRouter
from pydantic import BaseModel

from libs.chassis.errors import NotFound, PermissionDenied
from libs.chassis.http import Authenticated
from libs.chassis.permissions import bare_name
from libs.chassis.texts import Text, check_bytes
from libs.chassis.times import rfc3339
from libs.contracts.ids import uuid7
from libs.contracts.limits import Limits
from libs.contracts.requests import FindSession, FoundSession
from libs.contracts.routes import BASE, MEMORY_STORES
from services.distiller.api.authorization import Authorization
from services.distiller.extraction import Extracted, Extraction, Extractor
from services.distiller.llm import Models

SOURCE_TYPE = "MANAGED_MEMORY_ENTRY_SOURCE_TYPE_DREAMER"


class ExtractionBody(BaseModel):
    memory_store: Text
    instructions: Text | None = None
    dry_run: bool = False


class ExtractedEntry(BaseModel):
    """What was written, or with `dry_run` would be."""

    name: str
    actor_id: str
    path: str
    content: str | None = None
    description: str | None = None
    source_type: str
    create_time: str
    update_time: str


class ExtractionShape(BaseModel):
    name: str
    entries: list[ExtractedEntry]


class ExtractionApi:
    def __init__(self, limits: Limits, models: Models, authorization: Authorization, extractor: Extractor) -> None:
        self._limits = limits
        self._models = models
        self._authorization = authorization
        self._extractor = extractor

    def routes(self) -> APIRouter:
        router = APIRouter(prefix=BASE, tags=["extractions"])
        router.add_api_route(
            "/session-stores/{store_id}/sessions/{session_id}/extractions",
            self.extract,
            methods=["POST"],
            response_model_exclude_none=True,
        )
        return router

    async def extract(
        self, store_id: str, session_id: str, body: ExtractionBody, caller: Authenticated
    ) -> ExtractionShape:
        """Distils a session now; needs READ on its store and WRITE on the memory store. A dry run writes nothing.

        409 tells what could not be written; the rest stays, and repeating is safe.
        """
        check_bytes("instructions", body.instructions, self._limits.instructions_bytes)
        target_id = bare_name(MEMORY_STORES, body.memory_store)
        source_uid, target_uid = await self._authorization.pair(caller, store_id, target_id)
        session = await self._authorization.answer(
            FindSession(store_uid=source_uid, session_id=session_id), FoundSession
        )
        if session.session_uid is None:
            raise NotFound(f"Session '{session_id[:80]}' does not exist in session store '{store_id[:80]}'.")
        model = self._models.get(None)
        assert model is not None  # noqa: S101 - there is always a default
        if not self._models.may_be_used_by(caller.principal, None):
            raise PermissionDenied(f"You may not use the model {model.name}.")
        wanted = Extraction(
            workspace_id=caller.workspace_id,
            session_store_uid=source_uid,
            session_store_id=store_id,
            session_id=session_id,
            session=session,
            memory_store_uid=target_uid,
            instructions=body.instructions,
            dry_run=body.dry_run,
        )
        found = await self._extractor.extract(wanted, model)
        return ExtractionShape(
            name=f"session-stores/{store_id}/sessions/{session_id}/extractions/{uuid7()}",
            entries=[_entry(each, target_id, session.actor_id) for each in found],
        )


def _entry(extracted: Extracted, store_id: str, actor_id: str) -> ExtractedEntry:
    change = extracted.change
    return ExtractedEntry(
        name=f"{MEMORY_STORES}/{store_id}/entries/{extracted.entry_id or uuid7()}",
        actor_id=actor_id,
        path=change.path,
        content=change.statement,
        description=change.description,
        source_type=SOURCE_TYPE,
        create_time=rfc3339(extracted.at),
        update_time=rfc3339(extracted.at),
    )
