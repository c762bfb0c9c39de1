"""What the distiller asks for: readable lines after a position, and which sessions changed."""

import base64
import binascii
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

import asyncpg

from libs.chassis.database import Database
from libs.contracts.requests import ChangedSession, ChangedSessions, FoundSession
from services.session.store.activity import active_in

# One statement, hence one snapshot: an append that is in `last_position` has its items here. Rows are taken while
# those before them fit into $5 bytes, so that a page of huge items is never in memory at once.
TRANSCRIPT = """
with session as (
    select t.session_uid, t.last_position, t.copied_through, t.cleared_through, coalesce(e.epoch, 0) as epoch
    from sessions t left join actor_epochs e on e.store_uid = t.store_uid and e.actor_id = t.actor_id
    where t.store_uid = $1 and t.session_uid = $2
)
select s.last_position, s.copied_through, s.epoch, i.position, i.role, i.data, i.occurred_at, i.create_time,
    i.found
from session s left join lateral (
    select * from (
        select position, role, data, occurred_at, create_time,
            sum(octet_length(data)) over (order by position) - octet_length(data) as bytes_before,
            count(*) over () as found
        from (
            select position, role, data, occurred_at, create_time from session_items
            where store_uid = $1 and session_uid = $2 and position > greatest($3, s.cleared_through)
                and role is not null and popped_at is null
            order by position limit $4
        ) read
    ) measured where bytes_before < $5 order by position
) i on true
"""

CHANGED = f"""
select session_uid, session_id, actor_id, last_position, copied_through, last_activity_time from sessions
where store_uid = $1 and ($7 or last_position > copied_through)
    and ($2::timestamptz is null or active_in >= {active_in("$2")} and last_activity_time >= $2)
    and ($3::text is null or actor_id = $3)
    and ($4::timestamptz is null
        or (active_in, last_activity_time, session_uid) > ({active_in("$4")}, $4, $5::uuid))
order by active_in, last_activity_time, session_uid limit $6
"""


@dataclass(frozen=True, slots=True)
class StoredLine:
    position: int
    role: str
    data: str
    occurred_at: str | None
    create_time: datetime


@dataclass(frozen=True, slots=True)
class StoredTranscript:
    """A session as the distiller reads it. `is_whole`: no readable line comes after these."""

    lines: list[StoredLine]
    is_whole: bool
    last_position: int
    copied_through: int
    epoch: int


class Transcripts:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def find(self, store_uid: UUID, session_id: str) -> FoundSession:
        row = await self._database.fetchrow(
            "select session_uid, actor_id, last_position from sessions where store_uid = $1 and session_id = $2"
            " and exists (select from session_stores t where t.store_uid = $1)",  # what a deleted one held goes later
            store_uid,
            session_id,
        )
        return FoundSession() if row is None else FoundSession(**row)

    async def read(
        self, store_uid: UUID, session_uid: UUID, *, after: int, limit: int, max_bytes: int
    ) -> StoredTranscript | None:
        """At most `limit` lines, the last of which begins below `max_bytes`; None for a session that is gone."""
        rows = await self._database.fetch(TRANSCRIPT, store_uid, session_uid, after, limit, max_bytes)
        if not rows:
            return None
        lines = [_line(row) for row in rows if row["position"] is not None]
        first = rows[0]
        found = first["found"] or 0
        return StoredTranscript(
            lines,
            found == len(lines) and found < limit,
            first["last_position"],
            first["copied_through"],
            first["epoch"],
        )

    async def changed(
        self,
        store_uid: UUID,
        *,
        since: datetime | None,
        actor_id: str | None,
        empty_too: bool,
        cursor: str | None,
        limit: int,
    ) -> ChangedSessions:
        """Sessions by their last activity. Copies alone are nothing to distil: such a session counts as empty."""
        after = _decode(cursor)
        rows = await self._database.fetch(
            CHANGED, store_uid, since, actor_id, *(after or (None, None)), limit + 1, empty_too
        )
        if not rows and not await self._database.fetchval(
            "select true from session_stores where store_uid = $1", store_uid
        ):
            return ChangedSessions(gone=True)
        page = [ChangedSession(**dict(row)) for row in rows[:limit]]
        return ChangedSessions(sessions=page, cursor=_encode(page[-1]) if len(rows) > limit else None)


def _line(row: asyncpg.Record) -> StoredLine:
    return StoredLine(row["position"], row["role"], row["data"], row["occurred_at"], row["create_time"])


def _encode(last: ChangedSession) -> str:
    text = f"{last.last_activity_time.isoformat()} {last.session_uid}"
    return base64.urlsafe_b64encode(text.encode()).decode()


def _decode(cursor: str | None) -> tuple[datetime, UUID] | None:
    """Raises `ValueError` for what is no cursor."""
    if cursor is None:
        return None
    try:
        time, _, uid = base64.urlsafe_b64decode(cursor).decode().partition(" ")
    except binascii.Error as error:
        raise ValueError("not a cursor") from error
    return datetime.fromisoformat(time), UUID(uid)
