create table outbox (
    message_id uuid primary key,
    subject text not null,
    payload text not null,
    created_at timestamptz not null default now()
);
create table idempotency_keys (
    store_uid uuid not null,
    key_sha256 bytea not null,
    body_sha256 bytea not null,
    resource text not null,
    first_position bigint,
    item_count integer,
    created_at timestamptz not null default now(),
    primary key (store_uid, key_sha256)
);
create index idempotency_keys_created on idempotency_keys (created_at);
create table parked_messages (
    parked_id uuid primary key,
    subject text not null,
    payload bytea not null,
    reason text not null,
    attempts integer not null,
    workspace_id bigint,
    store_uid uuid,
    actor_id text,
    created_at timestamptz not null default now()
);
create index parked_messages_actor on parked_messages (actor_id);
