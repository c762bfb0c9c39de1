"""Which epochs the erasures of an actor had: one that comes late had its own, a restored store gives one again."""

from libs.chassis.migrations import execute

revision = "distiller_0014"
down_revision = "distiller_0013"
branch_labels = None
depends_on = None


def upgrade() -> None:
    execute("""
alter table erased_actors add column epochs bigint[] not null default '{}';
""")
