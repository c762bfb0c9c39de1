"""Lanes: one per pipeline and actor. What makes them due, and where each stands.

`marks` counts what came: a commit leaves `due_at` alone when it saw fewer marks than there are now, so that an event
during a distillation is never forgotten.
"""

import asyncio
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal
from uuid import UUID

from libs.chassis.database import Database
from libs.chassis.errors import Contended
from libs.chassis.together import Together
from libs.chassis.unit_of_work import Tx
from libs.contracts.requests import ChangedSession
from services.distiller.store.patience import patience
from services.distiller.store.pipelines import SEEN

LaneState = Literal["settled", "waiting", "due", "running", "unanswered", "waiting_provider", "parked"]

MARKS_AT_ONCE = 200
SEVERAL_MARKS_MS = 250  # all others wait for these
HELD_S = 10.0


@dataclass(frozen=True, slots=True)
class Mark:
    """A session's history reached a position."""

    store_uid: UUID
    session_uid: UUID
    session_id: str
    actor_id: str
    last_position: int
    appended_at: datetime


@dataclass(frozen=True, slots=True)
class Ahead:
    """A session of which more is known, or even distilled, than it holds."""

    actor_id: str
    session_uid: UUID
    session_id: str
    distilled: int
    known: int


@dataclass(frozen=True, slots=True)
class LaneView:
    actor_id: str
    state: LaneState
    behind: int
    attempts: int
    reason: str | None
    due_at: datetime | None


class Lanes:
    def __init__(self, database: Database) -> None:
        self._database = database
        self._marks = Together(self._mark, at_once=MARKS_AT_ONCE, alike=self._held, belong=lambda mark: mark.store_uid)
        self._held_until: dict[UUID, float] = {}

    async def mark_one(self, mark: Mark) -> float | None:
        """The seconds until the first lane is due, of those marked at once. Raises `Contended` where it is held."""
        return await self._marks.ask(mark)

    def _held(self, mark: Mark) -> UUID | None:
        """A store some of whose lanes were held lately is marked by itself: no other waits for whoever holds them."""
        is_held = self._held_until.get(mark.store_uid, 0) > asyncio.get_running_loop().time()
        return mark.store_uid if is_held else None

    async def _mark(self, marks: Sequence[Mark]) -> list[float | None]:
        try:
            _, due_in_s = await self.mark(marks)
        except Contended:
            stores = {mark.store_uid for mark in marks}
            if len(stores) == 1:
                now = asyncio.get_running_loop().time()
                self._held_until = {uid: until for uid, until in self._held_until.items() if until > now}
                self._held_until |= dict.fromkeys(stores, now + HELD_S)
            raise
        return [due_in_s] * len(marks)

    async def mark(self, marks: Sequence[Mark], pipeline_uid: UUID | None = None) -> tuple[int, float | None]:
        """Notes positions for every pipeline of their stores, or for one; makes continuous lanes due.

        Returns how many sessions were news, and the seconds until the first of their lanes is due. Raises `Contended`,
        and then none is noted, where somebody holds a lane.
        """
        row = await self._database.write(
            f"with {patience('$1::uuid[]', several_ms=SEVERAL_MARKS_MS)},"
            " m as (select p.pipeline_uid, p.workspace_id, p.trigger, p.quiet_period_s, p.max_wait_s, e.actor_id,"
            "   e.session_uid, max(e.session_id) as session_id, max(e.last_position) as last_position,"
            "   min(e.appended_at) as appended_at"
            "  from patience, unnest($1::uuid[], $2::uuid[], $3::text[], $4::text[], $5::bigint[], $6::timestamptz[])"
            "   as e (store_uid, session_uid, session_id, actor_id, last_position, appended_at)"
            f"  join pipelines p on p.session_store_uid = e.store_uid and {SEEN}"
            "   and ($7::uuid is null or p.pipeline_uid = $7)"
            "  group by p.pipeline_uid, e.actor_id, e.session_uid),"
            " news as (select m.* from m left join lane_sessions s on s.pipeline_uid = m.pipeline_uid"
            "   and s.actor_id = m.actor_id and s.session_uid = m.session_uid"
            "  where s.known_position is null or s.known_position < m.last_position"
            "  order by m.pipeline_uid, m.actor_id, m.session_uid),"
            " l as (insert into lanes as lane (pipeline_uid, actor_id, workspace_id, due_at, first_due_at, marks)"
            "  select distinct on (pipeline_uid, actor_id) pipeline_uid, actor_id, workspace_id,"
            "   case when trigger = 'CONTINUOUS' then now() + make_interval(secs => quiet_period_s) end,"
            "   case when trigger = 'CONTINUOUS' then now() + make_interval(secs => max_wait_s) end, 1"
            "  from news order by pipeline_uid, actor_id"
            "  on conflict (pipeline_uid, actor_id) do update set marks = lane.marks + 1,"
            "   due_at = case when excluded.due_at is null or lane.attempts > 0 or lane.parked_at is not null"
            "     or lane.provider is not null then lane.due_at"
            "     else least(excluded.due_at, coalesce(lane.first_due_at, excluded.first_due_at)) end,"
            "   first_due_at = coalesce(lane.first_due_at, excluded.first_due_at)"
            "  returning pipeline_uid, actor_id, due_at),"
            " s as (insert into lane_sessions as known"
            "   (pipeline_uid, actor_id, session_uid, session_id, known_position, oldest_appended_at)"
            "  select news.pipeline_uid, news.actor_id, news.session_uid, news.session_id, news.last_position,"
            "   news.appended_at from news join l using (pipeline_uid, actor_id)"
            "  on conflict (pipeline_uid, actor_id, session_uid) do update set"
            "   known_position = greatest(known.known_position, excluded.known_position),"
            "   oldest_appended_at = case when known.known_position > known.distilled_position"
            "    then coalesce(known.oldest_appended_at, excluded.oldest_appended_at)"
            "    else excluded.oldest_appended_at end"
            "  returning 1)"
            " select (select count(*) from s) as news,"
            "  (select extract(epoch from min(due_at) - now())::float8 from l) as due_in_s",
            [mark.store_uid for mark in marks],
            [mark.session_uid for mark in marks],
            [mark.session_id for mark in marks],
            [mark.actor_id for mark in marks],
            [mark.last_position for mark in marks],
            [mark.appended_at for mark in marks],
            pipeline_uid,
        )
        return row[0]["news"], row[0]["due_in_s"]

    async def ahead(self, pipeline_uid: UUID, sessions: Sequence[ChangedSession]) -> list[Ahead]:
        """Those of the sessions of which more is known than they hold."""
        rows = await self._database.fetch(
            "select s.actor_id, s.session_uid, s.session_id, s.distilled_position as distilled,"
            " greatest(s.known_position, s.distilled_position) as known"
            " from unnest($2::text[], $3::uuid[], $4::bigint[]) as e (actor_id, session_uid, last_position)"
            " join lane_sessions s on s.pipeline_uid = $1 and s.actor_id = e.actor_id"
            "  and s.session_uid = e.session_uid"
            " where greatest(s.known_position, s.distilled_position) > e.last_position",
            pipeline_uid,
            [session.actor_id for session in sessions],
            [session.session_uid for session in sessions],
            [session.last_position for session in sessions],
        )
        return [Ahead(**row) for row in rows]

    async def lower(self, pipeline_uid: UUID, ahead: Ahead, last: int) -> None:
        """Forgets positions of a session that it lost before they were distilled, which it will give again.

        So is what was asked of them, and whoever is at work on the lane loses it. A run then has reached its goal when
        it has reached what is left. The positions stay when the session has moved meanwhile.
        """
        await self._database.write(
            f"with {patience('array[$2::text]')},"
            " lane as (update lanes l set marks = l.marks + 1, lease_token = l.lease_token + 1, lease_until = null,"
            "  due_at = case when p.trigger = 'CONTINUOUS'"
            "   or exists (select from lane_sessions s where s.pipeline_uid = $1 and s.actor_id = $2"
            "    and s.session_uid = $3 and s.distilled_position < least(s.goal_position, $5))"
            "   then coalesce(l.due_at, now()) else l.due_at end"
            "  from patience, pipelines p where p.pipeline_uid = $1 and l.pipeline_uid = $1 and l.actor_id = $2"
            "  returning 1),"
            " forgotten as (delete from batches where pipeline_uid = $1 and actor_id = $2"
            "  and state in ('asked', 'answered') and exists (select from lane)),"
            " session as (update lane_sessions s set known_position = $5, goal_position = least(s.goal_position, $5)"
            "  from lane where s.pipeline_uid = $1 and s.actor_id = $2 and s.session_uid = $3"
            "  and s.known_position = $4 and s.distilled_position <= $5 returning 1),"
            " goals as (update run_lanes r set goal_position = $5 from session, runs"
            "  where runs.pipeline_uid = $1 and runs.state in ('PENDING', 'RUNNING') and r.run_id = runs.run_id"
            "  and r.actor_id = $2 and r.session_uid = $3 and r.goal_position > $5)"
            " select 1 from session",
            pipeline_uid,
            ahead.actor_id,
            ahead.session_uid,
            ahead.known,
            last,
        )

    async def ask_again(
        self, tx: Tx, pipeline_uid: UUID, actor_id: str, lines: Collection[tuple[UUID, int]], limit: int | None
    ) -> dict[UUID, set[int]]:
        """Has lines distilled once more, unless that was done `limit` times: then those are counted anew.

        `limit` None: whatever was done before. Returns what is to be asked again now of each session that is known.
        """
        is_known = await tx.execute(
            "update lanes set marks = marks + 1,"
            " due_at = case when parked_at is null and attempts = 0 and provider is null then now() else due_at end"
            " where pipeline_uid = $1 and actor_id = $2",
            pipeline_uid,
            actor_id,
        )
        if not is_known:
            return {}
        # Not in the same statement: what it waited for is seen only by the next.
        rows = await tx.fetch(
            "with line as (select s.session_uid, e.position, $5::int is null or count(n) < $5 as is_asked,"
            "   $5::int is null or count(n) >= $5 as is_anew"
            "  from lane_sessions s join unnest($3::uuid[], $4::bigint[]) as e (session_uid, position)"
            "   using (session_uid) left join lateral unnest(s.asked_again) n on n = e.position"
            "  where s.pipeline_uid = $1 and s.actor_id = $2 group by s.session_uid, e.position)"
            " update lane_sessions s set again = array(select n from unnest(s.again) n"
            "   union select position from line where line.session_uid = s.session_uid and is_asked order by 1),"
            "  asked_again = array(select n from unnest(s.asked_again) n where n <> all("
            "    select position from line where line.session_uid = s.session_uid and is_anew)"
            "   union all select position from line where line.session_uid = s.session_uid and is_asked)"
            " where s.pipeline_uid = $1 and s.actor_id = $2 and s.session_uid = any($3::uuid[])"
            " returning s.session_uid, s.again",
            pipeline_uid,
            actor_id,
            [session_uid for session_uid, _ in lines],
            [position for _, position in lines],
            limit,
        )
        return {row["session_uid"]: set(row["again"]) for row in rows}

    async def hasten(self, pipeline_uid: UUID, actor_id: str, session_id: str) -> str | None:
        """Makes an actor's lane due at once for a session; `due`, `parked`, or None when it is unknown or settled."""
        rows = await self._database.write(
            f"with {patience('array[$2::text]')}"
            " update lanes l set"
            " due_at = case when l.parked_at is null and l.attempts = 0 then now() else l.due_at end,"
            " marks = l.marks + 1 from patience, lane_sessions s"
            " where l.pipeline_uid = $1 and l.actor_id = $2 and s.pipeline_uid = $1 and s.actor_id = $2"
            " and s.session_id = $3 and (s.known_position > s.distilled_position or l.pending_batch is not null)"
            " returning case when l.parked_at is null then 'due' else 'parked' end as reason",
            pipeline_uid,
            actor_id,
            session_id,
        )
        return rows[0]["reason"] if rows else None

    async def redrive(self, pipeline_uid: UUID, actor_id: str | None = None) -> int:
        """Lanes that failed or wait, one actor's or all, are due at once with fresh attempts. Returns how many.

        Those of the pipeline's replays too.
        """
        rows = await self._database.write(
            "update lanes set due_at = now(), attempts = 0, parked_at = null, provider = null, marks = marks + 1"
            " where (pipeline_uid = $1 or pipeline_uid in (select pipeline_uid from pipelines where parent_uid = $1))"
            " and ($2::text is null or actor_id = $2) and reason is not null returning 1",
            pipeline_uid,
            actor_id,
        )
        return len(rows)

    async def make_due(self, tx: Tx, pipeline_uid: UUID) -> None:
        """The pipeline became continuous: what it already knows of is due."""
        await tx.execute(
            "update lanes l set due_at = now(), marks = marks + 1 where pipeline_uid = $1 and exists ("
            " select 1 from lane_sessions s where s.pipeline_uid = l.pipeline_uid and s.actor_id = l.actor_id"
            " and s.known_position > s.distilled_position)",
            pipeline_uid,
        )

    async def make_lost_due(self, pipeline_uid: UUID) -> int:
        """The lanes of a continuous pipeline that are behind and wait for nothing are due. Returns how many.

        A mark and the change of a trigger do not see each other while both are under way: neither then makes it due.
        Raises `Contended` where somebody holds a lane.
        """
        rows = await self._database.write(
            f"with {patience('array[$1::uuid]')},"
            " lost as (select l.actor_id from patience, pipelines p join lanes l using (pipeline_uid)"
            "  where p.pipeline_uid = $1 and p.trigger = 'CONTINUOUS' and l.due_at is null and l.pending_batch is null"
            "  and l.lease_until is null and l.held_by is null and exists (select from lane_sessions s"
            "   where s.pipeline_uid = $1 and s.actor_id = l.actor_id"
            "   and (s.known_position > s.distilled_position or s.again <> '{}'))"
            "  order by l.actor_id for no key update of l)"
            " update lanes l set due_at = now() from lost"
            " where l.pipeline_uid = $1 and l.actor_id = lost.actor_id returning 1",
            pipeline_uid,
        )
        return len(rows)

    async def wake_provider(self, provider: str) -> None:
        """The endpoint answers again: all its lanes go on, and the other replicas can know of it."""
        await self._database.write(
            "insert into recoveries (provider, recovered_at) values ($1, now())"
            " on conflict (provider) do update set recovered_at = excluded.recovered_at",
            provider,
        )
        await self.wake(provider)

    async def wake(self, provider: str) -> None:
        """The lanes that wait for an endpoint go on, one pipeline's after the other's.

        Where somebody holds some of a pipeline's, all of that go on when their own time comes.
        """
        for row in await self._database.fetch(
            "select distinct pipeline_uid from lanes where provider = $1 order by pipeline_uid", provider
        ):
            with suppress(Contended):
                await self._database.write(
                    f"with {patience('array[$2::text]')},"
                    " held as (select actor_id from patience, lanes where pipeline_uid = $1 and provider = $2"
                    "  order by actor_id for no key update of lanes)"
                    " update lanes l set due_at = now(), provider = null, marks = l.marks + 1 from held"
                    " where l.pipeline_uid = $1 and l.actor_id = held.actor_id",
                    row["pipeline_uid"],
                    provider,
                )

    async def has_recovered(self, provider: str, within_s: float) -> bool:
        """Whether the endpoint has answered a replica again, in the last so many seconds."""
        return bool(
            await self._database.fetchval(
                "select exists (select from recoveries"
                " where provider = $1 and recovered_at > now() - make_interval(secs => $2))",
                provider,
                within_s,
            )
        )

    async def page(
        self, pipeline_uid: UUID, state: str | None, actor_id: str | None, after: str | None, limit: int
    ) -> list[LaneView]:
        """By actor."""
        rows = await self._database.fetch(
            "select * from (select l.actor_id, l.attempts, l.reason, l.due_at,"
            " case when l.parked_at is not null then 'parked' when l.provider is not null then 'waiting_provider'"
            "  when l.pending_batch is not null then 'unanswered'"
            "  when l.lease_until > now() then 'running' when l.due_at is not null then 'due'"
            "  when b.behind > 0 then 'waiting' else 'settled' end as state, b.behind"
            " from lanes l cross join lateral (select coalesce(sum(s.known_position - s.distilled_position), 0)::bigint"
            "  as behind from lane_sessions s where s.pipeline_uid = l.pipeline_uid and s.actor_id = l.actor_id"
            "  and s.known_position > s.distilled_position) b"
            " where l.pipeline_uid = $1 and ($2::text is null or l.actor_id = $2) and l.actor_id > $3) lane"
            " where $4::text is null or state = $4 order by actor_id limit $5",
            pipeline_uid,
            actor_id,
            after or "",
            state,
            limit,
        )
        return [LaneView(**row) for row in rows]

    async def erased_epoch(self, store_uid: UUID, actor_id: str) -> int:
        """Of an actor's last erasure in a store, as far as it was announced; 0 without one."""
        epoch = await self._database.fetchval(
            "select epoch from erased_actors where store_uid = $1 and actor_id = $2", store_uid, actor_id
        )
        return int(epoch or 0)

    async def oldest_undistilled_s(self) -> float:
        """Age of the oldest append that waits in a lane of a continuous pipeline."""
        age: Any = await self._database.fetchval(
            "select extract(epoch from now() - min(s.oldest_appended_at))::float8 from lane_sessions s"
            " join pipelines p using (pipeline_uid)"
            " where s.known_position > s.distilled_position and p.trigger = 'CONTINUOUS'"
        )
        return float(age or 0)
