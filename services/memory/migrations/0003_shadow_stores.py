"""Stores that nobody sees: each gathers what a replay will put into another."""

from libs.chassis.migrations import execute

revision = "0003_memory"
down_revision = "0002_memory"
branch_labels = None
depends_on = None


def upgrade() -> None:
    execute("""
create table shadow_stores (
    store_uid uuid primary key,
    of_store_uid uuid not null,
    workspace_id bigint not null,
    language text,
    created_at timestamptz not null default now()
);
create index shadow_stores_of on shadow_stores (of_store_uid);
""")
