"""How often in a row something went wrong for an actor of a replay, and when it is tried again."""

from libs.chassis.migrations import execute

revision = "distiller_0005"
down_revision = "distiller_0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    execute("""
alter table replay_actors add column attempts integer not null default 0;
alter table replay_actors add column retry_at timestamptz;
""")
