"""Batches: what was sent, and whether memory has it.

emitted → settled. What memory has not answered is sent again under the same `batch_id`.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from libs.chassis.database import Database
from libs.chassis.housekeeping import BATCH
from libs.chassis.outbox import OutboxRow
from libs.chassis.together import Together
from libs.chassis.unit_of_work import Tx
from libs.contracts.events import MemoriesDistilled, Range
from services.distiller.domain import Lease
from services.distiller.store.answers import WANTED
from services.distiller.store.patience import patience

AT_ONCE = 100
UNDER_WAY = 2
ANSWERS_PAUSE_S = 0.05

# Of any number of lanes of a pipeline, each by its own lease, taken in the order in which `mark` takes them. Of the
# lines to be asked again only those go that were taken, for a repair may have added some meanwhile; how often one was
# asked is forgotten once it was answered without a conflict. Where lines were too many for an answer, every full batch
# may have an eighth more, up to the setting: twice as many would be cut again at once.
EMIT = """
with e as (
    select * from unnest($2::text[], $3::bigint[], $4::bigint[], $5::boolean[], $6::uuid[], $7::uuid[], $8::text[],
        $9::jsonb[], $10::uuid[])
        as e (actor_id, token, marks, more, batch_id, store_uid, event, ranges, message_id)),
held as (
    select e.* from e join lanes l on l.pipeline_uid = $1 and l.actor_id = e.actor_id
    where l.lease_token = e.token and l.lease_until is not null order by l.actor_id for no key update of l),
lane as (
    update lanes l set lease_until = null, pending_batch = e.batch_id, attempts = 0, reason = null, parked_at = null,
        provider = null, provider_since = null,
        max_lines = case when e.more and e.ranges <> '[]'
            then nullif(least(l.max_lines + greatest(1, l.max_lines / 8), $16), $16) else l.max_lines end,
        due_at = case when e.more or l.consolidate then now() when l.marks = e.marks then null else l.due_at end,
        first_due_at = case when e.more or l.marks = e.marks then null else l.first_due_at end
    from held e where l.pipeline_uid = $1 and l.actor_id = e.actor_id returning e.*),
watermarks as (
    update lane_sessions s set distilled_position = greatest(s.distilled_position, r.through),
        known_position = greatest(s.known_position, r.through),
        oldest_appended_at = case when s.known_position <= r.through then null else s.oldest_appended_at end,
        again = array(select n from unnest(s.again) n where n <> all(string_to_array(r.taken, ',')::bigint[])),
        asked_again = array(select n from unnest(s.asked_again) n where n = any(s.again))
    from lane join unnest($11::uuid[], $12::uuid[], $13::bigint[], $14::text[])
        as r (batch_id, session_uid, through, taken) using (batch_id)
    where s.pipeline_uid = $1 and s.actor_id = lane.actor_id and s.session_uid = r.session_uid),
batch as (
    insert into batches (batch_id, pipeline_uid, actor_id, memory_store_uid, state, lease_token, event, ranges,
        emitted_at)
    select batch_id, $1, actor_id, store_uid, 'emitted', token, event, ranges, now() from lane
    on conflict (batch_id) do update set state = 'emitted', event = excluded.event, ranges = excluded.ranges,
        emitted_at = now(), question = null, answer = null),
told as (insert into outbox (message_id, subject, payload) select message_id, $15, event from lane)
select batch_id from lane
"""

# The lanes before their batches and sessions, as everywhere: `batch` counts `held`, and `applied` reads `lane`, so that
# each comes after it. A batch without ranges is a consolidation, which is no reason for another one. What a replay
# gathers is put in order where it is swapped to, and only a continuous pipeline goes on by itself: the others
# consolidate in their next run.
SETTLE = f"""
with {patience("$1::uuid[]")},
a as (select a.* from patience, unnest($1::uuid[], $2::text[], $3::int[]) as a (batch_id, outcomes, changed)),
held as (
    select l.pipeline_uid, l.actor_id, b.batch_id from a join batches b on b.batch_id = a.batch_id
        join lanes l on l.pipeline_uid = b.pipeline_uid and l.actor_id = b.actor_id
    where b.memory_store_uid = $5 and b.state = 'emitted' and l.pending_batch = b.batch_id
    order by l.pipeline_uid, l.actor_id for no key update of l),
batch as (
    update batches b set state = 'settled', settled_at = now(), outcomes = a.outcomes
    from a where b.batch_id = a.batch_id and b.memory_store_uid = $5 and b.state = 'emitted'
        and (select count(*) from held) >= 0
    returning b.batch_id, b.pipeline_uid, b.actor_id, b.ranges, a.changed),
change as (
    select b.batch_id, b.pipeline_uid, b.actor_id, p.trigger = 'CONTINUOUS' as goes_on,
        case when b.ranges = '[]' or p.parent_uid is not null then 0 else b.changed end as count
    from held join batch b using (batch_id) join pipelines p on p.pipeline_uid = b.pipeline_uid),
lane as (
    update lanes l set pending_batch = null, changed = l.changed + c.count,
        consolidate = l.consolidate or l.changed + c.count >= $4,
        due_at = case when c.goes_on and l.changed + c.count >= $4 then coalesce(l.due_at, now()) else l.due_at end
    from change c where l.pipeline_uid = c.pipeline_uid and l.actor_id = c.actor_id
    returning c.batch_id, l.due_at),
applied as (
    update lane_sessions s set applied_position = greatest(s.applied_position, r.through)
    from batch b left join lane using (batch_id),
        jsonb_to_recordset(b.ranges) as r (session_uid uuid, through bigint)
    where s.pipeline_uid = b.pipeline_uid and s.actor_id = b.actor_id and s.session_uid = r.session_uid)
select batch_id, pipeline_uid, actor_id, lane.due_at is not null as is_due from batch left join lane using (batch_id)
"""


# Of lanes as `freed` whose batch is gone: a run does not wait for what no batch will bring any more.
NOTHING_WAITS = """
update lane_sessions s set applied_position = greatest(s.applied_position, s.distilled_position)
from freed where s.pipeline_uid = freed.pipeline_uid and s.actor_id = freed.actor_id"""

REWIND = """
with lane as (
    update lanes l set pending_batch = $6, lease_token = lease_token + 1, lease_until = null, due_at = now(),
        marks = marks + 1
    where l.pipeline_uid = $1 and l.actor_id = $2 and l.pending_batch is null and l.held_by is null
        and exists (select 1 from lane_sessions s where s.pipeline_uid = $1 and s.actor_id = $2
            and s.session_uid = $3 and s.distilled_position = $4)
    returning 1),
watermark as (
    update lane_sessions s set distilled_position = 0, applied_position = 0, known_position = $5, again = '{}',
        asked_again = '{}',
        goal_position = least(s.goal_position, $5)
    from lane where s.pipeline_uid = $1 and s.actor_id = $2 and s.session_uid = $3),
goals as (
    update run_lanes r set goal_position = least(r.goal_position, $5) from lane, runs
    where runs.pipeline_uid = $1 and runs.state in ('PENDING', 'RUNNING') and r.run_id = runs.run_id
        and r.actor_id = $2 and r.session_uid = $3),
forgotten as (
    delete from batches where pipeline_uid = $1 and actor_id = $2 and state in ('asked', 'answered')
        and exists (select from lane)),
batch as (
    insert into batches (batch_id, pipeline_uid, actor_id, memory_store_uid, state, lease_token, event, ranges,
        emitted_at)
    select $6, $1, $2, $7, 'emitted', 0, $8, $9, now() from lane),
told as (insert into outbox (message_id, subject, payload) select $10, $11, $8 from lane)
select 1 from lane
"""


@dataclass(frozen=True, slots=True)
class Settled:
    """A batch or a swap that memory has answered, as it was sent; and the answer to a batch."""

    batch_id: UUID
    memory_store_uid: UUID
    settled_at: datetime
    event: str
    outcomes: str | None


@dataclass(frozen=True, slots=True)
class _Emission:
    lease: Lease
    event: MemoriesDistilled
    row: OutboxRow
    more: bool
    again_taken: dict[UUID, list[int]]


@dataclass(frozen=True, slots=True)
class _Answer:
    store_uid: UUID
    batch_id: UUID
    outcomes: str
    changed: int


async def expired(tx: Tx) -> int:
    """Drops settled batches after 7 days, those of a swap after the swap, and unanswered questions after one day.

    What a replay gathers stays while it runs, for its swap to be kept with; and a paid answer while its lane could use
    it, 7 days at least.
    """
    return await tx.execute(
        "delete from batches where batch_id in (select batch_id from batches b"
        " where (state = 'settled' and settled_at < now() - interval '7 days'"
        "  and not exists (select from batches s where s.batch_id = b.swap_id and s.batch_id <> b.batch_id)"
        "  and not exists (select from pipelines p where p.pipeline_uid = b.pipeline_uid"
        "   and p.parent_uid is not null))"
        " or (state = 'asked' and created_at < now() - interval '1 day')"
        f" or (state = 'answered' and created_at < now() - interval '7 days' and not ({WANTED})) limit $1)",
        BATCH,
    )


class Batches:
    def __init__(self, database: Database, consolidate_after: int, batch_lines: int) -> None:
        """`consolidate_after` changes, an actor's memory is put in order; a batch has `batch_lines` at most."""
        self._database = database
        self._consolidate_after = consolidate_after
        self._batch_lines = batch_lines
        # A lane that an erasure holds delays those beside it, but not those after it. An answer is waited for by nobody
        # but the lane's next batch.
        self._emissions = Together(
            self._emit, at_once=AT_ONCE, alike=lambda each: each.lease.pipeline_uid, under_way=UNDER_WAY
        )
        self._answers = Together(
            self._settle,
            at_once=AT_ONCE,
            alike=lambda each: each.store_uid,
            under_way=UNDER_WAY,
            pause_s=ANSWERS_PAUSE_S,
        )

    async def emit(
        self, lease: Lease, event: MemoriesDistilled, row: OutboxRow, *, more: bool, again_taken: dict[UUID, list[int]]
    ) -> bool:
        """Ends a lease with a batch on its way: lane, watermarks, batch and outbox in one statement.

        False when the lease was lost, and then nothing happened. The batch stays until 7 days after memory's answer.
        """
        return await self._emissions.ask(_Emission(lease, event, row, more, again_taken))

    async def _emit(self, emissions: Sequence[_Emission]) -> list[bool]:
        reached = [(each, reached) for each in emissions for reached in each.event.ranges]
        handed = await self._database.write(
            EMIT,
            emissions[0].lease.pipeline_uid,
            [each.lease.actor_id for each in emissions],
            [each.lease.token for each in emissions],
            [each.lease.marks for each in emissions],
            [each.more for each in emissions],
            [each.event.batch_id for each in emissions],
            [each.event.store_uid for each in emissions],
            [each.row.payload for each in emissions],
            [json.dumps([reached.model_dump(mode="json") for reached in each.event.ranges]) for each in emissions],
            [each.row.message_id for each in emissions],
            [each.event.batch_id for each, _ in reached],
            [session.session_uid for _, session in reached],
            [session.through for _, session in reached],
            [",".join(map(str, each.again_taken.get(session.session_uid, ()))) for each, session in reached],
            MemoriesDistilled.subject,
            self._batch_lines,
        )
        batch_ids = {row["batch_id"] for row in handed}
        return [each.event.batch_id in batch_ids for each in emissions]

    async def rewind(self, event: MemoriesDistilled, row: OutboxRow, begun: Range, watermark: int, last: int) -> bool:
        """Sets a session's watermark back from where it was to its beginning, with the batch that tells memory so.

        Whoever is at work on the lane loses it, and what was asked of the lost lines is forgotten. False when the lane
        waits for memory or is held, or the watermark has moved, and then nothing happened: what a replay swaps in
        counts for the watermark that it met.
        """
        told = await self._database.write(
            REWIND,
            event.pipeline_uid,
            event.actor_id,
            begun.session_uid,
            watermark,
            last,
            event.batch_id,
            event.store_uid,
            row.payload,
            json.dumps([begun.model_dump(mode="json")]),
            row.message_id,
            row.subject,
        )
        return bool(told)

    async def settled_page(self, workspace_id: int, after: tuple[datetime, UUID] | None, limit: int) -> list[Settled]:
        """The settled batches and swaps of a workspace, in the order in which memory answered them."""
        rows = await self._database.fetch(
            "select b.batch_id, b.memory_store_uid, b.settled_at, b.event, b.outcomes from batches b"
            " join pipelines p on p.pipeline_uid = b.pipeline_uid and p.workspace_id = $1"
            " where b.state = 'settled' and b.event is not null and p.parent_uid is null"
            " and coalesce(b.swap_id, b.batch_id) = b.batch_id"
            " and ($2::timestamptz is null or (b.settled_at, b.batch_id) > ($2, $3::uuid))"
            " order by b.settled_at, b.batch_id limit $4",
            workspace_id,
            *(after or (None, None)),
            limit,
        )
        return [Settled(**row) for row in rows]

    async def settle(self, store_uid: UUID, batch_id: UUID, outcomes: str, changed: int) -> bool | None:
        """Memory has answered: what the batch covered is applied. Whether its lane has more to do; None when it was
        settled.

        Raises `Contended` where somebody holds the lane.
        """
        return await self._answers.ask(_Answer(store_uid, batch_id, outcomes, changed))

    async def _settle(self, answers: Sequence[_Answer]) -> list[bool | None]:
        rows = await self._database.write(
            SETTLE,
            [each.batch_id for each in answers],
            [each.outcomes for each in answers],
            [each.changed for each in answers],
            self._consolidate_after,
            answers[0].store_uid,
        )
        is_due = {row["batch_id"]: row["is_due"] for row in rows}
        return [is_due.pop(each.batch_id, None) for each in answers]

    async def settle_in(self, tx: Tx, store_uid: UUID, batch_id: UUID, outcomes: str, changed: int) -> str | None:
        """As `settle`, and returns the batch as it was sent, for what is still to be done; None when it was settled."""
        event = await tx.fetchval(
            "select event from batches where batch_id = $1 and memory_store_uid = $2 and state = 'emitted'",
            batch_id,
            store_uid,
        )
        settled = await tx.fetchrow(SETTLE, [batch_id], [outcomes], [changed], self._consolidate_after, store_uid)
        return None if settled is None else event

    async def free_lost(self, tx: Tx) -> int:
        """Lanes that wait for a batch that is no more go on: nobody would ever answer them. Returns how many."""
        return await tx.execute(
            "with lost as materialized (select l.pipeline_uid, l.actor_id, l.pending_batch from lanes l"
            "   left join batches b on b.batch_id = l.pending_batch"
            "  where l.pending_batch is not null and b.batch_id is null),"
            " held as (select l.pipeline_uid, l.actor_id from lost join lanes l using (pipeline_uid, actor_id)"
            "  where l.pending_batch = lost.pending_batch"
            "  order by l.pipeline_uid, l.actor_id for no key update of l),"
            " freed as (update lanes l set pending_batch = null from held where l.pipeline_uid = held.pipeline_uid"
            "  and l.actor_id = held.actor_id returning l.pipeline_uid, l.actor_id),"
            f" applied as ({NOTHING_WAITS})"
            " select from freed"
        )

    async def claim_unanswered(self, tx: Tx, after_s: float, limit: int) -> list[str]:
        """Batches that memory has not answered in time, as they were sent; each goes to one replica, ever later."""
        rows = await tx.fetch(
            "update batches b set emitted_at = now(), emissions = emissions + 1 from ("
            "  select batch_id, emitted_at from batches where state = 'emitted'"
            "  and emitted_at < now() - make_interval(secs => $1 * 2 ^ least(emissions, 6))"
            "  order by emitted_at limit $2) seen"
            " where b.batch_id = seen.batch_id and b.emitted_at = seen.emitted_at and b.state = 'emitted'"
            " returning b.event",
            after_s,
            limit,
        )
        return [row["event"] for row in rows]
