"""Which entries of a lane's actor were looked at together, and that there is nothing left to look at."""

from collections.abc import Sequence

from libs.chassis.database import Database
from services.distiller.domain import Lease


class Consolidations:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def considered(self, lease: Lease) -> set[str]:
        """The fingerprints of groups that need no second look."""
        rows = await self._database.fetch(
            "select fingerprint from considered where pipeline_uid = $1 and actor_id = $2",
            lease.pipeline_uid,
            lease.actor_id,
        )
        return {row["fingerprint"] for row in rows}

    async def consider(self, lease: Lease, fingerprints: Sequence[str]) -> None:
        """An answer is at hand, so these were looked at, whatever it says; nothing without the lease."""
        await self._database.write(
            "insert into considered (pipeline_uid, actor_id, fingerprint)"
            " select l.pipeline_uid, l.actor_id, f from lanes l, unnest($4::text[]) f"
            " where l.pipeline_uid = $1 and l.actor_id = $2 and l.lease_token = $3 on conflict do nothing",
            lease.pipeline_uid,
            lease.actor_id,
            lease.token,
            list(fingerprints),
        )

    async def end(self, lease: Lease, fingerprints: Sequence[str] | None = None) -> None:
        """The consolidation is over; of the groups only those are remembered, or all when it is not known."""
        await self._database.write(
            "with lane as (update lanes set consolidate = false, changed = 0"
            "  where pipeline_uid = $1 and actor_id = $2 and lease_token = $3 returning 1)"
            " delete from considered where pipeline_uid = $1 and actor_id = $2 and fingerprint <> all($4::text[])"
            " and exists (select from lane)",
            lease.pipeline_uid,
            lease.actor_id,
            lease.token,
            fingerprints,
        )
