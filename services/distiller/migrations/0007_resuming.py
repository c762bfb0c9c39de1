"""What a paused pipeline does once it is resumed: what it did before."""

from libs.chassis.migrations import execute

revision = "distiller_0007"
down_revision = "distiller_0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    execute("""
alter table pipelines add column resumes_as text not null default 'SCHEDULED'
    check (resumes_as in ('SCHEDULED', 'CONTINUOUS'));
""")
