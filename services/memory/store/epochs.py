"""How often an actor was erased in a store, of either kind: what was decided before counts no more."""

from uuid import UUID

from libs.chassis.unit_of_work import Tx

# The epochs of the actors $2, each there once, in the store $1, which nobody can raise before the transaction ends.
HOLD_EPOCHS = (
    "insert into actor_epochs (store_uid, actor_id, epoch)"
    " select $1, actor_id, 0 from unnest($2::text[]) actor_id order by actor_id"
    " on conflict (store_uid, actor_id) do update set epoch = actor_epochs.epoch returning actor_id, epoch"
)


async def hold_epoch(tx: Tx, store_uid: UUID, actor_id: str) -> int:
    row = await tx.fetchrow(HOLD_EPOCHS, store_uid, [actor_id])
    assert row is not None  # noqa: S101 - an upsert returns its row
    return int(row["epoch"])


async def read_epoch(tx: Tx, store_uid: UUID, actor_id: str) -> int:
    epoch = await tx.fetchval(
        "select epoch from actor_epochs where store_uid = $1 and actor_id = $2", store_uid, actor_id
    )
    return epoch or 0


async def raise_epoch(tx: Tx, store_uid: UUID, actor_id: str, to: int | None = None) -> int:
    """One more, or what another service says; never less."""
    return int(
        await tx.fetchval(
            "insert into actor_epochs (store_uid, actor_id, epoch) values ($1, $2, coalesce($3::bigint, 1))"
            " on conflict (store_uid, actor_id)"
            " do update set epoch = greatest(actor_epochs.epoch + case when $3 is null then 1 else 0 end, $3)"
            " returning epoch",
            store_uid,
            actor_id,
            to,
        )
    )
