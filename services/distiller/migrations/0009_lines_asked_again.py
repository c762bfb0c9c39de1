"""How often a line was asked again is counted for each line: `asked_again` holds one once for each time.

`again_count` counted by session; what still runs without this column writes it.
"""

from libs.chassis.migrations import execute

revision = "distiller_0009"
down_revision = "distiller_0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    execute("""
alter table lane_sessions add column asked_again bigint[] not null default '{}';
""")
