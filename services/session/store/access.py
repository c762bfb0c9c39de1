"""Grants are read inside the statement that needs them. A name becomes a uid from memory, refreshed once when wrong."""

from collections.abc import Awaitable, Callable
from uuid import UUID

import asyncpg

from libs.chassis.auth import Caller
from libs.chassis.errors import NotFound
from libs.chassis.stores import LEVEL, Level, Stores
from libs.chassis.unit_of_work import Tx

# The caller's level on store $1 as ($2, $3); no row when there is no such store.
GRANTED = (
    f"granted as materialized (select {LEVEL} as level"
    " from session_stores s left join store_grants g"
    " on g.store_uid = s.store_uid and g.principal_type = $2 and g.principal = $3 where s.store_uid = $1)"
)

Statement = Callable[[UUID], Awaitable[list[asyncpg.Record]]]


def no_session(session_id: str) -> NotFound:
    return NotFound(f"Session '{session_id[:80]}' does not exist in this store.")


class Access:
    def __init__(self, stores: Stores) -> None:
        self._stores = stores

    async def rows(
        self, caller: Caller, store_id: str, level: Level, statement: Statement
    ) -> tuple[UUID, list[asyncpg.Record]]:
        """Runs a statement that answers at least one row with the caller's `level`; refuses what is below."""
        for fresh in (False, True):
            store_uid = await self._stores.uid(caller.workspace_id, store_id, fresh=fresh)
            rows = await statement(store_uid)
            found = rows[0]["level"]
            if found is not None:
                if found < level:
                    raise self._stores.kind.denied(store_id, level)
                return store_uid, rows
        raise self._stores.kind.missing(store_id)

    async def store(self, tx: Tx, caller: Caller, store_id: str, level: Level, *, hold: bool = False) -> UUID:
        """The store's uid within a transaction; with `hold` the store cannot be deleted before its end."""
        row = await tx.fetchrow(
            f"select s.store_uid, {LEVEL} as level from session_stores s"
            " left join store_grants g on g.store_uid = s.store_uid and g.principal_type = $3 and g.principal = $4"
            f" where s.workspace_id = $1 and s.store_id = $2 {'for key share of s' if hold else ''}",
            caller.workspace_id,
            store_id,
            caller.principal_type,
            caller.principal,
        )
        if row is None:
            raise self._stores.kind.missing(store_id)
        if row["level"] < level:
            raise self._stores.kind.denied(store_id, level)
        return UUID(str(row["store_uid"]))
