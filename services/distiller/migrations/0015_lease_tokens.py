"""A lane that is made anew begins with another token, for a worker may still hold the lease of the one before it; and
where just the last epoch of an actor's erasures was noted, it is one of those that were given."""

from libs.chassis.migrations import execute

revision = "distiller_0015"
down_revision = "distiller_0014"
branch_labels = None
depends_on = None


def upgrade() -> None:
    execute("""
alter table lanes alter column lease_token set default (random() * 1e15)::bigint;
update erased_actors set epochs = array[epoch] where epochs = '{}' and erasure_ids <> '{}';
""")
