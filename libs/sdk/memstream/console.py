"""What every command is given: how to print, and a client for the chosen server."""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from memstream.client import AgentKitClient


class Output(str, Enum):
    text = "text"
    json = "json"


@dataclass(frozen=True)
class Console:
    output: Output = Output.text
    url: str | None = None
    token: str | None = None

    def show(self, value: Any, text: str) -> None:
        """One result on stdout: the JSON document or the text, as the user asked."""
        typer.echo(json.dumps(value, indent=2, ensure_ascii=False) if self.output is Output.json else text)

    def note(self, text: str) -> None:
        """Something to know besides the result, on stderr."""
        typer.echo(text, err=True)

    def client(self) -> AgentKitClient:
        # Imported here: the HTTP client would be half of the start of `memstream --help`.
        from memstream.client import AgentKitClient

        return AgentKitClient(base_url=self.url, token=self.token)


def console(ctx: typer.Context) -> Console:
    """The console of a command's context."""
    found: Console = ctx.find_root().obj
    return found
