"""`/ops/distiller/…:repair`: what an admin does after a database was restored to an older dump."""

from datetime import datetime
from uuid import UUID

from fastapi import APIRouter
from pydantic import BaseModel, Field

from libs.chassis.errors import Retry, Unavailable
from libs.chassis.http import Authenticated
from libs.chassis.paging import decode_token, encode_token
from services.distiller.restored import Restored
from services.distiller.store import Pipelines
from services.distiller.sweep import Sweeper

BATCHES_A_CALL = 200


class RepairBody(BaseModel):
    page_token: str | None = None


class LanesRepaired(BaseModel):
    """A page of the sessions of one pipeline; the next page may be the next pipeline's."""

    sessions: int
    rewound: int = Field(description="Sessions that hold less than was distilled of them: distilled anew.")
    next_page_token: str | None = None


class BatchesRepaired(BaseModel):
    batches: int
    applied_again: int = Field(description="Settled batches and swaps of replays that the memory service had lost.")
    left_out: int = Field(
        description="Swaps that come too late, for more is distilled by now, or of which memory takes less than it did:"
        " replay those actors again."
    )
    next_page_token: str | None = None


class RepairApi:
    def __init__(self, pipelines: Pipelines, sweeper: Sweeper, restored: Restored) -> None:
        self._pipelines = pipelines
        self._sweeper = sweeper
        self._restored = restored

    def routes(self) -> APIRouter:
        router = APIRouter(prefix="/ops/distiller", tags=["operations"])
        router.add_api_route("/lanes:repair", self.lanes, methods=["POST"], response_model_exclude_none=True)
        router.add_api_route("/batches:repair", self.batches, methods=["POST"], response_model_exclude_none=True)
        return router

    async def lanes(self, body: RepairBody, caller: Authenticated) -> LanesRepaired:
        """After the session database was restored: compares what is distilled with what is there, a page at a time."""
        caller.require_admin()
        scope = ("repair lanes", caller.workspace_id)
        at = decode_token(scope, body.page_token, (UUID, str))
        done, cursor = at or (None, "")
        pipeline = None
        if done is not None and cursor:
            pipeline = await self._pipelines.get(caller.workspace_id, done)
        if pipeline is None:  # deleted meanwhile, or walked to its end
            cursor = ""
            pipeline = next(iter(await self._pipelines.page(caller.workspace_id, done, 1)), None)
        if pipeline is None:
            return LanesRepaired(sessions=0, rewound=0)
        try:
            walked = await self._sweeper.walk(pipeline, None, cursor or None)
        except Retry:
            raise Unavailable("The session or the memory service does not answer.") from None
        token = encode_token(scope, [pipeline.pipeline_uid, walked.cursor or ""])
        return LanesRepaired(sessions=walked.sessions, rewound=walked.rewound, next_page_token=token)

    async def batches(self, body: RepairBody, caller: Authenticated) -> BatchesRepaired:
        """After the memory database was restored: applies again what it lacks of the last 7 days, a page at a time."""
        caller.require_admin()
        scope = ("repair batches", caller.workspace_id)
        at = decode_token(scope, body.page_token, (datetime, UUID))
        try:
            done = await self._restored.apply_again(caller.workspace_id, (at[0], at[1]) if at else None, BATCHES_A_CALL)
        except Retry:
            raise Unavailable("The memory service does not answer; what was repaired stays so.") from None
        token = encode_token(scope, done.through) if done.through else None
        return BatchesRepaired(
            batches=done.batches, applied_again=done.lacking, left_out=done.late, next_page_token=token
        )
