"""The command line `memstream`. Its commands are entry points of the group `memstream.commands`, loaded when needed.

So the server distribution adds its own, and the client alone stays small.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from importlib.metadata import EntryPoint, entry_points
from typing import Annotated, Any

import typer

from memstream import __version__
from memstream.commands.groups import DeferredGroup, Group
from memstream.console import Console, Output
from memstream.errors import MemstreamError

GROUP = "memstream.commands"


class Commands(Group):
    """Finds commands by entry point, and ends every failure as one line with its exit status."""

    output = Output.text

    def list_commands(self, ctx: Any) -> list[str]:
        return sorted(_found())

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        found = _found().get(cmd_name)
        if found is None:
            return None
        loaded = found.load()
        if isinstance(loaded, typer.Typer):
            return DeferredGroup(loaded, cmd_name)
        single = typer.Typer(add_completion=False, context_settings=ctx.command.context_settings)
        single.command(cmd_name)(loaded)
        return typer.main.get_command(single)

    def invoke(self, ctx: Any) -> Any:
        self.output = ctx.params.get("output") or Output.text
        return super().invoke(ctx)

    def main(  # type: ignore[override]
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        *,
        standalone_mode: bool = True,
        **extra: Any,
    ) -> Any:
        try:
            status = super().main(args, prog_name, standalone_mode=False, **extra)
        except MemstreamError as error:
            status = self._report(error.message, error.error_code, error.hint, 1)
        except typer.TyperException as error:
            status = self._report(" ".join(error.format_message().split()), None, None, error.exit_code)
        except (typer.Abort, KeyboardInterrupt):
            status = self._report("stopped", None, None, 1)
        except ValueError as error:
            status = self._report(str(error), None, None, 1)
        if standalone_mode:
            sys.exit(status or 0)
        return status

    def _report(self, message: str, code: str | None, hint: str | None, status: int) -> int:
        if self.output is Output.json:
            fault = {"message": message, **({"code": code} if code else {}), **({"hint": hint} if hint else {})}
            typer.echo(json.dumps({"error": fault}), err=True)
        elif message:
            typer.echo(f"error{f'[{code}]' if code else ''}: {message}", err=True)
            if hint:
                typer.echo(f"  help: {hint}", err=True)
        return status


def _found() -> dict[str, EntryPoint]:
    return {found.name: found for found in entry_points(group=GROUP)}


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"memstream {__version__}")
        raise typer.Exit


app = typer.Typer(
    cls=Commands,
    name="memstream",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback()
def _global_options(
    ctx: typer.Context,
    output: Annotated[Output, typer.Option("--output", "-o", help="How results are printed.")] = Output.text,
    url: Annotated[str | None, typer.Option("--url", envvar="MEMSTREAM_URL", help="Where the server is.")] = None,
    token: Annotated[
        str | None,
        typer.Option("--token", envvar="MEMSTREAM_TOKEN", help="The bearer token.", show_envvar=True),
    ] = None,
    _: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Durable sessions and streaming long-term memory for AI agents."""
    ctx.obj = Console(output=output, url=url, token=token)


def main() -> None:
    app(prog_name="memstream")
