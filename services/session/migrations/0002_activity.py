"""What was last active is found by tens of seconds, so that the appends of one turn leave the indexes alone."""

from libs.chassis.migrations import execute

revision = "0002"
down_revision = "0001"

ACTIVITY = """
alter table sessions add column active_in timestamptz not null
    generated always as (date_bin('10 seconds', last_activity_time, '2000-01-01T00:00:00Z'::timestamptz)) stored;
create index sessions_active on sessions (store_uid, active_in);
drop index sessions_last_activity;
"""


def upgrade() -> None:
    execute(ACTIVITY)
