"""What the distiller is told of an actor before it decides."""

from collections.abc import Sequence
from uuid import UUID

from libs.chassis.database import Database
from services.memory.domain import Entry
from services.memory.store.records import ENTRY_COLUMNS, entry_from


class Distilling:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def epoch(self, store_uid: UUID, actor_id: str) -> int | None:
        """The actor's epoch in a memory store or a shadow; None when it is deleted."""
        epoch: int | None = await self._database.fetchval(
            "select coalesce(a.epoch, 0) from (select store_uid from memory_stores where store_uid = $1"
            " union all select store_uid from shadow_stores where store_uid = $1) s"
            " left join actor_epochs a on a.store_uid = s.store_uid and a.actor_id = $2",
            store_uid,
            actor_id,
        )
        return epoch

    async def at(self, store_uid: UUID, actor_id: str, paths: Sequence[str]) -> list[Entry]:
        """The slots at these paths, retired ones too: what is written there names their version."""
        rows = await self._database.fetch(
            f"select {ENTRY_COLUMNS} from entries e where e.store_uid = $1 and e.actor_id = $2"
            " and e.path = any($3::text[]) and e.session_id is null order by e.path",
            store_uid,
            actor_id,
            paths,
        )
        return [entry_from(row) for row in rows]
