create table {stores} (
    store_uid uuid primary key,
    workspace_id bigint not null,
    store_id text not null,
    description text,
    metadata jsonb not null default '{{}}',
    options jsonb not null default '{{}}',
    creator_type text not null,
    creator text not null,
    create_time timestamptz not null default now(),
    update_time timestamptz not null default now(),
    unique (workspace_id, store_id)
);
create table store_grants (
    store_uid uuid not null references {stores} (store_uid) on delete cascade,
    principal_type text not null check (principal_type in ('USER', 'SERVICE_PRINCIPAL')),
    principal text not null,
    level smallint check (level in (1, 2)),
    is_creator boolean not null default false,
    primary key (store_uid, principal_type, principal),
    check (is_creator or level is not null)
);
create index store_grants_principal on store_grants (principal_type, principal);
create table purges (
    store_uid uuid primary key,
    created_at timestamptz not null default now()
);
create table actor_epochs (
    store_uid uuid not null,
    actor_id text not null,
    epoch bigint not null,
    primary key (store_uid, actor_id)
);
