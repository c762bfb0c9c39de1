"""Who works on which lane: a lane is leased by one worker at a time, and fenced by a counter.

A lane is due while `due_at` has come, nothing of it is unanswered (`pending_batch`) and nobody holds its lease.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any
from uuid import UUID

from libs.chassis.database import Database
from libs.chassis.errors import Contended
from libs.chassis.together import Together
from services.distiller.domain import Behind, Lease, Pipeline
from services.distiller.store.patience import patience
from services.distiller.store.pipelines import COLUMNS

READ_AT_ONCE = 200
# The lanes of all others wait for whoever takes some: long enough for another replica's taking, not for a deletion.
SEVERAL_DUE_MS = 50
ONE_DUE_MS = 1

PIPELINE_COLUMNS = ", ".join(f"p.{column.strip()}" for column in COLUMNS.split(","))
READY = "due_at is not null and pending_batch is null and held_by is null"
FREE = "(lease_until is null or lease_until < now())"
BEHIND = (
    "(s.again <> '{}' or s.distilled_position < case when p.trigger = 'CONTINUOUS' then s.known_position"
    " else least(s.goal_position, s.known_position) end)"
)


class Leases:
    def __init__(self, database: Database) -> None:
        self._database = database
        self._readings = Together(self._behind, at_once=READ_AT_ONCE, alike=lambda each: each[0].pipeline_uid)

    async def due(self, per_workspace: int, limit: int, full: Collection[int]) -> list[tuple[UUID, str, int, int]]:
        """Due lanes as (pipeline, actor, workspace, token): one of each workspace, then another; the longest due first.

        `full` are workspaces that have all the lanes at work that they may have.
        """
        rows = await self._database.fetch(
            "with recursive w as ("
            f" (select workspace_id from lanes where {READY} order by workspace_id limit 1)"
            f" union all select (select l.workspace_id from lanes l where {READY} and l.workspace_id > w.workspace_id"
            "   order by l.workspace_id limit 1) from w where w.workspace_id is not null)"
            " select l.pipeline_uid, l.actor_id, l.workspace_id, l.lease_token from w cross join lateral ("
            "  select *, row_number() over (order by due_at) as turn from ("
            "   select pipeline_uid, actor_id, workspace_id, lease_token, due_at from lanes"
            f"   where workspace_id = w.workspace_id and {READY} and due_at <= now() and {FREE}"
            "   order by due_at limit $1) due) l"
            " where w.workspace_id <> all($3::bigint[]) order by l.turn, random() limit $2",
            per_workspace,
            limit,
            list(full),
        )
        return [(row["pipeline_uid"], row["actor_id"], row["workspace_id"], row["lease_token"]) for row in rows]

    async def next_due_s(self, full: Collection[int] = ()) -> float | None:
        """Seconds until the next lane is due, 0 or less when one is; `full` as for `due`."""
        seconds = await self._database.fetchval(
            "with recursive w as ("
            f" (select workspace_id, due_at from lanes where {READY} and {FREE} order by workspace_id, due_at limit 1)"
            " union all select n.workspace_id, n.due_at from w cross join lateral ("
            f"  select workspace_id, due_at from lanes where {READY} and {FREE} and workspace_id > w.workspace_id"
            "   order by workspace_id, due_at limit 1) n)"
            " select extract(epoch from min(due_at) - now())::float8 from w where workspace_id <> all($1::bigint[])",
            list(full),
        )
        return None if seconds is None else float(seconds)

    async def take(self, pipeline_uid: UUID, tokens: Mapping[str, int], lease_s: float) -> list[Lease]:
        """Takes those of a pipeline's due lanes to which nobody was faster, with the pipeline as it is now.

        `tokens` are the lanes' as they were seen, by actor. A lane that somebody holds is left to the next look.
        """
        try:
            return await self._take(pipeline_uid, tokens, lease_s)
        except Contended:
            if len(tokens) == 1:
                return []
            alone = [await self.take(pipeline_uid, {actor_id: tokens[actor_id]}, lease_s) for actor_id in tokens]
            return [lease for taken in alone for lease in taken]

    async def _take(self, pipeline_uid: UUID, tokens: Mapping[str, int], lease_s: float) -> list[Lease]:
        rows = await self._database.write(
            f"with {patience('$2::text[]', several_ms=SEVERAL_DUE_MS, one_ms=ONE_DUE_MS)},"
            " held as (select l.actor_id from patience, unnest($2::text[], $3::bigint[]) as due (actor_id, token)"
            "  join lanes l on l.pipeline_uid = $1 and l.actor_id = due.actor_id"
            f"  where l.lease_token = due.token and {READY} and {FREE} order by l.actor_id for no key update of l)"
            " update lanes l set lease_token = lease_token + 1, lease_until = now() + make_interval(secs => $4),"
            "  first_due_at = null"  # what is said meanwhile waits anew
            " from held, pipelines p where p.pipeline_uid = $1"
            " and l.pipeline_uid = $1 and l.actor_id = held.actor_id"
            " returning l.actor_id, l.lease_token, l.marks, l.attempts, l.max_lines, (select run_id from runs"
            f"  where runs.pipeline_uid = $1 and state in ('PENDING', 'RUNNING')) as run_id, l.consolidate,"
            f" {PIPELINE_COLUMNS}",
            pipeline_uid,
            list(tokens),
            list(tokens.values()),
            lease_s,
        )
        return [_lease(*row.values()) for row in rows]

    async def renew(self, lease: Lease, lease_s: float) -> bool:
        """Keeps a lease while its worker lives; False when it was lost."""
        rows = await self._database.write(
            "update lanes set lease_until = now() + make_interval(secs => $4)"
            " where pipeline_uid = $1 and actor_id = $2 and lease_token = $3 and lease_until is not null returning 1",
            lease.pipeline_uid,
            lease.actor_id,
            lease.token,
            lease_s,
        )
        return bool(rows)

    async def behind(self, lease: Lease, limit: int) -> list[Behind]:
        """The lane's sessions with something to distil, the longest waiting first."""
        return await self._readings.ask((lease, limit))

    async def _behind(self, lanes: Sequence[tuple[Lease, int]]) -> list[list[Behind]]:
        rows = await self._database.fetch(
            "select lane.number, s.* from pipelines p"
            " cross join unnest($2::text[], $3::int[]) with ordinality lane (actor_id, most, number)"
            " cross join lateral (select s.session_uid, s.session_id, s.distilled_position as after,"
            "  case when p.trigger = 'CONTINUOUS' then s.known_position"
            "   else greatest(s.distilled_position, least(s.goal_position, s.known_position)) end as wanted,"
            "  s.oldest_appended_at, s.again from lane_sessions s"
            f" where s.pipeline_uid = $1 and s.actor_id = lane.actor_id and {BEHIND}"
            "  order by s.oldest_appended_at nulls first, s.session_uid limit lane.most) s where p.pipeline_uid = $1",
            lanes[0][0].pipeline_uid,
            [lease.actor_id for lease, _ in lanes],
            [limit for _, limit in lanes],
        )
        found: list[list[Behind]] = [[] for _ in lanes]
        for row in rows:
            found[row["number"] - 1].append(
                Behind(
                    session_uid=row["session_uid"],
                    session_id=row["session_id"],
                    after=row["after"],
                    wanted=row["wanted"],
                    oldest_appended_at=row["oldest_appended_at"],
                    again=tuple(row["again"]),
                )
            )
        return found

    async def release(self, lease: Lease) -> None:
        """Ends a lease that found nothing to do."""
        await self._database.write(
            "update lanes set lease_until = null, due_at = case when marks = $4 then null else due_at end,"
            " first_due_at = case when marks = $4 then null else first_due_at end,"
            " attempts = 0, reason = null, parked_at = null, provider = null, provider_since = null"
            " where pipeline_uid = $1 and actor_id = $2 and lease_token = $3",
            lease.pipeline_uid,
            lease.actor_id,
            lease.token,
            lease.marks,
        )

    async def put_off(
        self,
        lease: Lease,
        pause_s: float,
        *,
        reason: str | None = None,
        attempts: int | None = None,
        parked: bool = False,
        provider: str | None = None,
        max_lines: int | None = None,
    ) -> None:
        """Ends a lease without a result: the lane comes again after a pause, with what is known of why."""
        await self._database.write(
            "update lanes set lease_until = null, due_at = now() + make_interval(secs => $4), reason = $5,"
            " attempts = coalesce($6, attempts), parked_at = case when $7 then coalesce(parked_at, now()) end,"
            " provider = $8, provider_since = case when $8::text is not null then coalesce(provider_since, now()) end,"
            " max_lines = coalesce($9, max_lines)"
            " where pipeline_uid = $1 and actor_id = $2 and lease_token = $3",
            lease.pipeline_uid,
            lease.actor_id,
            lease.token,
            pause_s,
            reason,
            attempts,
            parked,
            provider,
            max_lines,
        )

    async def put_off_to_the_next_day(self, lease: Lease, reason: str) -> None:
        """Ends a lease whose tokens of the day are spent: midnight is the database's, as is the day that was booked.

        The day may have ended since the budget was looked at, by whatever clock: then a minute is enough.
        """
        await self._database.write(
            "update lanes set lease_until = null, reason = $4, parked_at = null, provider = null,"
            " provider_since = null, due_at = greatest(now() + interval '1 minute',"
            "  (date_trunc('day', (now() - interval '1 minute') at time zone 'UTC') + interval '1 day')"
            "   at time zone 'UTC')"
            " where pipeline_uid = $1 and actor_id = $2 and lease_token = $3",
            lease.pipeline_uid,
            lease.actor_id,
            lease.token,
            reason,
        )


def _lease(
    actor_id: str,
    token: int,
    marks: int,
    attempts: int,
    max_lines: int | None,
    run_id: int | None,
    consolidate: bool,
    *pipeline: Any,
) -> Lease:
    return Lease(Pipeline(*pipeline), actor_id, token, marks, attempts, max_lines, run_id, consolidate)
