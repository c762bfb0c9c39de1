"""How far each session is distilled into a store."""

from dataclasses import dataclass
from uuid import UUID

from libs.chassis.auth import Caller
from libs.chassis.database import Database
from services.memory.store.access import STORE, permitted


@dataclass(frozen=True, slots=True)
class Reached:
    """A session is searchable up to a position."""

    session_store_uid: UUID
    session_uid: UUID
    position: int


class Progress:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def reached(self, caller: Caller, store_uid: UUID, session_store_id: str, session_id: str) -> Reached | None:
        """How far a session is searchable; None before anything is. Of sessions that had the name, the youngest that
        anything was distilled of: uids are ordered by time."""
        rows = await self._database.fetch(
            f"with s as ({STORE}) select s.level, p.* from s left join lateral"
            " (select session_store_uid, session_uid, position from progress"
            " where store_uid = $1 and session_store_id = $4 and session_id = $5"
            " order by session_uid desc limit 1) p on s.level >= 1",
            store_uid,
            caller.principal_type,
            caller.principal,
            session_store_id,
            session_id,
        )
        row = permitted(rows)[0]
        if row["session_uid"] is None:
            return None
        return Reached(row["session_store_uid"], row["session_uid"], row["position"])
