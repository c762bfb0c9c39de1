"""The two lanes of an actor in a replay: the one that nobody sees, and the live one that it meets."""

from collections.abc import Sequence
from uuid import UUID

from libs.chassis.unit_of_work import Tx
from libs.contracts.requests import KnownSession
from services.distiller.store.replays.records import HiddenLane, Replay


async def open_lane(tx: Tx, replay: Replay, actor_id: str) -> None:
    """A lane of the replay's own, due up to where the live one is."""
    await tx.execute(
        "insert into lanes (pipeline_uid, actor_id, workspace_id) select $2, actor_id, workspace_id from lanes"
        " where pipeline_uid = $1 and actor_id = $3 on conflict do nothing",
        replay.pipeline_uid,
        replay.hidden_uid,
        actor_id,
    )
    await aim(tx, replay, actor_id)
    await nudge(tx, replay, actor_id)


async def aim(tx: Tx, replay: Replay, actor_id: str) -> None:
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


async def aim_at(tx: Tx, replay: Replay, actor_id: str, known: Sequence[KnownSession]) -> None:
    """So do the positions up to which memory knows these sessions; it passes through one that is gone meanwhile."""
    await tx.execute(
        "insert into lane_sessions as s"
        " (pipeline_uid, actor_id, session_uid, session_id, known_position, goal_position)"
        " select l.pipeline_uid, l.actor_id, p.session_uid, p.session_id, p.position, p.position"
        " from unnest($3::uuid[], $4::text[], $5::bigint[]) p (session_uid, session_id, position)"
        " join lanes l on l.pipeline_uid = $1 and l.actor_id = $2 order by p.session_uid"
        " on conflict (pipeline_uid, actor_id, session_uid) do update set"
        "  known_position = greatest(s.known_position, excluded.known_position),"
        "  goal_position = greatest(s.goal_position, excluded.goal_position)",
        replay.hidden_uid,
        actor_id,
        [each.session_uid for each in known],
        [each.session_id for each in known],
        [each.position for each in known],
    )


async def nudge(tx: Tx, replay: Replay, actor_id: str) -> bool:
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


async def hidden_lane(tx: Tx, replay: Replay, actor_id: str) -> HiddenLane | None:
    row = await tx.fetchrow(
        "select due_at is null and pending_batch is null and lease_until is null as rests,"
        " parked_at is not null as parked, reason from lanes where pipeline_uid = $1 and actor_id = $2 for update",
        replay.hidden_uid,
        actor_id,
    )
    return None if row is None else HiddenLane(**row)


async def hold(tx: Tx, replay: Replay, actor_id: str) -> bool:
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


async def put_in_order(tx: Tx, replay: Replay, actor_id: str) -> None:
    """What was swapped in is put in order by the live lane; only a continuous pipeline goes on for that by itself."""
    await tx.execute(
        "update lanes l set consolidate = true, marks = l.marks + 1,"
        " due_at = case when p.trigger = 'CONTINUOUS' then coalesce(l.due_at, now()) else l.due_at end"
        " from pipelines p where p.pipeline_uid = $1 and p.memory_store_uid = $3"
        " and l.pipeline_uid = $1 and l.actor_id = $2",
        replay.pipeline_uid,
        actor_id,
        replay.into_store_uid,
    )


async def let_go(tx: Tx, replay_uid: UUID, actor_id: str | None = None) -> None:
    """The actor's live lane goes on, or all that the replay holds."""
    await tx.execute(
        "update lanes l set held_by = null from replays r where r.replay_uid = $1 and l.pipeline_uid = r.pipeline_uid"
        " and l.held_by = $1 and ($2::text is null or l.actor_id = $2)",
        replay_uid,
        actor_id,
    )


async def drop_lanes(tx: Tx, hidden_uid: UUID, actor_ids: Sequence[str]) -> None:
    for table in ("lanes", "batches"):
        await tx.execute(
            f"delete from {table} where pipeline_uid = $1 and actor_id = any($2::text[])", hidden_uid, list(actor_ids)
        )
