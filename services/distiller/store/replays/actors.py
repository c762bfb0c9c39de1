"""Where each actor of a replay stands. Whoever moves one has seen it in the state that it moves it from."""

from collections.abc import Sequence
from uuid import UUID

from libs.chassis.database import Database
from libs.chassis.unit_of_work import Tx
from libs.contracts.requests import SwapMemories
from services.distiller.store.replays.lanes import drop_lanes, let_go, open_lane, put_in_order
from services.distiller.store.replays.records import CANCELED, ActorState, AtWork, Counts, Replay

WANTED = "state in ('waiting', 'distilling', 'held', 'swapping')"
AT_WORK = "state in ('distilling', 'held', 'swapping', 'withdrawing')"


class ReplayActors:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def counts(self, replay: Replay) -> Counts:
        return (await self.counts_of([replay]))[replay.replay_uid]

    async def counts_of(self, replays: Sequence[Replay]) -> dict[UUID, Counts]:
        rows = await self._database.fetch(
            "select replay_uid, count(actor_id) as total, count(*) filter (where state = 'swapped') as swapped,"
            " count(*) filter (where state = 'failed') as failed,"
            " count(*) filter (where state = 'gone' and reason = $2) as canceled,"
            f" count(*) filter (where {WANTED} or state = 'withdrawing') as left,"
            f" count(*) filter (where {WANTED}) as wanted,"
            " min(reason) filter (where state = 'failed') as reason"
            " from unnest($1::uuid[]) as asked (replay_uid) left join replay_actors using (replay_uid)"
            " group by replay_uid",
            [replay.replay_uid for replay in replays],
            CANCELED,
        )
        counts = [dict(row) for row in rows]
        return {row.pop("replay_uid"): Counts(**row) for row in counts}

    async def at_work(self, replay: Replay) -> list[AtWork]:
        rows = await self._database.fetch(
            "select a.actor_id, a.state, a.swap_id, a.swap_asked, coalesce(e.epoch, 0) as source_epoch,"
            " a.attempts, a.reason, a.retry_at is null or a.retry_at <= now() as is_due from replay_actors a"
            " join replays r using (replay_uid) join pipelines p using (pipeline_uid)"
            " left join erased_actors e on e.store_uid = p.session_store_uid and e.actor_id = a.actor_id"
            f" where replay_uid = $1 and a.{AT_WORK} order by a.actor_id",
            replay.replay_uid,
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
            await open_lane(tx, replay, row["actor_id"])
        return len(rows)

    async def may_move(self, replay: Replay, actor: AtWork) -> bool:
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
                replay.pipeline_uid,
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

    async def move(self, tx: Tx, replay: Replay, actor: AtWork, state: ActorState, reason: str | None = None) -> bool:
        """The actor's next state, if it is still in the one that it was seen in."""
        return (
            await tx.execute(
                "update replay_actors set state = $4, reason = $5, attempts = 0, retry_at = null,"
                " swap_asked = swap_asked or $4 = 'swapping'"
                " where replay_uid = $1 and actor_id = $2 and state = $3",
                replay.replay_uid,
                actor.actor_id,
                actor.state,
                state,
                reason,
            )
            == 1
        )

    async def gets_on(self, tx: Tx, replay: Replay, actor: AtWork) -> bool:
        """Whether the replay's lane has come further since this was asked last."""
        return (
            await tx.execute(
                "update replay_actors a set reached = l.reached from (select sum(distilled_position) as reached"
                "  from lane_sessions where pipeline_uid = $3 and actor_id = $2) l"
                " where a.replay_uid = $1 and a.actor_id = $2 and l.reached > a.reached",
                replay.replay_uid,
                actor.actor_id,
                replay.hidden_uid,
            )
            == 1
        )

    async def put_off(self, tx: Tx, replay: Replay, actor: AtWork, delay_s: float) -> None:
        """Tried again after the delay, unless another replica was faster."""
        await tx.execute(
            "update replay_actors set attempts = attempts + 1, retry_at = now() + make_interval(secs => $5)"
            " where replay_uid = $1 and actor_id = $2 and state = $3 and attempts = $4",
            replay.replay_uid,
            actor.actor_id,
            actor.state,
            actor.attempts,
            delay_s,
        )

    async def settle(self, tx: Tx, replay: Replay, actor: AtWork, state: ActorState, reason: str | None = None) -> None:
        """The actor's last state; both lanes are free."""
        if await self.move(tx, replay, actor, state, reason):
            await let_go(tx, replay.replay_uid, actor.actor_id)
            await drop_lanes(tx, replay.hidden_uid, [actor.actor_id])

    async def give_up(self, tx: Tx, replay: Replay, actor: AtWork, reason: str | None) -> None:
        """It fails; a swap that may be under way is withdrawn first, and the live lane goes on meanwhile."""
        if not actor.swap_asked:
            await self.settle(tx, replay, actor, "failed", reason)
        elif await self.move(tx, replay, actor, "withdrawing", reason):
            await let_go(tx, replay.replay_uid, actor.actor_id)

    async def gathered(self, swap_id: UUID) -> list[tuple[str, str | None]]:
        """The batches that a swap was made of, in their order: as they were sent, and what memory answered."""
        rows = await self._database.fetch(
            "select event, outcomes from batches where swap_id = $1 and batch_id <> $1 order by emitted_at, batch_id",
            swap_id,
        )
        return [(row["event"], row["outcomes"]) for row in rows]

    async def is_newest(self, swap_id: UUID) -> bool:
        """Whether no later replay has swapped the same actor for the same pipeline."""
        return not await self._database.fetchval(
            "select exists (select from batches s join batches n on n.pipeline_uid = s.pipeline_uid"
            " and n.actor_id = s.actor_id and n.memory_store_uid = s.memory_store_uid and n.swap_id = n.batch_id"
            " and n.settled_at > s.settled_at where s.batch_id = $1)",
            swap_id,
        )

    async def swapped(self, tx: Tx, replay: Replay, actor: AtWork, swap: SwapMemories, made_ago_s: float) -> None:
        """Memory has swapped; like every batch, the swap and what it was made of are kept for a repair.

        Settled when it was made: a live lane that goes on before the answer comes has built on it.
        """
        if not await self.move(tx, replay, actor, "swapped"):
            return
        await tx.execute(
            "update batches set pipeline_uid = $1, memory_store_uid = $4, swap_id = $5,"
            " settled_at = now() - make_interval(secs => $6)"
            " where pipeline_uid = $2 and actor_id = $3 and state = 'settled'",
            replay.pipeline_uid,
            replay.hidden_uid,
            actor.actor_id,
            replay.into_store_uid,
            swap.swap_id,
            made_ago_s,
        )
        await tx.execute(
            "insert into batches (batch_id, pipeline_uid, actor_id, memory_store_uid, state, lease_token, event,"
            " ranges, settled_at, swap_id) values ($1, $2, $3, $4, 'settled', 0, $5, '[]',"
            " now() - make_interval(secs => $6), $1) on conflict do nothing",
            swap.swap_id,
            replay.pipeline_uid,
            actor.actor_id,
            replay.into_store_uid,
            swap.model_dump_json(),
            made_ago_s,
        )
        await put_in_order(tx, replay, actor.actor_id)
        await let_go(tx, replay.replay_uid, actor.actor_id)
        await drop_lanes(tx, replay.hidden_uid, [actor.actor_id])
