"""The change feed: rows of transactions that are over, in the order of their numbers.

An identity column alone would lose the row that commits late; below the oldest running transaction nothing can appear
any more. What expired is remembered as a horizon: whoever asks from before it has missed something.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import asyncpg

from libs.chassis.auth import Caller
from libs.chassis.database import Database
from libs.chassis.housekeeping import BATCH, Pass
from libs.chassis.unit_of_work import Tx
from services.memory.store.access import STORE, permitted

PAGE = 500

# The first transaction that has not begun yet. A database that was restored into another server holds later ones, and
# its readers name them: nothing of this server is after those.
_NEXT = "pg_snapshot_xmax(pg_current_snapshot())"


@dataclass(frozen=True, slots=True)
class Place:
    """Where a reader of the feed is: all up to and with this change is known."""

    tx: int
    change_id: int


@dataclass(frozen=True, slots=True)
class FeedChange:
    place: Place
    change: str
    actor_id: str
    entry_id: str | None
    path: str | None
    session_id: str | None
    kind: str | None
    version: int | None


class Changes:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def now(self, caller: Caller, store_uid: UUID) -> Place:
        """The end of the feed: everything that is visible is before it."""
        rows = await self._database.fetch(
            f"with s as ({STORE}) select s.level, pg_snapshot_xmin(pg_current_snapshot())::text as tx from s",
            store_uid,
            caller.principal_type,
            caller.principal,
        )
        return Place(int(permitted(rows)[0]["tx"]), 0)

    async def after(
        self, caller: Caller, store_uid: UUID, actor_id: str | None, place: Place
    ) -> Sequence[FeedChange] | None:
        """The next changes; None when some after `place` have expired, or `place` is of another server."""
        arguments: list[Any] = [store_uid, caller.principal_type, caller.principal]
        arguments += [str(place.tx), place.change_id, PAGE]
        condition = ""
        if actor_id is not None:
            arguments.append(actor_id)
            condition = " and c.actor_id = $7"
        rows = await self._database.fetch(
            f"with s as ({STORE}) select s.level, c.*,"
            " exists (select from change_horizons z where z.store_uid = $1"
            f" and (z.tx, z.change_id) > ($4::text::xid8, $5) and z.tx < {_NEXT}) or $4::text::xid8 > {_NEXT} as lost"
            " from s left join lateral (select c.tx::text as tx, c.change_id, c.actor_id, c.change, c.entry_id, c.path,"
            " c.session_id, c.kind, c.version from changes c where c.store_uid = $1"
            " and (c.tx, c.change_id) > ($4::text::xid8, $5)"
            f" and c.tx < pg_snapshot_xmin(pg_current_snapshot()){condition}"
            " order by c.tx, c.change_id limit $6) c on s.level >= 1 order by c.tx::xid8, c.change_id",
            *arguments,
        )
        if permitted(rows)[0]["lost"]:
            return None
        return [_change(row) for row in rows if row["tx"] is not None]


def _change(row: asyncpg.Record) -> FeedChange:
    return FeedChange(
        Place(int(row["tx"]), row["change_id"]),
        row["change"],
        row["actor_id"],
        row["entry_id"],
        row["path"],
        row["session_id"],
        row["kind"],
        row["version"],
    )


async def _expire(tx: Tx) -> int:
    return await tx.execute(
        "with gone as (delete from changes where ctid = any(array("
        f"select ctid from changes where created_at < now() - interval '7 days' order by created_at limit {BATCH}))"
        " returning store_uid, tx, change_id),"
        " last as (select distinct on (store_uid) store_uid, tx, change_id from gone"
        f" where tx < {_NEXT} order by store_uid, tx desc, change_id desc),"
        " kept as (insert into change_horizons as z (store_uid, tx, change_id) select store_uid, tx, change_id"
        " from last on conflict (store_uid) do update set tx = excluded.tx, change_id = excluded.change_id"
        f" where (z.tx, z.change_id) < (excluded.tx, excluded.change_id) or z.tx >= {_NEXT})"
        " select from gone"
    )


EXPIRE_CHANGES = Pass("expire_changes", _expire)
