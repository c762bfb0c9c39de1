"""Runs: the positions known when a run starts, and whether memory has reached them."""

from dataclasses import dataclass
from datetime import datetime
from typing import Literal
from uuid import UUID

import asyncpg

from libs.chassis.database import Database
from libs.chassis.housekeeping import BATCH
from libs.chassis.unit_of_work import Tx
from libs.contracts.requests import ChangedSession
from services.distiller.domain import Pipeline

RunState = Literal["PENDING", "RUNNING", "SUCCEEDED", "FAILED", "CANCELED"]

COLUMNS = "run_id, pipeline_uid, state, error, cursor, create_time, end_time"


@dataclass(frozen=True, slots=True)
class Run:
    run_id: int
    pipeline_uid: UUID
    state: RunState
    error: str | None
    cursor: str | None
    create_time: datetime
    end_time: datetime | None

    @property
    def name(self) -> str:
        return f"memory-pipelines/{self.pipeline_uid}/runs/{self.run_id}"


def _run(row: asyncpg.Record) -> Run:
    return Run(**row)


async def expired(tx: Tx) -> int:
    """Drops the goals of runs 30 days after their end; the runs stay."""
    return await tx.execute(
        "delete from run_lanes where ctid = any(array(select l.ctid from run_lanes l join runs r using (run_id)"
        " where r.end_time < now() - interval '30 days' limit $1))",
        BATCH,
    )


class Runs:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def start(self, tx: Tx, pipeline_uid: UUID) -> Run | None:
        """A pending run, or None while one is active."""
        row = await tx.fetchrow(
            f"insert into runs (pipeline_uid, state) select pipeline_uid, 'PENDING' from pipelines"
            f" where pipeline_uid = $1 for key share on conflict do nothing returning {COLUMNS}",
            pipeline_uid,
        )
        return None if row is None else _run(row)

    async def withdraw(self, tx: Tx, run_id: int) -> None:
        """Takes back a run that a repeated request had just started."""
        await tx.execute("delete from runs where run_id = $1", run_id)

    async def active(self, pipeline_uid: UUID) -> Run | None:
        row = await self._database.fetchrow(
            f"select {COLUMNS} from runs where pipeline_uid = $1 and state in ('PENDING', 'RUNNING')", pipeline_uid
        )
        return None if row is None else _run(row)

    async def all_active(self) -> list[Run]:
        rows = await self._database.fetch(
            f"select {COLUMNS} from runs where state in ('PENDING', 'RUNNING') order by run_id"
        )
        return [_run(row) for row in rows]

    async def get(self, pipeline_uid: UUID, run_id: int, tx: Tx | None = None) -> Run | None:
        row = await (tx or self._database).fetchrow(
            f"select {COLUMNS} from runs where pipeline_uid = $1 and run_id = $2", pipeline_uid, run_id
        )
        return None if row is None else _run(row)

    async def page(self, pipeline_uid: UUID, before: int | None, limit: int) -> list[Run]:
        """The most recently started first."""
        rows = await self._database.fetch(
            f"select {COLUMNS} from runs where pipeline_uid = $1 and ($2::bigint is null or run_id < $2)"
            " order by run_id desc limit $3",
            pipeline_uid,
            before,
            limit,
        )
        return [_run(row) for row in rows]

    async def fix_goals(
        self, tx: Tx, run: Run, pipeline: Pipeline, sessions: list[ChangedSession], cursor: str | None
    ) -> bool:
        """Takes a page of sessions into the run and makes their lanes due; the last page starts it.

        Each lane puts its actor's memory in order when it has distilled. False when another replica took this page.
        """
        moved = await tx.execute(
            "update runs set cursor = $3, state = case when $3::text is null then 'RUNNING' else state end"
            " where run_id = $1 and state = 'PENDING' and cursor is not distinct from $2",
            run.run_id,
            run.cursor,
            cursor,
        )
        if not moved:
            return False
        await tx.execute(
            "with e as (select * from unnest($3::text[], $4::uuid[], $5::text[], $6::bigint[])"
            "   as e (actor_id, session_uid, session_id, goal) order by 1, 2),"
            " r as (insert into run_lanes (run_id, actor_id, session_uid, goal_position)"
            "  select $7, actor_id, session_uid, goal from e on conflict do nothing),"
            " l as (insert into lanes as lane (pipeline_uid, actor_id, workspace_id, due_at, marks, consolidate)"
            "  select distinct on (actor_id) $1, actor_id, $2, now(), 1, true from e order by actor_id"
            "  on conflict (pipeline_uid, actor_id) do update set due_at = now(), marks = lane.marks + 1,"
            "   attempts = 0, parked_at = null, consolidate = true returning actor_id)"
            " insert into lane_sessions as s"
            "  (pipeline_uid, actor_id, session_uid, session_id, known_position, goal_position)"
            "  select $1, e.actor_id, e.session_uid, e.session_id, e.goal, e.goal from e join l using (actor_id)"
            "  on conflict (pipeline_uid, actor_id, session_uid) do update set"
            "   known_position = greatest(s.known_position, excluded.known_position),"
            "   goal_position = greatest(s.goal_position, excluded.goal_position)",
            run.pipeline_uid,
            pipeline.workspace_id,
            [session.actor_id for session in sessions],
            [session.session_uid for session in sessions],
            [session.session_id for session in sessions],
            [session.last_position for session in sessions],
            run.run_id,
        )
        return True

    async def progress(self, run: Run) -> tuple[int, int]:
        """How many actors of a run are still at work, and how many are parked."""
        row = await self._database.fetchrow(
            "select count(*) filter (where not parked) as working, count(*) filter (where parked) as parked from ("
            "  select r.actor_id, bool_or(l.parked_at is not null) as parked from run_lanes r"
            "  join runs on runs.run_id = r.run_id"
            "  left join lanes l on l.pipeline_uid = runs.pipeline_uid and l.actor_id = r.actor_id"
            "  left join lane_sessions s on s.pipeline_uid = runs.pipeline_uid and s.actor_id = r.actor_id"
            "   and s.session_uid = r.session_uid"
            "  where r.run_id = $1 and s.session_uid is not null"
            "   and (s.applied_position < r.goal_position or s.again <> '{}')"
            "  group by r.actor_id) actors",
            run.run_id,
        )
        assert row is not None  # noqa: S101 - an aggregate answers one row
        return row["working"], row["parked"]

    async def waits_for_provider(self, run: Run, longer_than_s: float) -> bool:
        """Whether a lane of the run has waited that long for its model's endpoint."""
        return bool(
            await self._database.fetchval(
                "select exists (select 1 from run_lanes r join lanes l on l.pipeline_uid = $2"
                " and l.actor_id = r.actor_id"
                " where r.run_id = $1 and l.provider_since < now() - make_interval(secs => $3))",
                run.run_id,
                run.pipeline_uid,
                longer_than_s,
            )
        )

    async def reasons(self, run: Run) -> str:
        """Why actors of a run were left, the most frequent reasons first."""
        rows = await self._database.fetch(
            "select l.reason, count(distinct l.actor_id) as actors from run_lanes r join lanes l on l.pipeline_uid = $2"
            " and l.actor_id = r.actor_id where r.run_id = $1 and l.reason is not null"
            " group by l.reason order by actors desc limit 3",
            run.run_id,
            run.pipeline_uid,
        )
        return "; ".join(row["reason"] for row in rows) or "no reason is known"

    async def end(self, tx: Tx, run_id: int, state: RunState, error: str | None) -> bool:
        return (
            await tx.execute(
                "update runs set state = $2, error = $3, end_time = now()"
                " where run_id = $1 and state in ('PENDING', 'RUNNING')",
                run_id,
                state,
                error,
            )
            == 1
        )
