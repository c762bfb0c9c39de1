"""Which erasures of an actor were heard of: a store that was restored to an older state gives its epochs again."""

from libs.chassis.migrations import execute

revision = "distiller_0011"
down_revision = "distiller_0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    execute("""
alter table erased_actors add column erasure_ids uuid[] not null default '{}';
""")
