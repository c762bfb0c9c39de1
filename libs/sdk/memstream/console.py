"""What every command is given: how to print, how to ask, and a connection to the chosen server."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

import typer

from memstream.errors import MemstreamError

if TYPE_CHECKING:
    from memstream.client import AgentKitClient
    from memstream.transport import Transport


class Output(str, Enum):
    text = "text"
    json = "json"


@dataclass(frozen=True)
class Console:
    output: Output = Output.text
    url: str | None = None
    token: str | None = None

    @property
    def is_json(self) -> bool:
        return self.output is Output.json

    def show(self, value: Any, text: str) -> None:
        """One result on stdout: the JSON document or the text, as the user asked."""
        typer.echo(document(value) if self.is_json else text)

    def note(self, text: str) -> None:
        """Something to know besides the result, on stderr."""
        typer.echo(text, err=True)

    def agrees(self, question: str) -> bool:
        """Asks on stderr; whatever is not a yes is a no, and so is nobody there."""
        typer.echo(f"{question} [y/N]: ", nl=False, err=True)
        answer = sys.stdin.readline()
        if not answer.endswith("\n"):
            typer.echo(err=True)
        return answer.strip().lower() in ("y", "yes")

    def confirm(self, question: str, *, yes: bool) -> None:
        """Goes on after `yes` or when the user agrees; else raises `MemstreamError`."""
        if not yes and not self.agrees(question):
            raise MemstreamError("nothing was done", hint="--yes goes ahead without asking")

    def client(self) -> AgentKitClient:
        # Imported here: the HTTP client would be half of the start of `memstream --help`.
        from memstream.client import AgentKitClient

        return AgentKitClient(base_url=self.url, token=self.token)

    @contextmanager
    def rest(self, prefix: str | None = None) -> Iterator[Transport]:
        """The REST surface itself, whose answers are printed as they come; paths are below `prefix`."""
        from memstream.credentials import server_url
        from memstream.http import authorization
        from memstream.retries import PATIENCE_S
        from memstream.transport import BASE, TIMEOUT_S, Transport

        transport = Transport(
            server_url(self.url, None),
            authorization(None, self.token),
            timeout_s=TIMEOUT_S,
            patience_s=PATIENCE_S,
            transport=None,
            prefix=BASE if prefix is None else prefix,
        )
        try:
            yield transport
        finally:
            transport.close()


def console(ctx: typer.Context) -> Console:
    """The console of a command's context."""
    found: Console = ctx.find_root().obj
    return found


def document(value: Any) -> str:
    """JSON for a person and a program; text that UTF-8 cannot hold stays escaped."""
    text = json.dumps(value, indent=2, ensure_ascii=False)
    try:
        text.encode()
    except UnicodeEncodeError:
        return json.dumps(value, indent=2)
    return text
