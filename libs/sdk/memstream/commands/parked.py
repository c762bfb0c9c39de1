"""`memstream parked`: messages that a service gave up on, for an admin. What they hold is never shown."""

from __future__ import annotations

from enum import Enum
from typing import Annotated

import typer

from memstream.commands.groups import group
from memstream.commands.options import Yes
from memstream.commands.views import Column, Listing, show_done, show_list, when
from memstream.console import console
from memstream.values import segment

PAGE = 1000
PARKED = Listing(
    "parked_messages",
    "parked message",
    (
        Column("service", "service"),
        Column("message", "parked_id", is_id=True),
        Column("subject", "subject"),
        Column("actor", "actor_id"),
        Column("attempts", "attempts"),
        Column("parked", when("create_time")),
        Column("reason", "reason"),
    ),
)


class Service(str, Enum):
    session = "session"
    distiller = "distiller"
    memory = "memory"


Message = Annotated[str, typer.Argument(help="The message's id, as `list` shows it.", show_default=False)]
Of = Annotated[Service, typer.Option("--service", help="Whose it is, as `list` shows it.", show_default=False)]

parked = group("Messages that a service gave up on; needs an admin.")


@parked.command("list")
def list_parked(
    ctx: typer.Context,
    service: Annotated[Service | None, typer.Option("--service", help="Only of this one.")] = None,
) -> None:
    """List parked messages with the reason, each service's oldest first."""
    out = console(ctx)
    found = []
    with out.rest("/ops") as rest:
        for one in [service] if service else Service:
            pages = rest.pages(f"/{one.value}/parked-messages", PARKED.field, page_size=PAGE, maximum=PAGE)
            found += [{"service": one.value, **message} for message in pages]
    show_list(out, PARKED, {PARKED.field: found})


@parked.command("redrive")
def redrive(ctx: typer.Context, message: Message, service: Of) -> None:
    """Send a message round again, once its cause is gone."""
    out = console(ctx)
    with out.rest("/ops") as rest:
        rest.send("POST", f"{_path(service, message)}:redrive", body={})
    show_done(out, {"redriven": message}, f"{message} goes round again")


@parked.command("drop")
def drop(ctx: typer.Context, message: Message, service: Of, yes: Yes = False) -> None:
    """Give a message up for good."""
    out = console(ctx)
    out.confirm(f"Drop parked message {message} of {service.value} for good?", yes=yes)
    with out.rest("/ops") as rest:
        rest.send("DELETE", _path(service, message))
    show_done(out, {"dropped": message}, f"Dropped {message}")


def _path(service: Service, message: str) -> str:
    return f"/{service.value}/parked-messages/{segment(message)}"
