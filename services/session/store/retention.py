"""Sessions that their store keeps no longer go whole, each once its descendants are gone."""

from libs.chassis.housekeeping import Pass
from libs.chassis.unit_of_work import Tx
from services.session.store.sessions import remove

BATCH = 500

DUE = """
    t.active_in < now() - least(
        make_interval(mins => (s.options ->> 'idle_ttl_minutes')::int),
        make_interval(days => (s.options ->> 'retention_days')::int))
    and (t.last_activity_time < now() - make_interval(mins => (s.options ->> 'idle_ttl_minutes')::int)
        or t.update_time < now() - make_interval(days => (s.options ->> 'retention_days')::int))
    and not exists (select from sessions c where c.store_uid = t.store_uid and c.parent_session_uid = t.session_uid)
"""

STORE = f"""
select s.store_uid, s.workspace_id from session_stores s
where s.options ?| array['idle_ttl_minutes', 'retention_days'] and exists (
    select from sessions t where t.store_uid = s.store_uid and {DUE})
order by s.store_uid limit 1
"""

SESSIONS = f"""
select t.session_uid from sessions t join session_stores s on s.store_uid = t.store_uid
where t.store_uid = $1 and {DUE} order by t.active_in, t.session_uid limit $2 for update of t
"""


async def sweep(tx: Tx) -> int:
    """Takes a batch of one store's sessions; how many, so that a full batch or another store asks for more."""
    store = await tx.fetchrow(STORE)
    if store is None:
        return 0
    locked = [row["session_uid"] for row in await tx.fetch(SESSIONS, store["store_uid"], BATCH)]
    # A child may have come before its parent was locked; from now on none can.
    parents = await tx.fetch(
        "select distinct parent_session_uid from sessions where store_uid = $1 and parent_session_uid = any($2)",
        store["store_uid"],
        locked,
    )
    kept = {row["parent_session_uid"] for row in parents}
    await remove(tx, store["workspace_id"], store["store_uid"], [uid for uid in locked if uid not in kept])
    return 1


SWEEP = Pass("retention", sweep, batch=1)
