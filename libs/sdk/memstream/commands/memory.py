"""`memstream memory`: memory stores and their entries; `memory pipeline` is beside it."""

from __future__ import annotations

from typing import Annotated

import typer

from memstream.commands.binding import add_binding
from memstream.commands.groups import group
from memstream.commands.options import (
    Actor,
    Description,
    MemoryStore,
    Metadata,
    PageSize,
    PageToken,
    Yes,
    json_object,
    text_of,
)
from memstream.commands.pipeline import pipeline
from memstream.commands.stores import Kind, Name, add_common_commands, show_created, store_changes
from memstream.commands.views import Column, Listing, last, show_details, show_done, show_list, show_pages, when
from memstream.console import console
from memstream.values import bare, changes, given, segment

STORES = Kind(
    noun="memory store",
    group="memory stores",
    collection="memory-stores",
    listing=Listing(
        "managed_memory_stores",
        "memory store",
        (
            Column("name", last("name"), is_id=True),
            Column("description", "description"),
            Column("language", "language"),
            Column("created", when("create_time")),
        ),
    ),
    permissions="memory_store_permissions",
)
ENTRIES = Listing(
    "managed_memory_entries",
    "entry",
    (
        Column("path", "path", is_id=True),
        Column("entry", last("name"), is_id=True),
        Column("description", "description"),
        Column("session", "session_id"),
        Column("updated", when("update_time")),
    ),
    plural="entries",
)
HITS = Listing(
    "results",
    "hit",
    (
        Column("score", lambda hit: f"{hit['score']:.2f}"),
        Column("path", "managed_memory_entry.path", is_id=True),
        Column("content", "managed_memory_entry.content"),
        Column("entry", last("managed_memory_entry.name")),
    ),
)
VERSIONS = Listing(
    "versions",
    "version",
    (
        Column("version", "version", is_id=True),
        Column("content", lambda version: "retired" if version.get("retired") else version.get("content")),
        Column("valid from", when("valid_from")),
        Column("recorded", when("recorded_at")),
        Column("writer", "writer.name"),
    ),
)
SOURCE_TYPE = "MANAGED_MEMORY_ENTRY_SOURCE_TYPE_"

Entry = Annotated[
    str, typer.Argument(help="The entry, by its id or its whole name, which needs no --store.", show_default=False)
]
StoreOfId = Annotated[
    str | None, typer.Option("--store", envvar="AGENT_MEMORY_STORE", help="The memory store.", show_default=False)
]
Language = Annotated[str | None, typer.Option("--language", help="Of its search: english, french, ...")]
EmbeddingModel = Annotated[
    str | None, typer.Option("--embedding-model", help="Whose vectors its search uses; none when absent or empty.")
]
HistoryDays = Annotated[
    int | None, typer.Option("--history-days", min=0, help="How long superseded versions are kept; 0 is for ever.")
]
Session = Annotated[str | None, typer.Option("--session-id", help="Only what belongs to this session.")]

memory = group("What is known: memory stores, their entries, and the pipelines that fill them.")
stores = group("Memory stores.")
entries = group("The entries of a memory store.")
memory.add_typer(stores, name="stores")
memory.add_typer(entries, name="entries")
memory.add_typer(pipeline, name="pipeline")
add_binding(memory, "memory_store", STORES.collection)


@stores.command("create")
def create_store(
    ctx: typer.Context,
    name: Annotated[
        str, typer.Option("--display-name", "--name", help="3 to 56 of a-z, 0-9 and -.", show_default=False)
    ],
    description: Description = None,
    metadata: Metadata = None,
    language: Language = None,
    embedding_model: EmbeddingModel = None,
    history_days: HistoryDays = None,
) -> None:
    """Make a memory store."""
    out = console(ctx)
    with out.rest() as rest:
        raw = rest.create(
            f"/{STORES.collection}",
            params={"managed_memory_store_id": name},
            body=given(
                display_name=name,
                description=description,
                metadata=json_object("--metadata", metadata),
                language=language or None,
                embedding_model=embedding_model or None,
                history_days=history_days or None,
            ),
        )
    show_created(out, STORES, raw, f"memstream memory pipeline create --memory-store {name} --session-store STORE")


@stores.command("update")
def update_store(
    ctx: typer.Context,
    name: Name,
    display_name: Annotated[str | None, typer.Option("--display-name", help="Is its id, and stays so.")] = None,
    description: Description = None,
    metadata: Metadata = None,
    language: Language = None,
    embedding_model: EmbeddingModel = None,
    history_days: HistoryDays = None,
) -> None:
    """Change a memory store; metadata is replaced as a whole, and an empty text gives a field its default."""
    out = console(ctx)
    mask, body = store_changes(
        display_name=display_name,
        description=description,
        metadata=json_object("--metadata", metadata),
        language=language,
        embedding_model=embedding_model,
        history_days=history_days,
    )
    with out.rest() as rest:
        raw = rest.send("PATCH", STORES.path(name), params=mask, body=body)
    show_done(out, raw, f"Updated memory store {name}")


add_common_commands(stores, STORES)


@entries.command("create")
def create(
    ctx: typer.Context,
    store: MemoryStore,
    actor_id: Actor,
    path: Annotated[str, typer.Option("--path", help="Such as /preferences/tea.md.", show_default=False)],
    content: Annotated[str | None, typer.Option("--content", help="What is known.")] = None,
    content_file: Annotated[str | None, typer.Option("--content-file", help="A file of it; - reads stdin.")] = None,
    description: Annotated[str | None, typer.Option("--description", help="Words that one would ask by.")] = None,
    session_id: Annotated[str | None, typer.Option("--session-id", help="When it belongs to one session.")] = None,
    source_type: Annotated[str, typer.Option("--source-type", help="agent, unspecified, or the API's name.")] = "agent",
) -> None:
    """Write an entry; there may be one at a path for an actor (and session)."""
    if (content is None) == (content_file is None):
        raise typer.BadParameter("give one of --content and --content-file")
    out = console(ctx)
    body = given(
        actor_id=actor_id,
        path=path,
        content=content if content_file is None else text_of(content_file),
        description=description,
        session_id=session_id,
        source_type=source_type if source_type.isupper() else SOURCE_TYPE + source_type.upper(),
    )
    with out.rest() as rest:
        raw = rest.create(f"{STORES.path(store)}/entries", body=body)
    show_done(
        out,
        raw,
        f"Created {path} of {actor_id}",
        f"memstream memory entries search --store {store} --actor-id {actor_id} --query WORDS",
    )


@entries.command("get")
def get(ctx: typer.Context, entry: Entry, store: StoreOfId = None) -> None:
    """Show an entry with its evidence."""
    out = console(ctx)
    with out.rest() as rest:
        raw = rest.get(_path(entry, store))
    show_details(out, f"Entry {raw['path']}", raw)


@entries.command("list")
def list_entries(
    ctx: typer.Context,
    store: MemoryStore,
    actor_id: Actor,
    path_prefix: Annotated[str | None, typer.Option("--path-prefix", help="How paths begin: /preferences.")] = None,
    session_id: Session = None,
    page_size: PageSize = None,
    page_token: PageToken = None,
) -> None:
    """List an actor's entries by path."""
    out = console(ctx)
    params = {
        "actor_id": actor_id,
        "path_prefix": path_prefix,
        "session_id": session_id,
        "page_size": page_size,
    }
    with out.rest() as rest:
        location = f"{STORES.path(store)}/entries"
        show_pages(out, ENTRIES, lambda token: rest.get(location, {**params, "page_token": token}), page_token)


@entries.command("search")
def search(
    ctx: typer.Context,
    store: MemoryStore,
    actor_id: Actor,
    query: Annotated[str, typer.Option("--query", help="The user's own words serve well.", show_default=False)],
    page_size: PageSize = None,
) -> None:
    """Find an actor's entries that answer a question, best first."""
    out = console(ctx)
    body = given(actor_id=actor_id, query=query, page_size=page_size)
    with out.rest() as rest:
        raw = rest.send("POST", f"{STORES.path(store)}/entries:search", body=body, is_safe=True)
    show_list(out, HITS, raw)


@entries.command("update")
def update(
    ctx: typer.Context,
    entry: Entry,
    store: StoreOfId = None,
    content: Annotated[str | None, typer.Option("--content", help="What is known.")] = None,
    description: Annotated[str | None, typer.Option("--description", help="Words that one would ask by.")] = None,
) -> None:
    """Give an entry a new version."""
    out = console(ctx)
    mask, body = changes(content=content, description=description)
    with out.rest() as rest:
        raw = rest.send("PATCH", _path(entry, store), params=mask, body=body)
    show_done(out, raw, f"Updated {raw['path']}")


@entries.command("versions")
def versions(
    ctx: typer.Context,
    entry: Entry,
    store: StoreOfId = None,
    page_size: PageSize = None,
    page_token: PageToken = None,
) -> None:
    """List what an entry has said, the current version first."""
    out = console(ctx)
    path = f"{_path(entry, store)}/versions"
    with out.rest() as rest:
        show_pages(
            out,
            VERSIONS,
            lambda token: rest.get(path, {"page_size": page_size, "page_token": token}),
            page_token,
        )


@entries.command("restore")
def restore(
    ctx: typer.Context,
    entry: Entry,
    version: Annotated[int, typer.Option("--version", min=1, help="As `versions` lists them.", show_default=False)],
    store: StoreOfId = None,
) -> None:
    """Say again what a version said, as a new version."""
    out = console(ctx)
    with out.rest() as rest:
        raw = rest.create(f"{_path(entry, store)}:restore", body={"version": version})
    show_done(out, raw, f"Restored version {version} of {raw['path']}, as version {raw['version']}")


@entries.command("delete")
def delete(ctx: typer.Context, entry: Entry, store: StoreOfId = None, yes: Yes = False) -> None:
    """Delete an entry with all of its versions."""
    out = console(ctx)
    path = _path(entry, store)
    out.confirm(f"Delete entry {entry} with all of its versions?", yes=yes)
    with out.rest() as rest:
        rest.send("DELETE", path)
    show_done(out, {"deleted": entry}, f"Deleted entry {entry}")


def _path(entry: str, store: str | None) -> str:
    """By the whole name, or by an id and its store."""
    named, _, entry_id = entry.rpartition("/entries/")
    if named:
        return f"{STORES.path(named)}/entries/{segment(entry_id)}"
    if store is None:
        raise typer.BadParameter("name the store with --store, or the entry by its whole name")
    return f"{STORES.path(store)}/entries/{segment(bare('entries', entry))}"
