"""Vectors of entries, and which of them an actor's searches use."""

from libs.chassis.migrations import execute

revision = "0004_memory"
down_revision = "0003_memory"
branch_labels = None
depends_on = None

# Only a superuser may make the extension; where it is there already, nobody needs to.
# `embedding_space`: the space in which every entry of the actor has been embedded, '' for none; only its vectors count.
VECTORS = """
create extension if not exists vector;

alter table actor_stats
    add column embedding_space text not null default '',
    add column vectors_due boolean not null default true,
    add column has_vectors boolean not null default false,
    add column text_changes bigint not null default 0,
    add column embedding_until timestamptz;
create index actor_stats_space on actor_stats (store_uid, embedding_space);
create index actor_stats_vectors_due on actor_stats (store_uid) where vectors_due;
create index actor_stats_vectors on actor_stats (store_uid) where has_vectors;

create table entry_vectors (
    store_uid uuid not null,
    actor_no bigint not null,
    entry_uid uuid not null,
    space text not null,
    vector halfvec,
    primary key (store_uid, actor_no, entry_uid, space)
);
alter table entry_vectors alter column vector set storage main;
"""


def upgrade() -> None:
    execute(VECTORS)
