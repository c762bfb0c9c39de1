"""A group of commands, which suggests the nearest ones when there is none of that name."""

from __future__ import annotations

import difflib
from functools import cached_property
from typing import Any

import typer
from typer.core import TyperGroup

from memstream.errors import MemstreamError

SUGGESTIONS = 3


class Group(TyperGroup):
    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args and not args[0].startswith("-") and self.get_command(ctx, args[0]) is None:
            near = difflib.get_close_matches(args[0], self.list_commands(ctx), n=SUGGESTIONS)
            raise MemstreamError(
                f"there is no command '{args[0]}'",
                hint=f"did you mean {' or '.join(near)}?" if near else f"`{ctx.command_path} --help` lists them",
            )
        return super().resolve_command(ctx, args)


class ListingGroup(Group):
    """With a name in the place of a command it lists: `runs <pipeline>` is `runs list <pipeline>`."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        known = self.list_commands(ctx)
        is_command = args[0].startswith("-") or difflib.get_close_matches(args[0], known)
        return super().resolve_command(ctx, args if is_command else ["list", *args])


class DeferredGroup(Group):
    """Makes its commands when one is asked for: making those of all groups is most of `memstream --help`."""

    def __init__(self, made_of: typer.Typer, name: str) -> None:
        super().__init__(name=name, help=made_of.info.help, no_args_is_help=True)
        self._made_of = made_of

    @cached_property
    def _made(self) -> TyperGroup:
        return typer.main.get_group(self._made_of)

    def list_commands(self, ctx: Any) -> list[str]:
        return self._made.list_commands(ctx)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        return self._made.get_command(ctx, cmd_name)


def group(help: str, cls: type[Group] = Group) -> typer.Typer:
    return typer.Typer(cls=cls, help=help, no_args_is_help=True)
