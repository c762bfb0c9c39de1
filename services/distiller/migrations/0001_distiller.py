"""Pipelines, lanes, batches, runs, usage."""

from libs.chassis.migrations import execute, shared

revision = "distiller_0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    execute(shared("common_0001"))
    execute("""
create table pipelines (
    pipeline_uid uuid primary key,
    workspace_id bigint not null,
    display_name text,
    session_store_uid uuid not null,
    session_store_id text not null,
    memory_store_uid uuid not null,
    memory_store_id text not null,
    model text,
    instructions text,
    trigger text not null check (trigger in ('MANUAL_ONLY', 'SCHEDULED', 'CONTINUOUS')),
    quiet_period_s double precision not null check (quiet_period_s >= 0),
    max_wait_s double precision not null check (max_wait_s >= quiet_period_s),
    daily_token_budget bigint check (daily_token_budget >= 0),
    revision bigint not null default 1,
    creator_type text not null,
    creator text not null,
    create_time timestamptz not null default now(),
    update_time timestamptz not null default now(),
    next_run_at timestamptz,
    sweep_started_at timestamptz,
    swept_at timestamptz,
    full_sweep_at timestamptz,
    unique (session_store_uid, memory_store_uid)
);
create index pipelines_workspace on pipelines (workspace_id, pipeline_uid);
create index pipelines_memory_store on pipelines (memory_store_uid);

create table lanes (
    pipeline_uid uuid not null references pipelines (pipeline_uid) on delete cascade,
    actor_id text not null,
    workspace_id bigint not null,
    due_at timestamptz,
    first_due_at timestamptz,
    marks bigint not null default 0,
    lease_token bigint not null default 0,
    lease_until timestamptz,
    pending_batch uuid,
    attempts integer not null default 0,
    max_lines integer,
    reason text,
    parked_at timestamptz,
    provider text,
    provider_since timestamptz,
    primary key (pipeline_uid, actor_id)
);
create index lanes_due on lanes (workspace_id, due_at) where due_at is not null and pending_batch is null;
create index lanes_provider on lanes (provider) where provider is not null;

create table lane_sessions (
    pipeline_uid uuid not null,
    actor_id text not null,
    session_uid uuid not null,
    session_id text not null,
    known_position bigint not null,
    goal_position bigint not null default 0,
    distilled_position bigint not null default 0,
    applied_position bigint not null default 0,
    oldest_appended_at timestamptz,
    again bigint[] not null default '{}',
    again_count integer not null default 0,
    primary key (pipeline_uid, actor_id, session_uid),
    foreign key (pipeline_uid, actor_id) references lanes (pipeline_uid, actor_id) on delete cascade
);
create index lane_sessions_session on lane_sessions (session_uid);
create index lane_sessions_behind on lane_sessions (pipeline_uid, actor_id)
    where known_position > distilled_position or again <> '{}';

create table batches (
    batch_id uuid primary key,
    pipeline_uid uuid not null references pipelines (pipeline_uid) on delete cascade,
    actor_id text not null,
    memory_store_uid uuid not null,
    state text not null check (state in ('asked', 'answered', 'emitted', 'settled')),
    lease_token bigint not null,
    question jsonb,
    answer text,
    event text,
    ranges jsonb,
    outcomes text,
    prompt_tokens bigint not null default 0,
    completion_tokens bigint not null default 0,
    created_at timestamptz not null default now(),
    emitted_at timestamptz,
    emissions integer not null default 0,
    settled_at timestamptz
);
create index batches_lane on batches (pipeline_uid, actor_id);
create index batches_unanswered on batches (emitted_at) where state = 'emitted';
create index batches_unused on batches (created_at) where state in ('asked', 'answered');
create index batches_settled on batches (settled_at) where state = 'settled';

create table runs (
    run_id bigint generated always as identity primary key,
    pipeline_uid uuid not null references pipelines (pipeline_uid) on delete cascade,
    state text not null check (state in ('PENDING', 'RUNNING', 'SUCCEEDED', 'FAILED', 'CANCELED')),
    error text,
    cursor text,
    create_time timestamptz not null default now(),
    end_time timestamptz
);
create unique index runs_active on runs (pipeline_uid) where state in ('PENDING', 'RUNNING');
create index runs_pipeline on runs (pipeline_uid, run_id desc);

create table run_lanes (
    run_id bigint not null references runs (run_id) on delete cascade,
    actor_id text not null,
    session_uid uuid not null,
    goal_position bigint not null,
    primary key (run_id, actor_id, session_uid)
);

create table erased_actors (
    store_uid uuid not null,
    actor_id text not null,
    epoch bigint not null,
    primary key (store_uid, actor_id)
);

create table gone_stores (
    store_uid uuid primary key,
    created_at timestamptz not null default now()
);

create table usage (
    pipeline_uid uuid not null references pipelines (pipeline_uid) on delete cascade,
    day date not null,
    model text not null,
    outcome text not null,
    workspace_id bigint not null,
    calls bigint not null default 0,
    prompt_tokens bigint not null default 0,
    completion_tokens bigint not null default 0,
    primary key (pipeline_uid, day, model, outcome)
);
""")
