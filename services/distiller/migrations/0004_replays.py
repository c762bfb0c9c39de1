"""Replays: each has a pipeline of its own that nobody sees, and holds an actor's lane while it swaps."""

from libs.chassis.migrations import execute

revision = "distiller_0004"
down_revision = "distiller_0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    execute("""
alter table pipelines add column parent_uid uuid references pipelines (pipeline_uid) on delete cascade;
create index pipelines_parent on pipelines (parent_uid) where parent_uid is not null;
alter table lanes add column held_by uuid;
create index lanes_ready on lanes (workspace_id, due_at)
    where due_at is not null and pending_batch is null and held_by is null;

create table replays (
    replay_uid uuid primary key,
    pipeline_uid uuid not null references pipelines (pipeline_uid) on delete cascade,
    hidden_uid uuid not null,
    shadow_uid uuid not null,
    into_store_uid uuid not null,
    into_store_id text not null,
    actor_id text,
    state text not null check (state in ('PENDING', 'RUNNING', 'SUCCEEDED', 'FAILED', 'CANCELED')),
    error text,
    create_time timestamptz not null default now(),
    end_time timestamptz
);
create unique index replays_active on replays (pipeline_uid) where state in ('PENDING', 'RUNNING');

create table replay_actors (
    replay_uid uuid not null references replays (replay_uid) on delete cascade,
    actor_id text not null,
    state text not null check (state in ('waiting', 'distilling', 'held', 'swapping', 'swapped', 'failed', 'gone')),
    swap_id uuid not null,
    reason text,
    primary key (replay_uid, actor_id)
);
create index replay_actors_state on replay_actors (replay_uid, state);
""")
