"""A replay as a whole: from its start, over its end, to its being forgotten."""

from typing import Literal
from uuid import UUID

from libs.chassis.database import Database
from libs.chassis.housekeeping import BATCH
from libs.chassis.unit_of_work import Tx
from libs.contracts.requests import PrincipalType
from services.distiller.store.replays.lanes import drop_lanes, let_go
from services.distiller.store.replays.records import Replay, ReplayState

COLUMNS = (
    "replay_uid, pipeline_uid, hidden_uid, shadow_uid, into_store_uid, into_store_id, actor_id, state, error,"
    " create_time, end_time, attempts, retry_at is null or retry_at <= now() as is_due"
)
ACTIVE = "state in ('PENDING', 'RUNNING')"


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
            " max_wait_s) select $2, pipeline_uid, $3, $4, $5, $6, 'MANUAL_ONLY', workspace_id, session_store_uid,"
            " session_store_id, model, instructions, quiet_period_s, max_wait_s from pipelines where pipeline_uid = $1",
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

    async def page(self, pipeline_uid: UUID, before: UUID | None, limit: int) -> list[Replay]:
        """The most recently started first."""
        rows = await self._database.fetch(
            f"select {COLUMNS} from replays where pipeline_uid = $1 and ($2::uuid is null or replay_uid < $2)"
            " order by replay_uid desc limit $3",
            pipeline_uid,
            before,
            limit,
        )
        return [Replay(**row) for row in rows]

    async def active(self, tx: Tx, pipeline_uid: UUID) -> Replay | None:
        row = await tx.fetchrow(f"select {COLUMNS} from replays where pipeline_uid = $1 and {ACTIVE}", pipeline_uid)
        return None if row is None else Replay(**row)

    async def all_active(self) -> list[Replay]:
        rows = await self._database.fetch(f"select {COLUMNS} from replays where {ACTIVE} order by replay_uid")
        return [Replay(**row) for row in rows]

    async def run(self, tx: Tx, replay: Replay) -> bool:
        """Its shadow is there, and nobody is away; False when it ended meanwhile."""
        return (
            await tx.execute(
                "update replays set state = 'RUNNING', attempts = 0, retry_at = null"
                f" where replay_uid = $1 and {ACTIVE}",
                replay.replay_uid,
            )
            == 1
        )

    async def put_off(self, tx: Tx, replay: Replay, delay_s: float) -> None:
        """Goes on after the delay, unless another replica was faster; meanwhile it holds no live lane."""
        late = await tx.execute(
            "update replays set attempts = attempts + 1, retry_at = now() + make_interval(secs => $3)"
            f" where replay_uid = $1 and attempts = $2 and {ACTIVE}",
            replay.replay_uid,
            replay.attempts,
            delay_s,
        )
        if late:
            await tx.execute(
                "update replay_actors set state = 'distilling' where replay_uid = $1 and state = 'held'",
                replay.replay_uid,
            )
            await let_go(tx, replay.replay_uid)

    async def end(self, tx: Tx, replay: Replay, state: ReplayState, error: str | None) -> bool:
        """Frees what it held and drops its pipeline; False when it had ended."""
        ended = await tx.execute(
            f"update replays set state = $2, error = $3, end_time = now() where replay_uid = $1 and {ACTIVE}",
            replay.replay_uid,
            state,
            error,
        )
        if ended:
            await let_go(tx, replay.replay_uid)
            await tx.execute("delete from pipelines where pipeline_uid = $1", replay.hidden_uid)
        return ended == 1

    async def stop(self, tx: Tx, replay: Replay, state: Literal["failed", "gone"], reason: str) -> None:
        """Every actor that is not swapped keeps what it has, and its live lane goes on; a swap may be under way."""
        rows = await tx.fetch(
            "update replay_actors set reason = $3, attempts = 0, retry_at = null,"
            " state = case when swap_asked then 'withdrawing' else $2 end"
            " where replay_uid = $1 and state in ('waiting', 'distilling', 'held', 'swapping')"
            " returning actor_id, state",
            replay.replay_uid,
            state,
            reason,
        )
        stopped = [row["actor_id"] for row in rows if row["state"] == state]
        await let_go(tx, replay.replay_uid)
        await drop_lanes(tx, replay.hidden_uid, stopped)

    async def stop_of_store(self, tx: Tx, store_uid: UUID, reason: str) -> None:
        """A session store or a memory store was deleted: nothing can be replayed from it or into it any more."""
        rows = await tx.fetch(
            f"select {COLUMNS} from replays where {ACTIVE} and (into_store_uid = $1"
            " or pipeline_uid in (select pipeline_uid from pipelines where session_store_uid = $1))",
            store_uid,
        )
        for row in rows:
            await self.stop(tx, Replay(**row), "failed", reason)

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
            await let_go(tx, row["replay_uid"], actor_id)
            await drop_lanes(tx, row["hidden_uid"], [actor_id])
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
