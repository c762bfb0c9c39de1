"""Pages of items: as many as were asked for, fewer when they are large, in one statement while none of them is."""

from collections.abc import Sequence
from typing import Any
from uuid import UUID

import asyncpg

from libs.chassis.auth import Caller
from libs.chassis.database import Database
from libs.chassis.paging import within_bytes
from libs.chassis.stores import READ
from services.session.domain.records import ItemPage
from services.session.store.access import GRANTED, Access, no_session
from services.session.store.item_texts import hex_of, item_texts

# `data` is null from where the page has no room for it.
PAGE = """
with {granted}, session as (
    select session_uid, cleared_through, {hex} as hex from sessions
    where store_uid = $1 and session_id = $4 and (select level from granted) >= 1
)
select (select level from granted) as level, s.session_uid, i.items, i.last, i.fitting, i.found,
    i.found = $6 and exists (
        select from session_items
        where store_uid = $1 and session_uid = s.session_uid and position > s.cleared_through and popped_at is null
            and {where} and position {beyond} i.last) as has_more
from (select) as one left join session s on true left join lateral (
    select {items} as items, count(*) as found, count(data) as fitting,
        {furthest}(position) filter (where data is not null) as last
    from (
        select position, {data} as data, occurred_at, create_time from (
            select position, data, occurred_at, create_time from session_items
            where store_uid = $1 and session_uid = s.session_uid and position > s.cleared_through and popped_at is null
                and {where}
            order by position {direction} limit $6
        ) page
    ) fitting
) i on true
"""

POSITION_END = 2**63 - 1
AMONG = "position = any($5::bigint[])"


class _Pages:
    """One kind of page: `small` takes no item above $7 bytes, `large` takes items until they have as many together."""

    def __init__(self, where: str, *, is_ascending: bool) -> None:
        direction = "asc" if is_ascending else "desc"
        self.small, self.large = (
            PAGE.format(
                granted=GRANTED,
                hex=hex_of("session_uid"),
                items=item_texts("s.hex", direction),
                where=where,
                data=data,
                direction=direction,
                beyond=">" if is_ascending else "<",
                furthest="max" if is_ascending else "min",
            )
            for data in (
                "case when octet_length(data) <= $7 then data end",
                within_bytes("data", f"position {direction}", "$7"),
            )
        )


OLDEST_FIRST = _Pages("position > $5", is_ascending=True)
NEWEST_FIRST = _Pages("position < $5", is_ascending=False)
THESE_OLDEST_FIRST = _Pages(AMONG, is_ascending=True)
THESE_NEWEST_FIRST = _Pages(AMONG, is_ascending=False)


class ItemPages:
    def __init__(self, access: Access, database: Database) -> None:
        self._access = access
        self._database = database

    async def page(
        self,
        caller: Caller,
        store_id: str,
        session_id: str,
        *,
        is_ascending: bool,
        after: int | None,
        positions: Sequence[int] | None,
        limit: int,
        max_bytes: int,
    ) -> ItemPage:
        """Items beyond `after` in the asked direction, of all or of those at `positions`: as many as fit, or one."""
        asked: Any = after
        if positions is not None:
            pages = THESE_OLDEST_FIRST if is_ascending else THESE_NEWEST_FIRST
            asked = [p for p in positions if after is None or (p > after if is_ascending else p < after)]
        elif is_ascending:
            pages, asked = OLDEST_FIRST, after or 0
        else:
            pages, asked = NEWEST_FIRST, POSITION_END if after is None else after

        async def small(store_uid: UUID) -> list[asyncpg.Record]:
            return await read(pages.small, store_uid, max_bytes // limit)

        async def large(store_uid: UUID) -> list[asyncpg.Record]:
            return await read(pages.large, store_uid, max_bytes)

        async def read(sql: str, store_uid: UUID, room: int) -> list[asyncpg.Record]:
            return await self._database.fetch(
                sql, store_uid, caller.principal_type, caller.principal, session_id, asked, limit, room
            )

        _, (row,) = await self._access.rows(caller, store_id, READ, small)
        if row["fitting"] != row["found"]:
            _, (row,) = await self._access.rows(caller, store_id, READ, large)
        if row["session_uid"] is None:
            raise no_session(session_id)
        is_last = row["fitting"] == row["found"] and not row["has_more"]
        return ItemPage(row["items"] or "", None if is_last else row["last"])
