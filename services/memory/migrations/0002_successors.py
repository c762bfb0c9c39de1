"""The entries that say it now, on the version that ends a rewritten one."""

from libs.chassis.migrations import execute

revision = "0002_memory"
down_revision = "0001_memory"
branch_labels = None
depends_on = None


def upgrade() -> None:
    execute("alter table entry_versions add column successors text[];")
