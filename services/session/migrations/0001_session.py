"""Session stores, sessions and their items."""

from libs.chassis.migrations import execute, shared

revision = "0001"
down_revision = None

TABLES = """
create table sessions (
    store_uid uuid not null,
    session_uid uuid not null,
    session_id text not null,
    actor_id text not null,
    parent_session_uid uuid,
    parent_session_id text,
    root_session_id text not null,
    forked_from_session_id text,
    metadata jsonb not null default '{}',
    create_time timestamptz not null,
    update_time timestamptz not null,
    last_activity_time timestamptz not null,
    last_position bigint not null default 0 check (last_position >= copied_through),
    copied_through bigint not null default 0,
    cleared_through bigint not null default 0 check (cleared_through <= last_position),
    primary key (store_uid, session_uid),
    unique (store_uid, session_id)
);
create index sessions_last_activity on sessions (store_uid, last_activity_time, session_uid);
create index sessions_create on sessions (store_uid, create_time, session_uid);
create index sessions_actor on sessions (store_uid, actor_id, create_time, session_uid);
create index sessions_parent on sessions (store_uid, parent_session_uid) where parent_session_uid is not null;

create table session_items (
    store_uid uuid not null,
    session_uid uuid not null,
    position bigint not null,
    data text not null,
    role text check (role in ('user', 'assistant')),
    occurred_at text,
    create_time timestamptz not null,
    popped_at timestamptz,
    primary key (store_uid, session_uid, position)
);
create index session_items_popped on session_items (popped_at) where popped_at is not null;

create table item_purges (
    store_uid uuid not null,
    session_uid uuid not null,
    through bigint not null,
    erasure_id uuid,
    created_at timestamptz not null default now(),
    primary key (store_uid, session_uid)
);
create index item_purges_created on item_purges (created_at);
create index item_purges_erasure on item_purges (store_uid, erasure_id) where erasure_id is not null;

create table erasures (
    store_uid uuid not null,
    erasure_id uuid not null,
    actor_id text not null,
    epoch bigint not null,
    workspace_id bigint not null,
    sessions bigint not null,
    items bigint not null,
    distiller_removed bigint,
    memory_removed bigint,
    announced_at timestamptz not null default now(),
    created_at timestamptz not null default now(),
    primary key (store_uid, erasure_id)
);
create index erasures_pending on erasures (announced_at) where distiller_removed is null or memory_removed is null;
"""


def upgrade() -> None:
    execute(shared("common_0001"))
    execute(shared("stores_0001").format(stores="session_stores"))
    execute(TABLES)
