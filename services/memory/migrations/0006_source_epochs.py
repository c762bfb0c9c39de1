"""Under which epoch of the session store something was told: an erasure that comes late spares what came after it."""

from libs.chassis.migrations import execute

revision = "0006_memory"
down_revision = "0005_memory"
branch_labels = None
depends_on = None


def upgrade() -> None:
    execute("""
alter table version_evidence add column source_epoch bigint not null default 0;
alter table progress add column source_epoch bigint not null default 0;
alter table shadow_lines add column source_epoch bigint not null default 0;
""")
