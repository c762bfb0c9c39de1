"""An actor's erasures are found among a store's, which stay: they are the epochs that a store gave."""

from libs.chassis.migrations import execute

revision = "0007_memory"
down_revision = "0006_memory"
branch_labels = None
depends_on = None


def upgrade() -> None:
    execute("""
create index erasures_actor on erasures (store_uid, actor_id);
""")
