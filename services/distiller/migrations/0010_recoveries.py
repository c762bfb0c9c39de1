"""When an endpoint answered again after it had failed: the other replicas need not wait any longer either."""

from libs.chassis.migrations import execute

revision = "distiller_0010"
down_revision = "distiller_0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    execute("""
create table recoveries (
    provider text primary key,
    recovered_at timestamptz not null
);
""")
