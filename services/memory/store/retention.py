"""`history_days`: versions that ended longer ago go, with their evidence; what holds now stays, however old."""

from libs.chassis.housekeeping import BATCH, Pass
from libs.chassis.unit_of_work import Tx

_LONG_AGO = "now() - make_interval(days => (s.options->>'history_days')::int)"


async def _expire_versions(tx: Tx) -> int:
    return await tx.execute(
        "delete from entry_versions where (store_uid, actor_id, entry_uid, version) in ("
        " select v.store_uid, v.actor_id, v.entry_uid, v.version from memory_stores s cross join lateral ("
        " select x.*, lead(x.valid_from) over (partition by x.entry_uid"
        " order by x.valid_from, x.recorded_at, x.version) as ended from entry_versions x"
        " where x.store_uid = s.store_uid) v"
        f" where s.options ? 'history_days' and v.ended < {_LONG_AGO} limit {BATCH})"
    )


async def _expire_retired(tx: Tx) -> int:
    return await tx.execute(
        "delete from entries where (store_uid, entry_uid) in ("
        " select e.store_uid, e.entry_uid from memory_stores s join entries e on e.store_uid = s.store_uid"
        f" where s.options ? 'history_days' and e.retired and e.valid_from < {_LONG_AGO} limit {BATCH})"
    )


PASSES = (Pass("expire_versions", _expire_versions), Pass("expire_retired", _expire_retired))
