"""What the distiller is told of an actor before it decides."""

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from libs.chassis.database import Database
from services.memory.domain import Entry
from services.memory.store.records import ENTRY_COLUMNS, entry_from


@dataclass(frozen=True, slots=True)
class Known:
    """An actor's epoch, whether any entry is current, and the slots at some paths.

    Retired ones too: what is written there names their version.
    """

    epoch: int
    has_entries: bool
    named: list[Entry]


class Distilling:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def known(self, store_uid: UUID, actor_id: str, paths: Sequence[str]) -> Known | None:
        """Of a memory store or a shadow; None when it is deleted."""
        rows = await self._database.fetch(
            "select coalesce(x.epoch, 0) as epoch, coalesce(a.entry_count, 0) > 0 as has_entries,"
            f" {ENTRY_COLUMNS} from (select store_uid from memory_stores where store_uid = $1"
            " union all select store_uid from shadow_stores where store_uid = $1) s"
            " left join actor_epochs x on x.store_uid = $1 and x.actor_id = $2"
            " left join actor_stats a on a.store_uid = $1 and a.actor_id = $2"
            " left join entries e on e.store_uid = $1 and e.actor_id = $2 and e.path = any($3::text[])"
            " and e.session_id is null order by e.path",
            store_uid,
            actor_id,
            paths,
        )
        if not rows:
            return None
        named = [entry_from(row) for row in rows if row["entry_uid"] is not None]
        return Known(rows[0]["epoch"], rows[0]["has_entries"], named)
