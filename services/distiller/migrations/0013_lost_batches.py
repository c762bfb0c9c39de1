"""Which lanes wait for a batch: one whose batch is gone is found among them, not among all lanes."""

from libs.chassis.migrations import execute

revision = "distiller_0013"
down_revision = "distiller_0012"
branch_labels = None
depends_on = None


def upgrade() -> None:
    execute("""
create index lanes_pending on lanes (pending_batch) where pending_batch is not null;
""")
