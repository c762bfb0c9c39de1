"""Who may: the grant is read inside the statement that needs it."""

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

import asyncpg

from libs.chassis.auth import Caller
from libs.chassis.errors import Contended
from libs.chassis.stores import LEVEL, READ, Level
from libs.chassis.unit_of_work import Tx

# With whatever somebody holds: waiters must not use up everybody else's connections, nor hold up what came with them.
PATIENCE_MS = 1000
GROUP_PATIENCE_MS = 50  # of who has several actors' turns; then each is asked for alone

# One row for a store that exists, whatever the caller may: $1 store_uid, $2 principal type, $3 principal.
STORE = (
    f"select s.store_uid, s.workspace_id, s.options, {LEVEL} as level from memory_stores s"
    " left join store_grants g on g.store_uid = s.store_uid and g.principal_type = $2 and g.principal = $3"
    " where s.store_uid = $1"
)


class StoreGone(Exception):
    """The uid names no store any more; its name may mean another by now."""


class Forbidden(Exception):
    """The store exists, and the caller lacks this level on it."""

    def __init__(self, level: Level) -> None:
        super().__init__(level)
        self.level = level


@dataclass(frozen=True, slots=True)
class OpenStore:
    """A store that cannot be deleted before the transaction ends. `language` as the store asks for it."""

    store_uid: UUID
    workspace_id: int
    language: str | None


def permitted(rows: Sequence[asyncpg.Record], level: Level = READ) -> Sequence[asyncpg.Record]:
    """The rows of a statement over `STORE`, or what forbids them."""
    if not rows:
        raise StoreGone
    if rows[0]["level"] < level:
        raise Forbidden(level)
    return rows


# Taken before anything gives the transaction its number, so that an actor's changes are numbered in the order in which
# they commit: the change feed goes by these numbers. `for key share` runs above the join, hence after the wait.
_TURN = "hashtextextended($1::uuid::text || ':' || {actor}, 0)"
_PATIENCE = "set_config('lock_timeout', '{ms}', true)"
_IN_TURN = (
    f"with turn as materialized (select {_PATIENCE.format(ms=PATIENCE_MS)},"
    f" pg_advisory_xact_lock({_TURN.format(actor='$2::text')}) is not null as is_had)"
)
# Whoever has one actor's turn waits for no other's, and hardly for a row: one stuck actor delays none.
_IN_TURNS = (
    f"with turn as materialized (select {_PATIENCE.format(ms=GROUP_PATIENCE_MS)},"
    f" bool_and(pg_try_advisory_xact_lock({_TURN.format(actor='actor_id')})) as is_had"
    " from unnest($2::text[]) actor_id)"
)


async def open_store(
    tx: Tx, store_uid: UUID, actor_id: str, caller: Caller, level: Level, *, or_admin: bool = False
) -> OpenStore:
    """Waits for the actor's turn, keeps the store from being deleted under a writer, and checks the writer's grant.

    The turn, and whatever the transaction waits for later, has to come within `PATIENCE_MS`, or it raises `Contended`.
    """
    row = await tx.fetchrow(
        f"{_IN_TURN} select s.workspace_id, s.options->>'language' as language, {LEVEL} as level"
        " from turn cross join memory_stores s"
        " left join store_grants g on g.store_uid = s.store_uid and g.principal_type = $3 and g.principal = $4"
        " where s.store_uid = $1 for key share of s",
        store_uid,
        actor_id,
        caller.principal_type,
        caller.principal,
    )
    if row is None:
        raise StoreGone
    if row["level"] < level and not (or_admin and caller.admin):
        raise Forbidden(level)
    return OpenStore(store_uid, row["workspace_id"], row["language"])


async def open_store_for_batch(tx: Tx, store_uid: UUID, actor_id: str) -> OpenStore | None:
    """As `open_store`, for what was authorised before: a pipeline's batch, an erasure or a swap. Opens shadows too."""
    return await _open(tx, _IN_TURN, store_uid, actor_id)


async def open_store_for_batches(tx: Tx, store_uid: UUID, actor_ids: Sequence[str]) -> OpenStore | None:
    """As `open_store_for_batch`, for several actors: raises `Contended` where somebody else has the turn of one."""
    if len(actor_ids) == 1:
        return await open_store_for_batch(tx, store_uid, actor_ids[0])
    return await _open(tx, _IN_TURNS, store_uid, actor_ids)


async def _open(tx: Tx, turn: str, store_uid: UUID, actors: str | Sequence[str]) -> OpenStore | None:
    row = await tx.fetchrow(
        f"{turn} select turn.is_had, s.workspace_id, s.options->>'language' as language"
        " from turn cross join memory_stores s where s.store_uid = $1 for key share of s",
        store_uid,
        actors,
    ) or await tx.fetchrow(
        f"{turn} select turn.is_had, s.workspace_id, s.language from turn cross join shadow_stores s"
        " where s.store_uid = $1 for key share of s",
        store_uid,
        actors,
    )
    if row is not None and not row["is_had"]:
        raise Contended
    return None if row is None else OpenStore(store_uid, row["workspace_id"], row["language"])
