"""What was spent outlives its pipeline, and is booked where there is none: on an extraction's pair of stores."""

from libs.chassis.migrations import execute

revision = "distiller_0002"
down_revision = "distiller_0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    execute("""
alter table usage drop constraint usage_pipeline_uid_fkey;
create index usage_workspace on usage (workspace_id, day);
""")
