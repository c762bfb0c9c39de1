"""Replays, and where each of their actors stands.

waiting → distilling → held → swapping → swapped; or failed, or gone when it was erased or cancelled. A replay distils
on lanes of a pipeline that nobody sees. From `held` on its actor's live lane is leased to nobody, so that the two can
meet at one watermark.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal
from uuid import UUID

from libs.chassis.database import Database
from libs.chassis.housekeeping import BATCH
from libs.chassis.unit_of_work import Tx
from libs.contracts.requests import PrincipalType

ReplayState = Literal["PENDING", "RUNNING", "SUCCEEDED", "FAILED", "CANCELED"]
ActorState = Literal["waiting", "distilling", "held", "swapping", "swapped", "failed", "gone"]

COLUMNS = (
    "replay_uid, pipeline_uid, hidden_uid, shadow_uid, into_store_uid, into_store_id, actor_id, state, error,"
    " create_time, end_time"
)
ACTIVE = "state in ('PENDING', 'RUNNING')"
AT_WORK = ("distilling", "held", "swapping")
CANCELED = "canceled"
ERASED = "erased"


@dataclass(frozen=True, slots=True)
class Replay:
    replay_uid: UUID
    pipeline_uid: UUID
    hidden_uid: UUID
    shadow_uid: UUID
    into_store_uid: UUID
    into_store_id: str
    actor_id: str | None
    state: ReplayState
    error: str | None
    create_time: datetime
    end_time: datetime | None

    @property
    def name(self) -> str:
        return f"memory-pipelines/{self.pipeline_uid}/replays/{self.replay_uid}"


@dataclass(frozen=True, slots=True)
class AtWork:
    """An actor of a replay that something is to be done for.

    `attempts` have failed in a row. `source_epoch`: of the last erasure in the session store that was heard of; one
    that is heard of later ends this.
    """

    actor_id: str
    state: ActorState
    swap_id: UUID
    source_epoch: int
    attempts: int
    is_due: bool


@dataclass(frozen=True, slots=True)
class Counts:
    total: int
    swapped: int
    failed: int
    canceled: int
    left: int
    reason: str | None


@dataclass(frozen=True, slots=True)
class HiddenLane:
    """`rests`: nobody works on it and nothing is on its way."""

    rests: bool
    parked: bool
    reason: str | None


async def expired(tx: Tx) -> int:
    """Drops replays 30 days after their end."""
    return await tx.execute(
        "delete from replays where ctid = any(array(select ctid from replays"
        " where end_time < now() - interval '30 days' limit $1))",
        BATCH,
    )


class Replays:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def start(self, tx: Tx, replay: Replay, creator_type: PrincipalType, creator: str) -> bool:
        """The replay, a pipeline of its own in somebody's name, and its actors.

        False while another replay of the pipeline is active.
        """
        started = await tx.execute(
            "insert into replays (replay_uid, pipeline_uid, hidden_uid, shadow_uid, into_store_uid, into_store_id,"
            " actor_id, state) select $1, pipeline_uid, $3, $4, $5, $6, $7, 'PENDING' from pipelines"
            " where pipeline_uid = $2 for key share on conflict do nothing",
            replay.replay_uid,
            replay.pipeline_uid,
            replay.hidden_uid,
            replay.shadow_uid,
            replay.into_store_uid,
            replay.into_store_id,
            replay.actor_id,
        )
        if not started:
            return False
        await tx.execute(
            "insert into pipelines (pipeline_uid, parent_uid, memory_store_uid, memory_store_id, creator_type, creator,"
            " trigger, workspace_id, session_store_uid, session_store_id, model, instructions, quiet_period_s,"
            " max_wait_s, daily_token_budget) select $2, pipeline_uid, $3, $4, $5, $6, 'MANUAL_ONLY', workspace_id,"
            " session_store_uid, session_store_id, model, instructions, quiet_period_s, max_wait_s, daily_token_budget"
            " from pipelines where pipeline_uid = $1",
            replay.pipeline_uid,
            replay.hidden_uid,
            replay.shadow_uid,
            replay.into_store_id,
            creator_type,
            creator,
        )
        await tx.execute(
            "insert into replay_actors (replay_uid, actor_id, state, swap_id)"
            " select $1, actor_id, 'waiting', gen_random_uuid() from lanes"
            " where pipeline_uid = $2 and ($3::text is null or actor_id = $3)",
            replay.replay_uid,
            replay.pipeline_uid,
            replay.actor_id,
        )
        return True

    async def get(self, pipeline_uid: UUID, replay_uid: UUID, tx: Tx | None = None) -> Replay | None:
        row = await (tx or self._database).fetchrow(
            f"select {COLUMNS} from replays where pipeline_uid = $1 and replay_uid = $2", pipeline_uid, replay_uid
        )
        return None if row is None else Replay(**row)

    async def active(self, tx: Tx, pipeline_uid: UUID) -> Replay | None:
        row = await tx.fetchrow(f"select {COLUMNS} from replays where pipeline_uid = $1 and {ACTIVE}", pipeline_uid)
        return None if row is None else Replay(**row)

    async def all_active(self) -> list[Replay]:
        rows = await self._database.fetch(f"select {COLUMNS} from replays where {ACTIVE} order by replay_uid")
        return [Replay(**row) for row in rows]

    async def counts(self, replay_uid: UUID) -> Counts:
        row = await self._database.fetchrow(
            "select count(*) as total, count(*) filter (where state = 'swapped') as swapped,"
            " count(*) filter (where state = 'failed') as failed,"
            " count(*) filter (where state = 'gone' and reason = $2) as canceled,"
            " count(*) filter (where state in ('waiting', 'distilling', 'held', 'swapping')) as left,"
            " min(reason) filter (where state = 'failed') as reason from replay_actors where replay_uid = $1",
            replay_uid,
            CANCELED,
        )
        assert row is not None  # noqa: S101 - an aggregate answers one row
        return Counts(**row)

    async def run(self, tx: Tx, replay: Replay) -> bool:
        """Its shadow is there; False when it ended meanwhile."""
        return (
            await tx.execute(
                f"update replays set state = 'RUNNING' where replay_uid = $1 and {ACTIVE}", replay.replay_uid
            )
            == 1
        )

    async def end(self, tx: Tx, replay: Replay, state: ReplayState, error: str | None) -> bool:
        """Frees what it held and drops its pipeline; False when it had ended."""
        ended = await tx.execute(
            f"update replays set state = $2, error = $3, end_time = now() where replay_uid = $1 and {ACTIVE}",
            replay.replay_uid,
            state,
            error,
        )
        if ended:
            await tx.execute(
                "update lanes set held_by = null where pipeline_uid = $1 and held_by = $2",
                replay.pipeline_uid,
                replay.replay_uid,
            )
            await tx.execute("delete from pipelines where pipeline_uid = $1", replay.hidden_uid)
        return ended == 1

    async def cancel(self, tx: Tx, replay: Replay) -> None:
        """Every actor that is not being swapped keeps what it has."""
        rows = await tx.fetch(
            "update replay_actors set state = 'gone', reason = $2"
            " where replay_uid = $1 and state in ('waiting', 'distilling', 'held') returning actor_id",
            replay.replay_uid,
            CANCELED,
        )
        await self._free(tx, replay.replay_uid, replay.hidden_uid, [row["actor_id"] for row in rows])

    async def shadows_of(self, tx: Tx, pipeline_uid: UUID) -> list[UUID]:
        """Of the replays of a pipeline that are not over."""
        rows = await tx.fetch(f"select shadow_uid from replays where pipeline_uid = $1 and {ACTIVE}", pipeline_uid)
        return [row["shadow_uid"] for row in rows]

    async def forget_actor(self, tx: Tx, store_uid: UUID, actor_id: str) -> None:
        """An actor was erased in a session store or a memory store: no replay brings them back, or names them."""
        of_store = "p.pipeline_uid = r.pipeline_uid and $1 in (p.session_store_uid, r.into_store_uid)"
        rows = await tx.fetch(
            "delete from replay_actors a using replays r, pipelines p"
            f" where a.replay_uid = r.replay_uid and a.actor_id = $2 and {of_store}"
            " returning r.replay_uid, r.hidden_uid, a.state",
            store_uid,
            actor_id,
        )
        for row in rows:
            await self._free(tx, row["replay_uid"], row["hidden_uid"], [actor_id])
        await tx.execute(
            f"update replays r set actor_id = null from pipelines p where r.actor_id = $2 and {of_store}",
            store_uid,
            actor_id,
        )
        # A reason may quote the model.
        await tx.execute(
            "update replays set error = split_part(error, ':', 1) where replay_uid = any($1::uuid[])",
            [row["replay_uid"] for row in rows if row["state"] == "failed"],
        )

    async def at_work(self, replay: Replay) -> list[AtWork]:
        rows = await self._database.fetch(
            "select a.actor_id, a.state, a.swap_id, coalesce(e.epoch, 0) as source_epoch, a.attempts,"
            " a.retry_at is null or a.retry_at <= now() as is_due from replay_actors a"
            " join replays r using (replay_uid) join pipelines p using (pipeline_uid)"
            " left join erased_actors e on e.store_uid = p.session_store_uid and e.actor_id = a.actor_id"
            " where replay_uid = $1 and a.state = any($2::text[]) order by a.actor_id",
            replay.replay_uid,
            list(AT_WORK),
        )
        return [AtWork(**row) for row in rows]

    async def begin(self, tx: Tx, replay: Replay, limit: int) -> int:
        """Gives the next actors lanes of their own, up to where their live ones are; returns how many."""
        rows = await tx.fetch(
            "update replay_actors a set state = 'distilling' from (select actor_id from replay_actors"
            "  where replay_uid = $1 and state = 'waiting' order by actor_id limit $2) next"
            " where a.replay_uid = $1 and a.actor_id = next.actor_id and a.state = 'waiting' returning a.actor_id",
            replay.replay_uid,
            limit,
        )
        for row in rows:
            await tx.execute(
                "insert into lanes (pipeline_uid, actor_id, workspace_id) select $2, actor_id, workspace_id from lanes"
                " where pipeline_uid = $1 and actor_id = $3 on conflict do nothing",
                replay.pipeline_uid,
                replay.hidden_uid,
                row["actor_id"],
            )
            await self.aim(tx, replay, row["actor_id"])
            await self.nudge(tx, replay, row["actor_id"])
        return len(rows)

    async def may_move(self, replay: Replay, live_uid: UUID, actor: AtWork) -> bool:
        """Whether it need not wait: for its lane to rest or stop, nor for who still works on the live lane it holds."""
        return bool(
            await self._database.fetchval(
                "select l.actor_id is null or l.parked_at is not null or ($4 = 'held' and l.reason is not null)"
                " or (l.due_at is null and l.pending_batch is null and l.lease_until is null and not exists ("
                "  select from lanes v where v.pipeline_uid = $3 and v.actor_id = a.actor_id and v.held_by = $1"
                "  and (v.pending_batch is not null or v.lease_until >= now())))"
                " from replay_actors a left join lanes l on l.pipeline_uid = $5 and l.actor_id = a.actor_id"
                " where a.replay_uid = $1 and a.actor_id = $2",
                replay.replay_uid,
                actor.actor_id,
                live_uid,
                actor.state,
                replay.hidden_uid,
            )
        )

    async def keep(self, tx: Tx, replay: Replay, actor: AtWork) -> bool:
        """Nobody else moves the actor before the transaction ends; False when somebody has."""
        return bool(
            await tx.fetchval(
                "select true from replay_actors where replay_uid = $1 and actor_id = $2 and state = $3 for update",
                replay.replay_uid,
                actor.actor_id,
                actor.state,
            )
        )

    async def move(self, tx: Tx, replay: Replay, actor: AtWork, state: ActorState) -> bool:
        """The actor's next state, if it is still in the one that it was seen in."""
        return (
            await tx.execute(
                "update replay_actors set state = $4, attempts = 0, retry_at = null"
                " where replay_uid = $1 and actor_id = $2 and state = $3",
                replay.replay_uid,
                actor.actor_id,
                actor.state,
                state,
            )
            == 1
        )

    async def put_off(self, tx: Tx, replay: Replay, actor: AtWork, attempts: int, delay_s: float) -> None:
        """Tried again after the delay, unless another replica was faster."""
        await tx.execute(
            "update replay_actors set attempts = $5, retry_at = now() + make_interval(secs => $6)"
            " where replay_uid = $1 and actor_id = $2 and state = $3 and attempts = $4",
            replay.replay_uid,
            actor.actor_id,
            actor.state,
            actor.attempts,
            attempts,
            delay_s,
        )

    async def settle(self, tx: Tx, replay: Replay, actor: AtWork, state: ActorState, reason: str | None = None) -> None:
        """The actor's last state; both lanes are free."""
        if await self.move(tx, replay, actor, state):
            await tx.execute(
                "update replay_actors set reason = $3 where replay_uid = $1 and actor_id = $2",
                replay.replay_uid,
                actor.actor_id,
                reason,
            )
            await self._free(tx, replay.replay_uid, replay.hidden_uid, [actor.actor_id])

    async def aim(self, tx: Tx, replay: Replay, actor_id: str) -> None:
        """The live lane's watermarks become the replay's goals."""
        await tx.execute(
            "insert into lane_sessions as s"
            " (pipeline_uid, actor_id, session_uid, session_id, known_position, goal_position)"
            " select l.pipeline_uid, v.actor_id, v.session_uid, v.session_id, v.distilled_position,"
            "  v.distilled_position from lane_sessions v join lanes l on l.pipeline_uid = $2 and l.actor_id = $3"
            " where v.pipeline_uid = $1 and v.actor_id = $3 and v.distilled_position > 0 order by v.session_uid"
            " on conflict (pipeline_uid, actor_id, session_uid) do update set"
            "  known_position = greatest(s.known_position, excluded.known_position),"
            "  goal_position = greatest(s.goal_position, excluded.goal_position)",
            replay.pipeline_uid,
            replay.hidden_uid,
            actor_id,
        )

    async def nudge(self, tx: Tx, replay: Replay, actor_id: str) -> bool:
        """Makes the replay's lane due while there is something to distil up to its goals; whether there is."""
        behind = await tx.execute(
            "update lanes l set due_at = coalesce(l.due_at, now()), marks = l.marks + 1"
            " where l.pipeline_uid = $1 and l.actor_id = $2 and exists (select from lane_sessions s"
            "  where s.pipeline_uid = $1 and s.actor_id = $2"
            "  and (s.distilled_position < s.goal_position or s.again <> '{}'))",
            replay.hidden_uid,
            actor_id,
        )
        return behind == 1

    async def hidden_lane(self, tx: Tx, replay: Replay, actor_id: str) -> HiddenLane | None:
        row = await tx.fetchrow(
            "select due_at is null and pending_batch is null and lease_until is null as rests,"
            " parked_at is not null as parked, reason from lanes where pipeline_uid = $1 and actor_id = $2 for update",
            replay.hidden_uid,
            actor_id,
        )
        return None if row is None else HiddenLane(**row)

    async def hold(self, tx: Tx, replay: Replay, actor_id: str) -> bool:
        """Nobody leases the live lane from now on, and a lease that has run out counts no more.

        True when nobody works on it and nothing of it is on its way.
        """
        row = await tx.fetchrow(
            "update lanes set held_by = $3,"
            " lease_token = lease_token + case when lease_until < now() then 1 else 0 end,"
            " lease_until = case when lease_until < now() then null else lease_until end"
            " where pipeline_uid = $1 and actor_id = $2"
            " returning lease_until is null and pending_batch is null as rests",
            replay.pipeline_uid,
            actor_id,
            replay.replay_uid,
        )
        return row is not None and row["rests"]

    async def let_go(self, tx: Tx, replay: Replay, actor_id: str) -> None:
        """The live lane goes on."""
        await tx.execute(
            "update lanes set held_by = null where pipeline_uid = $1 and actor_id = $2 and held_by = $3",
            replay.pipeline_uid,
            actor_id,
            replay.replay_uid,
        )

    async def _free(self, tx: Tx, replay_uid: UUID, hidden_uid: UUID, actor_ids: Sequence[str]) -> None:
        await tx.execute(
            "update lanes l set held_by = null from replays r where r.replay_uid = $1"
            " and l.pipeline_uid = r.pipeline_uid and l.actor_id = any($2::text[]) and l.held_by = $1",
            replay_uid,
            list(actor_ids),
        )
        for table in ("lanes", "batches"):
            await tx.execute(
                f"delete from {table} where pipeline_uid = $1 and actor_id = any($2::text[])",
                hidden_uid,
                list(actor_ids),
            )
