"""What is gone is removed in the background, in batches; what a late writer must update first goes first."""

from libs.chassis.housekeeping import BATCH, Pass
from libs.chassis.unit_of_work import Tx

# Sessions before items: an append that was under way waits for its session's row, and afterwards finds none.
OF_A_STORE = ("session_items", "item_purges", "idempotency_keys", "actor_epochs", "parked_messages", "erasures")


async def purge_stores(tx: Tx) -> int:
    """Takes a batch of what a deleted store held."""
    store_uid = await tx.fetchval("select store_uid from purges order by store_uid limit 1")
    if store_uid is None:
        return 0
    touched = await tx.execute(
        "delete from sessions where store_uid = $1 and session_uid = any(array("
        "select session_uid from sessions where store_uid = $1 limit $2))",
        store_uid,
        BATCH,
    )
    if touched:
        return BATCH
    for table in OF_A_STORE:
        touched = await tx.execute(
            f"delete from {table} where ctid = any(array(select ctid from {table} where store_uid = $1 limit $2))",
            store_uid,
            BATCH,
        )
        if touched:
            return BATCH
    await tx.execute("delete from purges where store_uid = $1", store_uid)
    return BATCH


async def purge_items(tx: Tx) -> int:
    """Takes a batch of the items of a session that was erased, deleted or cleared; what was erased goes first."""
    row = await tx.fetchrow(
        "select store_uid, session_uid, through from item_purges order by (erasure_id is null), created_at limit 1"
    )
    if row is None:
        return 0
    touched = await tx.execute(
        "delete from session_items where store_uid = $1 and session_uid = $2 and position = any(array("
        "select position from session_items where store_uid = $1 and session_uid = $2 and position <= $3"
        " order by position limit $4))",
        *row.values(),
        BATCH,
    )
    if touched < BATCH:
        await tx.execute(
            "delete from item_purges where store_uid = $1 and session_uid = $2 and through = $3", *row.values()
        )
    return BATCH


async def purge_popped(tx: Tx) -> int:
    """Takes popped items whose Idempotency-Key has ended."""
    return await tx.execute(
        "delete from session_items where ctid = any(array("
        "select ctid from session_items where popped_at < now() - interval '24 hours' limit $1))",
        BATCH,
    )


ITEMS = Pass("purge_items", purge_items)
PASSES = (Pass("purge_stores", purge_stores), ITEMS, Pass("purge_popped", purge_popped))
