"""What was deleted or erased elsewhere is forgotten: a session, an actor in a store of either kind, a store."""

from uuid import UUID

import asyncpg

from libs.chassis.housekeeping import BATCH
from libs.chassis.unit_of_work import Tx
from libs.contracts.events import MemoryActorErased, SessionActorErased
from services.distiller.domain import Pipeline
from services.distiller.store.batches import NOTHING_WAITS
from services.distiller.store.pipelines import COLUMNS


class Erasures:
    async def forget_session(self, tx: Tx, session_uid: UUID) -> None:
        """A session that is gone has nothing left to distil. Only a replay still passes through it, up to all that its
        live lane can have distilled of it: else the replay never catches up with the store."""
        await tx.execute(
            "with gone as (delete from lane_sessions s using pipelines p where s.session_uid = $1"
            "  and p.pipeline_uid = s.pipeline_uid and p.parent_uid is null"
            "  returning s.pipeline_uid, s.actor_id, greatest(s.known_position, s.distilled_position) as position)"
            " update lane_sessions s set known_position = greatest(s.known_position, gone.position),"
            "  goal_position = greatest(s.goal_position, gone.position)"
            " from gone join pipelines p on p.parent_uid = gone.pipeline_uid"
            " where s.pipeline_uid = p.pipeline_uid and s.actor_id = gone.actor_id and s.session_uid = $1",
            session_uid,
        )

    async def begin(self, tx: Tx, event: SessionActorErased | MemoryActorErased) -> tuple[bool, int]:
        """Whether this erasure is news, for an announcement is repeated, or comes after a later one, and what came
        after those must stay; and the actor's epoch in that store since: the erasure's own, or the next one where
        another erasure had that.

        Of the first erasures only the last epoch was noted: there one is news only by a later epoch.
        """
        noted = await tx.fetchrow(
            "insert into erased_actors as e (store_uid, actor_id, epoch, erasure_ids, epochs)"
            " values ($1, $2, $3, array[$4::uuid], array[$3::bigint])"
            " on conflict (store_uid, actor_id) do update set erasure_ids = e.erasure_ids || excluded.erasure_ids,"
            " epoch = case when excluded.epoch = any (e.epochs) then e.epoch + 1"
            "  else greatest(e.epoch, excluded.epoch) end,"
            " epochs = e.epochs || case when excluded.epoch = any (e.epochs) then e.epoch + 1 else excluded.epoch end"
            " where $4 <> all (e.erasure_ids) and (excluded.epoch > e.epoch or e.epochs <> '{}')"
            " returning epoch, epochs[cardinality(epochs)] = epoch as is_news",
            event.store_uid,
            event.actor_id,
            event.epoch,
            event.erasure_id,
        )
        if noted is not None:
            return noted["is_news"], noted["epoch"]
        known = "select epoch from erased_actors where store_uid = $1 and actor_id = $2"
        return False, await tx.fetchval(known, event.store_uid, event.actor_id)

    async def forget_said(self, tx: Tx, session_store_uid: UUID, actor_id: str) -> int:
        """Drops an actor's lanes, batches and stored answers of the pipelines on a session store; returns how many."""
        mine = "pipeline_uid in (select pipeline_uid from pipelines where session_store_uid = $1) and actor_id = $2"
        lanes = await tx.execute(
            f"with held as (select pipeline_uid, actor_id from lanes where {mine} order by pipeline_uid for update)"
            " delete from lanes l using held where l.pipeline_uid = held.pipeline_uid and l.actor_id = held.actor_id",
            session_store_uid,
            actor_id,
        )
        batches = await tx.execute(f"delete from batches where {mine}", session_store_uid, actor_id)
        return lanes + batches

    async def forget_remembered(self, tx: Tx, memory_store_uid: UUID, actor_id: str) -> int:
        """Drops an actor's batches for a memory store, and frees the lanes that waited for them."""
        # All the lanes that may send one, first: a batch that is handed over meanwhile comes before or after all this.
        await tx.execute(
            "select from lanes where actor_id = $2"
            " and pipeline_uid in (select pipeline_uid from pipelines where memory_store_uid = $1)"
            " order by pipeline_uid for no key update",
            memory_store_uid,
            actor_id,
        )
        return await tx.execute(
            "with gone as (delete from batches where memory_store_uid = $1 and actor_id = $2"
            "  returning pipeline_uid, batch_id),"
            " freed as (update lanes l set pending_batch = null from gone"
            "  where l.pipeline_uid = gone.pipeline_uid and l.actor_id = $2 and l.pending_batch = gone.batch_id"
            "  returning l.pipeline_uid, l.actor_id),"
            f" applied as ({NOTHING_WAITS})"
            " select from gone",
            memory_store_uid,
            actor_id,
        )

    async def forget_store(self, tx: Tx, store_uid: UUID) -> None:
        """A store is gone: the lanes of its pipelines go in the background; the pipelines stay and say so when run."""
        await tx.execute(
            "insert into gone_stores (store_uid) values ($1)"
            " on conflict (store_uid) do update set created_at = excluded.created_at",
            store_uid,
        )

    async def of_gone_stores(self, tx: Tx) -> list[tuple[Pipeline, UUID]]:
        """Pipelines that have lanes or batches left, each with the store whose deletion was told."""
        rows = await tx.fetch(
            f"select {COLUMNS}, store_uid as gone_uid from pipelines p"
            " join gone_stores g on g.store_uid in (p.session_store_uid, p.memory_store_uid)"
            " where exists (select from lanes l where l.pipeline_uid = p.pipeline_uid)"
            " or exists (select from batches b where b.pipeline_uid = p.pipeline_uid)"
        )
        return [(Pipeline(*columns), gone_uid) for *columns, gone_uid in map(asyncpg.Record.values, rows)]

    async def purge(self, tx: Tx, pipeline_uid: UUID) -> int:
        """Drops a portion of a pipeline's lanes and batches; nothing is left when it is less than `BATCH`."""
        lanes = await tx.execute(
            "with held as (select actor_id from lanes where pipeline_uid = $1 order by actor_id limit $2 for update)"
            " delete from lanes l using held where l.pipeline_uid = $1 and l.actor_id = held.actor_id",
            pipeline_uid,
            BATCH,
        )
        batches = await tx.execute(
            "with held as (select batch_id from batches where pipeline_uid = $1 order by batch_id limit $2 for update)"
            " delete from batches b using held where b.batch_id = held.batch_id",
            pipeline_uid,
            BATCH,
        )
        return max(lanes, batches)

    async def expire_gone_stores(self, tx: Tx) -> None:
        """After a day nothing is on its way any more that would make lanes of a deleted store."""
        await tx.execute("delete from gone_stores where created_at < now() - interval '1 day'")
