"""When a lane's memory is due for consolidation, and which entries were looked at together before."""

from libs.chassis.migrations import execute

revision = "distiller_0003"
down_revision = "distiller_0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    execute("""
alter table lanes add column changed integer not null default 0;
alter table lanes add column consolidate boolean not null default false;

create table considered (
    pipeline_uid uuid not null,
    actor_id text not null,
    fingerprint text not null,
    primary key (pipeline_uid, actor_id, fingerprint),
    foreign key (pipeline_uid, actor_id) references lanes (pipeline_uid, actor_id) on delete cascade
);
""")
