"""Pipelines: which session store feeds which memory store, how, and in whose name."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

import asyncpg

from libs.chassis.database import Database
from libs.chassis.unit_of_work import Tx
from services.distiller.domain import Pipeline

COLUMNS = (
    "pipeline_uid, workspace_id, display_name, session_store_uid, session_store_id, memory_store_uid, memory_store_id,"
    " model, instructions, trigger, quiet_period_s, max_wait_s, daily_token_budget, revision, creator_type, creator,"
    " create_time, update_time, parent_uid, resumes_as"
)
# A replay's own pipeline is nobody's to see.
SEEN = "parent_uid is null"
CHANGEABLE = ("display_name", "model", "instructions", "trigger", "quiet_period_s", "max_wait_s", "daily_token_budget")


def pipeline_of(row: asyncpg.Record) -> Pipeline:
    return Pipeline(**row)


@dataclass(frozen=True, slots=True)
class Sweep:
    """A claimed sweep of a pipeline's session store: everything since `since`, or everything."""

    pipeline: Pipeline
    started: datetime
    since: datetime | None


class Pipelines:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def create(self, tx: Tx, pipeline: Pipeline) -> Pipeline | None:
        """The new pipeline, or None when the pair of stores has one."""
        row = await tx.fetchrow(
            "insert into pipelines (pipeline_uid, workspace_id, display_name, session_store_uid, session_store_id,"
            " memory_store_uid, memory_store_id, model, instructions, trigger, quiet_period_s, max_wait_s,"
            " daily_token_budget, creator_type, creator)"
            " values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15)"
            f" on conflict (session_store_uid, memory_store_uid) do nothing returning {COLUMNS}",
            pipeline.pipeline_uid,
            pipeline.workspace_id,
            pipeline.display_name,
            pipeline.session_store_uid,
            pipeline.session_store_id,
            pipeline.memory_store_uid,
            pipeline.memory_store_id,
            pipeline.model,
            pipeline.instructions,
            pipeline.trigger,
            pipeline.quiet_period_s,
            pipeline.max_wait_s,
            pipeline.daily_token_budget,
            pipeline.creator_type,
            pipeline.creator,
        )
        return None if row is None else pipeline_of(row)

    async def of_pair(self, session_store_uid: UUID, memory_store_uid: UUID) -> Pipeline | None:
        row = await self._database.fetchrow(
            f"select {COLUMNS} from pipelines where session_store_uid = $1 and memory_store_uid = $2",
            session_store_uid,
            memory_store_uid,
        )
        return None if row is None else pipeline_of(row)

    async def get(self, workspace_id: int, pipeline_uid: UUID, tx: Tx | None = None) -> Pipeline | None:
        row = await (tx or self._database).fetchrow(
            f"select {COLUMNS} from pipelines where workspace_id = $1 and pipeline_uid = $2 and {SEEN}",
            workspace_id,
            pipeline_uid,
        )
        return None if row is None else pipeline_of(row)

    async def of_run(self, pipeline_uid: UUID) -> Pipeline | None:
        """Of a run or a replay, whose own pipeline is found too."""
        row = await self._database.fetchrow(f"select {COLUMNS} from pipelines where pipeline_uid = $1", pipeline_uid)
        return None if row is None else pipeline_of(row)

    async def page(self, workspace_id: int, after: UUID | None, limit: int) -> list[Pipeline]:
        """Oldest first."""
        rows = await self._database.fetch(
            f"select {COLUMNS} from pipelines where workspace_id = $1 and ($2::uuid is null or pipeline_uid > $2)"
            f" and {SEEN} order by pipeline_uid limit $3",
            workspace_id,
            after,
            limit,
        )
        return [pipeline_of(row) for row in rows]

    async def update(self, tx: Tx, pipeline_uid: UUID, revision: int, changes: Mapping[str, Any]) -> Pipeline | None:
        """Sets the named columns, and notes what a pause ends; None when the revision is not the current one."""
        names = [name for name in CHANGEABLE if name in changes]
        sets = "".join(f"{name} = ${position}, " for position, name in enumerate(names, start=3))
        row = await tx.fetchrow(
            f"update pipelines set {sets}revision = revision + 1, update_time = now(),"
            " resumes_as = case when trigger = 'MANUAL_ONLY' then resumes_as else trigger end"
            f" where pipeline_uid = $1 and revision = $2 returning {COLUMNS}",
            pipeline_uid,
            revision,
            *(changes[name] for name in names),
        )
        return None if row is None else pipeline_of(row)

    async def delete(self, tx: Tx, pipeline_uid: UUID) -> bool:
        return await tx.execute("delete from pipelines where pipeline_uid = $1", pipeline_uid) == 1

    async def feeding(self, workspace_id: int, memory_store_uid: UUID, session_store_id: str) -> list[Pipeline]:
        rows = await self._database.fetch(
            f"select {COLUMNS} from pipelines"
            " where workspace_id = $1 and memory_store_uid = $2 and session_store_id = $3",
            workspace_id,
            memory_store_uid,
            session_store_id,
        )
        return [pipeline_of(row) for row in rows]

    async def set_next_run(self, tx: Tx, pipeline_uid: UUID, pause_s: float | None) -> None:
        """When a scheduled pipeline runs next; None for one that is not scheduled."""
        await tx.execute(
            "update pipelines set next_run_at = now() + make_interval(secs => $2) where pipeline_uid = $1",
            pipeline_uid,
            pause_s,
        )

    async def claim_scheduled(self, tx: Tx, pause_s: float) -> list[UUID]:
        """The pipelines whose hour has come, each to one replica."""
        rows = await tx.fetch(
            "update pipelines set next_run_at = now() + make_interval(secs => $1)"
            " where trigger = 'SCHEDULED' and next_run_at <= now() returning pipeline_uid",
            pause_s,
        )
        return [row["pipeline_uid"] for row in rows]

    async def claim_sweep(self, interval_s: float, overlap_s: float, full_interval_s: float) -> Sweep | None:
        """The pipeline that waits longest for its sweep, if any is due; each sweep goes to one replica."""
        row = await self._database.fetchrow(
            "select pipeline_uid, sweep_started_at from pipelines"
            f" where {SEEN} and (sweep_started_at is null or sweep_started_at < now() - make_interval(secs => $1))"
            " order by sweep_started_at nulls first limit 1",
            interval_s,
        )
        if row is None:
            return None
        claimed = await self._database.write(
            "update pipelines set sweep_started_at = now()"
            " where pipeline_uid = $1 and sweep_started_at is not distinct from $2"
            " returning now() as started, (case when full_sweep_at < now() - make_interval(secs => $4) then null"
            f" else swept_at - make_interval(secs => $3) end) as since, {COLUMNS}",
            row["pipeline_uid"],
            row["sweep_started_at"],
            overlap_s,
            full_interval_s,
        )
        if not claimed:
            return None
        fields = dict(claimed[0])
        started, since = fields.pop("started"), fields.pop("since")
        return Sweep(Pipeline(**fields), started, since)

    async def end_sweep(self, sweep: Sweep) -> None:
        """Only now is it known that everything up to its start was seen: a sweep that died is done again."""
        await self._database.write(
            "update pipelines set swept_at = greatest(swept_at, $2),"
            " full_sweep_at = case when $3 then $2 else full_sweep_at end where pipeline_uid = $1",
            sweep.pipeline.pipeline_uid,
            sweep.started,
            sweep.since is None,
        )

    async def put_off_sweep(self, sweep: Sweep, interval_s: float, pause_s: float) -> None:
        """The sweep failed: it comes again after a pause."""
        await self._database.write(
            "update pipelines set sweep_started_at = now() - make_interval(secs => $2) where pipeline_uid = $1",
            sweep.pipeline.pipeline_uid,
            max(0.0, interval_s - pause_s),
        )
