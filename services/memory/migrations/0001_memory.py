"""Entries, their versions and evidence, the search index, batches, progress and the change feed."""

from libs.chassis.migrations import execute, shared

revision = "0001_memory"
down_revision = None
branch_labels = None
depends_on = None

MEMORY = """
create table actor_stats (
    store_uid uuid not null,
    actor_id text not null,
    actor_no bigint generated always as identity,
    language text not null,
    analysis_version integer not null,
    entry_count bigint not null default 0,
    total_length double precision not null default 0,
    primary key (store_uid, actor_id)
);
create index actor_stats_analysis on actor_stats (store_uid, language, analysis_version);

create table entries (
    store_uid uuid not null,
    entry_uid uuid not null,
    entry_id text collate "C" not null,
    actor_id text not null,
    session_id text collate "C",
    path text collate "C" not null,
    version integer not null,
    last_version integer not null,
    retired boolean not null,
    content text,
    description text,
    kind text not null check (kind in ('state', 'item', 'event')),
    said_by text not null check (said_by in ('user', 'assistant')),
    valid_from timestamptz not null,
    last_recorded_at timestamptz not null,
    event_date date,
    source_type text not null,
    create_time timestamptz not null,
    update_time timestamptz not null,
    terms text[] not null,
    length double precision not null,
    primary key (store_uid, entry_uid),
    unique nulls not distinct (store_uid, actor_id, path, session_id),
    check (last_version >= version)
);
create unique index entries_id on entries (store_uid, entry_id) where not retired;
create index entries_retired_id on entries (store_uid, entry_id) where retired;
create index entries_of_actor on entries (store_uid, actor_id, path, entry_uid) where not retired;
create index entries_of_session on entries (store_uid, actor_id, session_id, path, entry_uid)
    where not retired and session_id is not null;

create table entry_versions (
    store_uid uuid not null,
    actor_id text not null,
    entry_uid uuid not null,
    version integer not null,
    retired boolean not null,
    content text,
    description text,
    kind text not null,
    said_by text not null,
    valid_from timestamptz not null,
    recorded_at timestamptz not null,
    event_date date,
    writer_type text not null,
    writer text not null,
    batch_id uuid,
    run_id bigint,
    is_derived boolean not null,
    primary key (store_uid, actor_id, entry_uid, version),
    foreign key (store_uid, entry_uid) references entries (store_uid, entry_uid) on delete cascade
);
create index entry_versions_order on entry_versions (store_uid, entry_uid, valid_from, recorded_at, version);

create table version_evidence (
    store_uid uuid not null,
    evidence_uid uuid not null,
    actor_id text not null,
    entry_uid uuid not null,
    version integer not null,
    session_store_uid uuid not null,
    session_store_id text not null,
    session_uid uuid not null,
    session_id text,
    positions bigint[] not null,
    said_by text not null,
    said_at timestamptz not null,
    primary key (store_uid, evidence_uid),
    foreign key (store_uid, actor_id, entry_uid, version) references entry_versions on delete cascade
);
create index version_evidence_version on version_evidence (store_uid, actor_id, entry_uid, version, said_at);
create index version_evidence_source on version_evidence (session_store_uid, actor_id);

create table entry_terms (
    store_uid uuid not null,
    actor_no bigint not null,
    term text collate "C" not null,
    entry_uid uuid not null,
    frequency double precision not null,
    length double precision not null,
    primary key (store_uid, actor_no, term, entry_uid) include (frequency, length)
);

create table batches (
    store_uid uuid not null,
    batch_id uuid not null,
    actor_id text not null,
    outcomes text not null,
    created_at timestamptz not null default now(),
    primary key (store_uid, batch_id)
);
create index batches_actor on batches (store_uid, actor_id);
create index batches_created on batches (created_at);

create table progress (
    store_uid uuid not null,
    session_store_uid uuid not null,
    session_uid uuid not null,
    session_store_id text not null,
    session_id text not null,
    actor_id text not null,
    position bigint not null,
    primary key (store_uid, session_store_uid, session_uid)
);
create index progress_name on progress (store_uid, session_store_id, session_id);
create index progress_actor on progress (store_uid, actor_id);
create index progress_source on progress (session_store_uid, actor_id);

create table changes (
    store_uid uuid not null,
    tx xid8 not null default pg_current_xact_id(),
    change_id bigint generated always as identity,
    actor_id text not null,
    change text not null check (change in ('set', 'retired', 'erased')),
    entry_id text,
    path text,
    session_id text,
    kind text,
    version integer,
    created_at timestamptz not null default now(),
    primary key (store_uid, tx, change_id)
);
create index changes_actor on changes (store_uid, actor_id, tx, change_id);
create index changes_created on changes (created_at);

create table change_horizons (
    store_uid uuid primary key,
    tx xid8 not null,
    change_id bigint not null
);

create table erasures (
    store_uid uuid not null,
    erasure_id uuid not null,
    actor_id text not null,
    epoch bigint not null,
    removed bigint not null,
    distiller_removed bigint,
    workspace_id bigint not null,
    announced_at timestamptz not null default now(),
    created_at timestamptz not null default now(),
    primary key (store_uid, erasure_id)
);
create index erasures_pending on erasures (announced_at) where distiller_removed is null;
"""


def upgrade() -> None:
    execute(shared("common_0001"))
    execute(shared("stores_0001").format(stores="memory_stores"))
    execute(MEMORY)
