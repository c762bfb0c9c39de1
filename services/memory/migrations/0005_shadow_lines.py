"""The lines that a replay was given: what rests on others cannot be told again."""

from libs.chassis.migrations import execute

revision = "0005_memory"
down_revision = "0004_memory"
branch_labels = None
depends_on = None


def upgrade() -> None:
    execute("""
create table shadow_lines (
    store_uid uuid not null,
    actor_id text not null,
    session_uid uuid not null,
    position bigint not null,
    primary key (store_uid, actor_id, session_uid, position)
);
""")
