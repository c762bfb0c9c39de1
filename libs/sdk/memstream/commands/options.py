"""The options that many commands share, and how their texts are read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from memstream.errors import MemstreamError

SessionStore = Annotated[
    str, typer.Option("--store", envvar="AGENT_SESSION_STORE", help="The session store.", show_default=False)
]
MemoryStore = Annotated[
    str, typer.Option("--store", envvar="AGENT_MEMORY_STORE", help="The memory store.", show_default=False)
]
Actor = Annotated[str, typer.Option("--actor-id", help="Whose it is.", show_default=False)]
SessionOption = Annotated[str, typer.Option("--session-id", help="The session.", show_default=False)]
Metadata = Annotated[
    str | None, typer.Option("--metadata", help='Labels, a JSON object of texts: \'{"channel": "web"}\'.')
]
Description = Annotated[str | None, typer.Option("--description", help="What it is for.")]
PageSize = Annotated[int | None, typer.Option("--page-size", min=0, max=100, help="How many at once.")]
PageToken = Annotated[str | None, typer.Option("--page-token", help="Go on where an earlier page ended.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
Wait = Annotated[bool, typer.Option("--wait", help="Wait until it is over.")]
WaitTimeout = Annotated[int, typer.Option("--wait-timeout", min=1, help="Seconds to wait at most.")]


def json_object(option: str, text: str | None) -> dict[str, Any] | None:
    """The object that the text is, or None when there is none. Raises `MemstreamError`."""
    if text is None:
        return None
    value = json_value(option, text)
    if not isinstance(value, dict):
        raise MemstreamError(f"{option} must be a JSON object")
    return value


def json_value(option: str, text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise MemstreamError(f"{option} is not JSON: {error}") from None


def text_of(file: str) -> str:
    """A file's text, of stdin for `-`. A file that cannot be read is a wrong use."""
    try:
        if file == "-":
            return typer.get_text_stream("stdin", encoding="utf-8").read()
        return Path(file).read_text(encoding="utf-8")
    except OSError as error:
        raise typer.BadParameter(f"cannot read {file}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise typer.BadParameter(f"{file} is not text in UTF-8") from None
