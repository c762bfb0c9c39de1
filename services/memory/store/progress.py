"""How far each session is distilled into a store."""

from uuid import UUID

from libs.chassis.auth import Caller
from libs.chassis.database import Database
from services.memory.store.access import STORE, permitted


class Progress:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def applied(self, caller: Caller, store_uid: UUID, session_store_id: str, session_id: str) -> int:
        """The position up to which a session is searchable; 0 before anything is. Of sessions that had the name, the
        youngest counts: uids are ordered by time."""
        rows = await self._database.fetch(
            f"with s as ({STORE}) select s.level, p.position from s left join lateral"
            " (select position from progress where store_uid = $1 and session_store_id = $4 and session_id = $5"
            " order by session_uid desc limit 1) p on s.level >= 1",
            store_uid,
            caller.principal_type,
            caller.principal,
            session_store_id,
            session_id,
        )
        return permitted(rows)[0]["position"] or 0
