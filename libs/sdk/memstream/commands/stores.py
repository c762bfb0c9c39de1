"""`memstream sessions stores` and `memstream memory stores`: what both kinds of stores have in common."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from memstream.commands.groups import group
from memstream.commands.options import PageToken, Yes
from memstream.commands.views import Column, Listing, found, show_details, show_done, show_list, show_pages
from memstream.console import Console, console
from memstream.errors import NotFound
from memstream.values import PAGE_MAX, bare, changes, one_of, segment

LEVELS = ("READ", "WRITE")
PERMISSIONS_PAGE_MAX = 1000


@dataclass(frozen=True)
class Kind:
    """One kind of store: `noun` for a person, `group` its commands, `permissions` the field of a list of them."""

    noun: str
    group: str
    collection: str
    listing: Listing
    permissions: str

    def path(self, name: str) -> str:
        return f"/{self.collection}/{segment(bare(self.collection, name))}"


Name = Annotated[str, typer.Argument(help="The store, by its name or resource name.", show_default=False)]
Principal = Annotated[
    str, typer.Argument(help="A user's e-mail, or a service principal's client id.", show_default=False)
]
PrincipalType = Annotated[
    str | None, typer.Option("--type", help="USER or SERVICE_PRINCIPAL; known from the name unless you say it.")
]
Level = Annotated[str, typer.Option("--permission", help="READ, or WRITE, which includes it.")]
NameFilter = Annotated[str | None, typer.Option("--name", help="Only those whose name has this in it.")]
All = Annotated[bool, typer.Option("--all", help="Every page.")]
StoresPage = Annotated[int, typer.Option("--page-size", min=0, max=PAGE_MAX, help="How many at once.")]
PermissionsPage = Annotated[
    int | None, typer.Option("--page-size", min=0, max=PERMISSIONS_PAGE_MAX, help="How many at once.")
]


def add_common_commands(stores: typer.Typer, kind: Kind) -> None:
    """Everything but `create` and `update`, whose options differ."""

    @stores.command("list", help=f"List {kind.listing.plural or kind.noun + 's'}.")
    def list_stores(
        ctx: typer.Context,
        name: NameFilter = None,
        every: All = False,
        page_size: StoresPage = 25,
        page_token: PageToken = None,
    ) -> None:
        if page_token is not None and (every or name is not None):
            raise typer.BadParameter("--page-token cannot be combined with --name or --all")
        out = console(ctx)
        with out.rest() as rest:
            if not every and name is None:
                fetch = _pages(rest.get, f"/{kind.collection}", page_size)
                show_pages(out, kind.listing, fetch, page_token)
                return
            field = kind.listing.field
            wanted = (name or "").casefold()
            rows = rest.pages(f"/{kind.collection}", field, page_size=PAGE_MAX)
            show_list(out, kind.listing, {field: [row for row in rows if wanted in store_name(row).casefold()]})

    @stores.command("get", help=f"Show a {kind.noun}.")
    def get(ctx: typer.Context, name: Name) -> None:
        out = console(ctx)
        with out.rest() as rest:
            try:
                raw = rest.get(kind.path(name))
            except NotFound as missing:
                missing.hint = f"`memstream {kind.group} list --name {name}` looks for it"
                raise
        show_details(out, f"{kind.noun.capitalize()} {store_name(raw)}", raw)

    @stores.command("delete", help=f"Delete a {kind.noun} with everything in it.")
    def delete(ctx: typer.Context, name: Name, yes: Yes = False) -> None:
        out = console(ctx)
        out.confirm(f"Delete {kind.noun} {name} with everything in it?", yes=yes)
        with out.rest() as rest:
            rest.send("DELETE", kind.path(name))
        show_done(out, {"deleted": name}, f"Deleted {kind.noun} {name}")

    permissions = group(f"Who may read and write a {kind.noun}.")
    stores.add_typer(permissions, name="permissions")
    listing = Listing(
        kind.permissions,
        "permission",
        (
            Column("principal", "principal.name", is_id=True),
            Column("type", "principal.principal_type"),
            Column("permission", "permission"),
        ),
    )

    @permissions.command("grant", help=f"Let somebody use the whole {kind.noun}; the latest grant counts.")
    def grant(
        ctx: typer.Context,
        name: Name,
        principal: Principal,
        permission: Level = "WRITE",
        principal_type: PrincipalType = None,
    ) -> None:
        level = one_of("--permission", permission.upper(), LEVELS)
        granted = {"principal": _principal(principal, principal_type), "permission": level}
        out = console(ctx)
        with out.rest() as rest:
            rest.send("POST", f"{kind.path(name)}/permissions:grant", body=granted)
        show_done(out, granted, f"{principal} has {level} on {kind.noun} {name}")

    @permissions.command("revoke", help="Take back what was granted; the creator keeps access.")
    def revoke(ctx: typer.Context, name: Name, principal: Principal, principal_type: PrincipalType = None) -> None:
        revoked = {"principal": _principal(principal, principal_type)}
        out = console(ctx)
        with out.rest() as rest:
            rest.send("POST", f"{kind.path(name)}/permissions:revoke", body=revoked)
        show_done(out, {"revoked": principal}, f"{principal} has no grant on {kind.noun} {name}")

    @permissions.command("list", help="List what was granted; the creator's own access is not in it.")
    def list_permissions(
        ctx: typer.Context, name: Name, page_size: PermissionsPage = None, page_token: PageToken = None
    ) -> None:
        out = console(ctx)
        with out.rest() as rest:
            show_pages(out, listing, _pages(rest.get, f"{kind.path(name)}/permissions", page_size), page_token)

    @permissions.command("get", help="Show what you may do with it.")
    def own(ctx: typer.Context, name: Name) -> None:
        out = console(ctx)
        with out.rest() as rest:
            raw = rest.get(f"{kind.path(name)}/permissions/self")
        out.show(raw, f"{found(raw, 'principal.name')}: {raw['permission']}")


def store_changes(**values: Any) -> tuple[dict[str, str], dict[str, Any]]:
    """An update's query and body; an empty text and 0 clear a field."""
    clear = [name for name, value in values.items() if value in ("", 0)]
    return changes(clear, **values | dict.fromkeys(clear))


def store_name(raw: Any) -> str:
    return str(raw["name"]).rpartition("/")[2]


def show_created(out: Console, kind: Kind, raw: dict[str, Any], *next_steps: str) -> None:
    show_done(out, raw, f"Created {kind.noun} {store_name(raw)}", *next_steps)


def _pages(
    get: Callable[..., dict[str, Any]], path: str, page_size: int | None
) -> Callable[[str | None], dict[str, Any]]:
    return lambda token: get(path, {"page_size": page_size, "page_token": token})


def _principal(name: str, kind: str | None) -> dict[str, str]:
    guessed = kind or ("USER" if "@" in name else "SERVICE_PRINCIPAL")
    return {"principal_type": one_of("--type", guessed.upper(), ("USER", "SERVICE_PRINCIPAL")), "name": name}
