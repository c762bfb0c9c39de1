"""Shadow stores: only batches and swaps reach one. It has no name and no grants, so nobody else can."""

from uuid import UUID

from libs.chassis.housekeeping import BATCH, Pass
from libs.chassis.unit_of_work import Tx
from libs.contracts.events import MemoriesDistilled
from services.memory.domain import INT64


async def make_shadow(tx: Tx, store_uid: UUID, of_store_uid: UUID, workspace_id: int) -> bool:
    """A shadow in the language of its store; False when that does not exist."""
    language = await tx.fetchrow(
        "select options->>'language' as language from memory_stores where store_uid = $1 for key share", of_store_uid
    )
    if language is None:
        return False
    await tx.execute(
        "insert into shadow_stores (store_uid, of_store_uid, workspace_id, language) values ($1, $2, $3, $4)"
        " on conflict do nothing",
        store_uid,
        of_store_uid,
        workspace_id,
        language["language"],
    )
    return True


async def note_lines(tx: Tx, batch: MemoriesDistilled) -> None:
    """Which lines a replay was given, told anything of them or not."""
    lines = [(each.session_uid, position) for each in batch.ranges for position in each.lines if 0 < position <= INT64]
    if lines:
        await tx.execute(
            "insert into shadow_lines (store_uid, actor_id, session_uid, position, source_epoch)"
            " select s.store_uid, $2, l.session_uid, l.position, $5 from shadow_stores s"
            " cross join unnest($3::uuid[], $4::bigint[]) l (session_uid, position) where s.store_uid = $1"
            " on conflict do nothing",
            batch.store_uid,
            batch.actor_id,
            [session_uid for session_uid, _ in lines],
            [position for _, position in lines],
            batch.source_epoch,
        )


async def drop_shadow(tx: Tx, store_uid: UUID) -> None:
    """Nothing reaches it from now on; what it held goes in the background."""
    await tx.execute(
        "with gone as (delete from shadow_stores where store_uid = $1 returning store_uid)"
        " insert into purges (store_uid) select store_uid from gone on conflict do nothing",
        store_uid,
    )


async def shadows_of(tx: Tx, store_uid: UUID) -> list[UUID]:
    rows = await tx.fetch("select store_uid from shadow_stores where of_store_uid = $1 order by store_uid", store_uid)
    return [row["store_uid"] for row in rows]


async def _drop_left(tx: Tx) -> int:
    return await tx.execute(
        "with gone as (delete from shadow_stores where ctid = any(array(select s.ctid from shadow_stores s"
        "  where s.created_at < now() - interval '30 days' and not exists (select from batches b"
        "   where b.store_uid = s.store_uid and b.created_at >= now() - interval '30 days') limit $1))"
        " returning store_uid)"
        " insert into purges (store_uid) select store_uid from gone on conflict do nothing",
        BATCH,
    )


# Of replays whose end was never heard of: a distiller restored from a backup knows nothing of them.
DROP_LEFT_SHADOWS = Pass("drop_left_shadows", _drop_left)
