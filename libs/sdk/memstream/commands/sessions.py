"""`memstream sessions`: session stores, conversations and their items."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from memstream.commands.binding import add_binding
from memstream.commands.groups import group
from memstream.commands.options import (
    Actor,
    Description,
    Metadata,
    PageSize,
    PageToken,
    SessionOption,
    SessionStore,
    Yes,
    json_object,
    json_value,
    text_of,
)
from memstream.commands.stores import Kind, Name, add_common_commands, show_created, store_changes
from memstream.commands.views import Column, Listing, show_details, show_done, show_pages, when
from memstream.console import console
from memstream.errors import MemstreamError
from memstream.values import given, segment

STORES = Kind(
    noun="session store",
    group="sessions stores",
    collection="session-stores",
    listing=Listing(
        "session_stores",
        "session store",
        (
            Column("name", "session_store_name", is_id=True),
            Column("description", "description"),
            Column("created", when("create_time")),
        ),
    ),
    permissions="session_store_permissions",
)
SESSIONS = Listing(
    "sessions",
    "session",
    (
        Column("session", "session_id", is_id=True),
        Column("actor", "actor_id", is_id=True),
        Column("last position", "last_position"),
        Column("last activity", when("last_activity_time")),
        Column("metadata", "metadata"),
    ),
)
ITEMS = Listing(
    "session_items",
    "item",
    (
        Column("position", "position"),
        Column("data", lambda item: _said(item.get("data"))),
        Column("created", when("create_time")),
        Column("item", "item_id"),
    ),
)

SessionId = Annotated[str, typer.Argument(help="The session.", show_default=False)]
Parent = Annotated[str | None, typer.Option("--parent-session-id", help="Makes it a child of this one.")]
NewSession = Annotated[str | None, typer.Option("--session-id", help="Its id; made up when absent.")]
RetentionDays = Annotated[
    int | None, typer.Option("--retention-days", min=0, help="How long its sessions are kept; 0 is for ever.")
]
IdleTtl = Annotated[
    int | None,
    typer.Option("--idle-ttl-minutes", min=0, help="How long they are kept after their last activity; 0 is for ever."),
]
OrderBy = Annotated[str | None, typer.Option("--order-by", help="Such as 'create_time asc'.")]

sessions = group("Conversations: session stores, sessions and their items.")
stores = group("Session stores.")
items = group("The items of a session.")
sessions.add_typer(stores, name="stores")
sessions.add_typer(items, name="items")
add_binding(sessions, "session_store", STORES.collection)


@stores.command("create")
def create_store(
    ctx: typer.Context,
    name: Annotated[
        str, typer.Option("--name", "--display-name", help="3 to 63 of a-z, 0-9 and -.", show_default=False)
    ],
    description: Description = None,
    metadata: Metadata = None,
    retention_days: RetentionDays = None,
    idle_ttl_minutes: IdleTtl = None,
) -> None:
    """Make a session store."""
    out = console(ctx)
    body = given(
        description=description,
        metadata=json_object("--metadata", metadata),
        retention_days=retention_days or None,
        idle_ttl_minutes=idle_ttl_minutes or None,
    )
    with out.rest() as rest:
        raw = rest.create(f"/{STORES.collection}", params={"session_store_id": name}, body=body)
    show_created(out, STORES, raw, f"memstream sessions create --store {name} --actor-id ACTOR")


@stores.command("update")
def update_store(
    ctx: typer.Context,
    name: Name,
    description: Description = None,
    metadata: Metadata = None,
    retention_days: RetentionDays = None,
    idle_ttl_minutes: IdleTtl = None,
) -> None:
    """Change a session store; metadata is replaced as a whole."""
    out = console(ctx)
    mask, body = store_changes(
        description=description,
        metadata=json_object("--metadata", metadata),
        retention_days=retention_days,
        idle_ttl_minutes=idle_ttl_minutes,
    )
    with out.rest() as rest:
        raw = rest.send("PATCH", STORES.path(name), params=mask, body=body)
    show_done(out, raw, f"Updated session store {name}")


add_common_commands(stores, STORES)


@sessions.command("create")
def create(
    ctx: typer.Context,
    store: SessionStore,
    actor_id: Actor,
    session_id: NewSession = None,
    parent_session_id: Parent = None,
    metadata: Metadata = None,
) -> None:
    """Begin a conversation of an actor."""
    out = console(ctx)
    body = given(actor_id=actor_id, parent_session_id=parent_session_id, metadata=json_object("--metadata", metadata))
    with out.rest() as rest:
        raw = rest.create(f"{STORES.path(store)}/sessions", params={"session_id": session_id}, body=body)
    made = raw["session_id"]
    show_done(
        out,
        raw,
        f"Created session {made} of {actor_id}",
        f"memstream sessions items append --store {store} --session-id {made} --data JSON",
    )


@sessions.command("list")
def list_sessions(
    ctx: typer.Context,
    store: SessionStore,
    filter: Annotated[str | None, typer.Option("--filter", help="Such as 'actor_id = \"ines\"'.")] = None,
    order_by: OrderBy = None,
    page_size: PageSize = None,
    page_token: PageToken = None,
) -> None:
    """List conversations, the last active first."""
    out = console(ctx)
    params = {"filter": filter, "order_by": order_by, "page_size": page_size}
    with out.rest() as rest:
        path = f"{STORES.path(store)}/sessions"
        show_pages(out, SESSIONS, lambda token: rest.get(path, {**params, "page_token": token}), page_token)


@sessions.command("get")
def get(ctx: typer.Context, session_id: SessionId, store: SessionStore) -> None:
    """Show a conversation's record."""
    out = console(ctx)
    with out.rest() as rest:
        raw = rest.get(_path(store, session_id))
    show_details(out, f"Session {session_id}", raw)


@sessions.command("update")
def update(
    ctx: typer.Context,
    session_id: SessionId,
    store: SessionStore,
    metadata: Annotated[str, typer.Option("--metadata", help="The new labels, a JSON object.", show_default=False)],
) -> None:
    """Replace a conversation's metadata."""
    out = console(ctx)
    body = {"metadata": json_object("--metadata", metadata)}
    with out.rest() as rest:
        raw = rest.send("PATCH", _path(store, session_id), params={"update_mask": "metadata"}, body=body)
    show_done(out, raw, f"Updated session {session_id}")


@sessions.command("delete")
def delete(
    ctx: typer.Context,
    session_id: SessionId,
    store: SessionStore,
    force: Annotated[bool, typer.Option("--force", help="With its children, and theirs.")] = False,
    yes: Yes = False,
) -> None:
    """Delete a conversation with its items; memories are kept."""
    out = console(ctx)
    out.confirm(f"Delete session {session_id} with its items{' and its children' if force else ''}?", yes=yes)
    with out.rest() as rest:
        rest.send("DELETE", _path(store, session_id), params={"force": "true" if force else "false"})
    show_done(out, {"deleted": session_id}, f"Deleted session {session_id}")


@sessions.command("fork")
def fork(
    ctx: typer.Context,
    store: SessionStore,
    actor_id: Actor,
    source: Annotated[str | None, typer.Argument(help="The session to copy.", show_default=False)] = None,
    source_session_id: Annotated[str | None, typer.Option("--source-session-id", help="The same.")] = None,
    up_to_item_id: Annotated[str | None, typer.Option("--up-to-item-id", help="The last item to copy.")] = None,
    session_id: NewSession = None,
    metadata: Metadata = None,
) -> None:
    """Begin an independent conversation with a copy of another one's items."""
    if (source is None) == (source_session_id is None):
        raise typer.BadParameter("name the session to copy once: as the argument or with --source-session-id")
    out = console(ctx)
    body = given(
        source_session_id=source or source_session_id,
        actor_id=actor_id,
        up_to_item_id=up_to_item_id,
        session_id=session_id,
        metadata=json_object("--metadata", metadata),
    )
    with out.rest() as rest:
        raw = rest.create(f"{STORES.path(store)}/sessions:fork", body=body)
    made = raw["session"]["session_id"]
    show_done(
        out,
        raw,
        f"Created session {made} of {actor_id}, a copy of {source or source_session_id}",
        f"memstream sessions items list --store {store} --session-id {made}",
    )


@items.command("list")
def list_items(
    ctx: typer.Context,
    store: SessionStore,
    session_id: SessionOption,
    order_by: OrderBy = None,
    page_size: PageSize = None,
    page_token: PageToken = None,
) -> None:
    """List what was said, the newest first unless --order-by is 'create_time asc'."""
    out = console(ctx)
    params = {"order_by": order_by, "page_size": page_size}
    with out.rest() as rest:
        path = f"{_path(store, session_id)}/items"
        show_pages(out, ITEMS, lambda token: rest.get(path, {**params, "page_token": token}), page_token)


@items.command("append")
def append(
    ctx: typer.Context,
    store: SessionStore,
    session_id: SessionOption,
    data: Annotated[list[str] | None, typer.Option("--data", help="An item, any JSON; may be repeated.")] = None,
    file: Annotated[str | None, typer.Option("--file", help="A JSON array of items; - reads stdin.")] = None,
) -> None:
    """Append items, all or none: those of the file, then --data."""
    out = console(ctx)
    said = json_value("--file", text_of(file)) if file is not None else []
    if not isinstance(said, list):
        raise MemstreamError("--file must hold a JSON array of items")
    said += [json_value("--data", text) for text in data or ()]
    if not said:
        raise MemstreamError("there is nothing to append: give --data or --file")
    with out.rest() as rest:
        raw = rest.create(f"{_path(store, session_id)}/items:append", body={"items": [{"data": one} for one in said]})
    last = raw["session_items"][-1]["position"]
    show_done(out, raw, f"Appended {ITEMS.counted(len(said))} to session {session_id}, the last at position {last}")


@items.command("pop")
def pop(ctx: typer.Context, store: SessionStore, session_id: SessionOption) -> None:
    """Remove the newest item and show it."""
    out = console(ctx)
    with out.rest() as rest:
        raw = rest.create(f"{_path(store, session_id)}/items:pop")
    if out.is_json or raw.get("item"):
        show_details(out, "Removed", raw if out.is_json else raw["item"])
    else:
        out.show(raw, f"session {session_id} has no items")


@items.command("clear")
def clear(ctx: typer.Context, store: SessionStore, session_id: SessionOption) -> None:
    """Remove all items; the session stays, and so do memories."""
    out = console(ctx)
    with out.rest() as rest:
        rest.send("POST", f"{_path(store, session_id)}/items:clear", body={})
    show_done(out, {"cleared": session_id}, f"Removed all items of session {session_id}")


def _said(data: Any) -> Any:
    """A message as who said what, any other item as it is."""
    content = data.get("content") if isinstance(data, dict) and isinstance(data.get("role"), str) else None
    if isinstance(content, list):
        texts = [str(part["text"]) for part in content if isinstance(part, dict) and "text" in part]
        content = " ".join(texts) if len(texts) == len(content) else None
    return f"{data['role']}: {content}" if isinstance(content, str) else data


def _path(store: str, session_id: str) -> str:
    return f"{STORES.path(store)}/sessions/{segment(session_id)}"
