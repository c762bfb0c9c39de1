"""What a deleted store held goes in small pieces, children first; only then is the deletion forgotten."""

from libs.chassis.housekeeping import BATCH, Pass
from libs.chassis.unit_of_work import Tx

# Of an actor, by its column; children first: a cascade would look for them row by row.
BY_ACTOR_NO = ("entry_terms", "entry_vectors")
BY_ACTOR_ID = (
    "version_evidence",
    "entry_versions",
    "entries",
    "progress",
    "shadow_lines",
    "batches",
    "changes",
    "parked_messages",
)
TABLES = (
    *BY_ACTOR_NO,
    *BY_ACTOR_ID,
    "change_horizons",
    "erasures",
    "actor_stats",
    "actor_epochs",
    "idempotency_keys",
)


async def _purge(tx: Tx) -> int:
    store_uid = await tx.fetchval("select store_uid from purges order by created_at limit 1")
    if store_uid is None:
        return 0
    for table in TABLES:
        gone = await tx.execute(
            f"delete from {table} where ctid = any(array(select ctid from {table} where store_uid = $1 limit {BATCH}))",
            store_uid,
        )
        if gone:
            return gone
    return await tx.execute("delete from purges where store_uid = $1", store_uid)


# Each call touches one table, so it is asked again until nothing is left of any store.
PURGE = Pass("purge_stores", _purge, batch=1)
