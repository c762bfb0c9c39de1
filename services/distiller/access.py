"""Whether a pipeline's creator may still use its model, read the one store and write the other.

What the stores' services answer is believed for a minute; who may use a model is read anew every minute.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any
from uuid import UUID

from libs.chassis.errors import Reject, Retry
from libs.contracts.requests import (
    AuthorizeMemoryStore,
    AuthorizeSessionStore,
    AuthorizeStore,
    StoreAuthorization,
)
from services.distiller.domain import LaneFailure, Pipeline
from services.distiller.llm import Model, Models

BELIEVED_S = 60.0

Ask = Callable[..., Awaitable[Any]]


class Access:
    def __init__(self, ask: Ask, models: Models) -> None:
        self._ask = ask
        self._models = models
        self._allowed: dict[UUID, float] = {}

    def model_of(self, pipeline: Pipeline) -> Model:
        """Raises `LaneFailure` when the settings know it no more."""
        model = self._models.get(pipeline.model)
        if model is None:
            raise LaneFailure(f"unknown model '{pipeline.model}'; known are {', '.join(self._models.names)}")
        return model

    async def check(self, pipeline: Pipeline, *, believed: bool = True) -> None:
        """Raises `LaneFailure` when the creator may not, or a store or the model is gone; `Retry` when nobody can say.

        What is `believed` need not be asked again.
        """
        self.model_of(pipeline)
        if not self._models.may_be_used_by(pipeline.creator, pipeline.model):
            model = pipeline.model or self._models.default
            raise LaneFailure(f"PERMISSION_DENIED: the pipeline's creator may not use the model {model}")
        now = asyncio.get_running_loop().time()
        if believed and self._allowed.get(pipeline.pipeline_uid, 0.0) > now:
            return
        for name, question in _questions(pipeline):
            answer: StoreAuthorization = await self._ask(question, StoreAuthorization)
            if answer.store_uid is None:
                raise LaneFailure(f"NOT_FOUND: {name} of this pipeline was deleted; a new one of that name is another")
            if not answer.allowed:
                raise LaneFailure(f"PERMISSION_DENIED: the pipeline's creator needs {question.permission} on {name}")
        self._allowed = {uid: until for uid, until in self._allowed.items() if until > now}
        self._allowed[pipeline.pipeline_uid] = now + BELIEVED_S

    async def is_gone(self, pipeline: Pipeline, store_uid: UUID) -> bool:
        """Whether a store of the pipeline does not exist, as its owner says now. Raises `Retry` when nobody can say."""
        [question] = [asked for _, asked in _questions(pipeline) if asked.store_uid == store_uid]
        answer: StoreAuthorization = await self._ask(question, StoreAuthorization)
        return answer.store_uid is None

    async def obstacle(self, pipeline: Pipeline) -> str | None:
        """Why a run would fail that starts now, unless nothing is known against it or nobody can say."""
        try:
            await self.check(pipeline, believed=False)
        except LaneFailure as failure:
            return str(failure)
        except (Retry, Reject):
            return None
        return None


def _questions(pipeline: Pipeline) -> tuple[tuple[str, AuthorizeStore], ...]:
    return (
        (
            f"session-stores/{pipeline.session_store_id}",
            AuthorizeSessionStore(
                workspace_id=pipeline.workspace_id,
                principal_type=pipeline.creator_type,
                principal=pipeline.creator,
                permission="READ",
                store_uid=pipeline.session_store_uid,
            ),
        ),
        (
            f"memory-stores/{pipeline.memory_store_id}",
            AuthorizeMemoryStore(
                workspace_id=pipeline.workspace_id,
                principal_type=pipeline.creator_type,
                principal=pipeline.creator,
                permission="WRITE",
                store_uid=pipeline.memory_store_uid,
            ),
        ),
    )
