"""Swaps that are called off, and those that a repair can make again; how far a replay's lane had come."""

from libs.chassis.migrations import execute

revision = "distiller_0006"
down_revision = "distiller_0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    execute("""
alter table replay_actors drop constraint replay_actors_state_check;
alter table replay_actors add constraint replay_actors_state_check
    check (state in ('waiting', 'distilling', 'held', 'swapping', 'withdrawing', 'swapped', 'failed', 'gone'));
alter table replay_actors add column reached bigint not null default -1;
alter table replays add column attempts integer not null default 0;
alter table replays add column retry_at timestamptz;
alter table batches add column swap_id uuid;
create index batches_swap on batches (swap_id) where swap_id is not null;
""")
