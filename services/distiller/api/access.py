"""Which pipelines a caller may see and manage."""

from uuid import UUID

from libs.chassis.auth import Caller
from libs.chassis.errors import NotFound, PermissionDenied
from services.distiller.api.authorization import Authorization
from services.distiller.domain import Pipeline
from services.distiller.store import Pipelines


class PipelineAccess:
    """Seen by whoever may READ both stores, managed by its creator or an admin. Others' workspaces do not exist."""

    def __init__(self, pipelines: Pipelines, authorization: Authorization) -> None:
        self._pipelines = pipelines
        self._authorization = authorization

    async def is_visible(self, pipeline: Pipeline, caller: Caller) -> bool:
        if caller.admin or _is_creator(pipeline, caller):
            return True
        source = await self._authorization.session_store(caller, "READ", store_uid=pipeline.session_store_uid)
        if not source.allowed:
            return False
        target = await self._authorization.memory_store(caller, "READ", store_uid=pipeline.memory_store_uid)
        return target.allowed

    async def seen(self, pipeline_id: str, caller: Caller) -> Pipeline:
        pipeline = await self._find(pipeline_id, caller)
        if not await self.is_visible(pipeline, caller):
            raise PermissionDenied("You need READ on both stores of this pipeline to see it.")
        return pipeline

    async def managed(self, pipeline_id: str, caller: Caller) -> Pipeline:
        pipeline = await self._find(pipeline_id, caller)
        if not caller.admin and not _is_creator(pipeline, caller):
            raise PermissionDenied("Only the creator of this pipeline or an admin may do this.")
        return pipeline

    async def _find(self, pipeline_id: str, caller: Caller) -> Pipeline:
        try:
            uid = UUID(pipeline_id)
        except ValueError:
            raise missing(pipeline_id) from None
        pipeline = await self._pipelines.get(caller.workspace_id, uid)
        if pipeline is None:
            raise missing(pipeline_id)
        return pipeline


def missing(pipeline_id: str) -> NotFound:
    return NotFound(f"Pipeline '{pipeline_id[:60]}' does not exist.")


def _is_creator(pipeline: Pipeline, caller: Caller) -> bool:
    return (pipeline.creator_type, pipeline.creator) == (caller.principal_type, caller.principal)
