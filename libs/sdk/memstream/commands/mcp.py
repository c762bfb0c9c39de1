"""`memstream mcp`: one actor's memory as tools of the Model Context Protocol."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from enum import Enum
from typing import TYPE_CHECKING, Annotated

import typer

from memstream.console import console
from memstream.errors import MemstreamError

if TYPE_CHECKING:
    from mcp.server.mcpserver import MCPServer

INSTRUCTIONS = "What is remembered about the user across conversations. Recall before answering; remember what lasts."

LOOPBACK = ("127.0.0.1", "localhost", "::1")


class McpTransport(str, Enum):
    stdio = "stdio"
    http = "http"


def serve_memory(
    ctx: typer.Context,
    actor: Annotated[
        str, typer.Option("--actor", envvar="MEMSTREAM_ACTOR", help="Whose memory; no tool can name another.")
    ],
    store: Annotated[str, typer.Option("--store", envvar="AGENT_MEMORY_STORE", help="The memory store.")],
    transport: Annotated[
        McpTransport, typer.Option("--transport", help="stdio, or http for streamable HTTP at /mcp.")
    ] = McpTransport.stdio,
    host: Annotated[
        str, typer.Option("--host", help="With http: whoever reaches this address has the actor's memory.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", min=1, max=65535, help="With http.")] = 8765,
    allowed_hosts: Annotated[
        list[str] | None,
        typer.Option("--allowed-host", help="With http: another name that it is reached by; may be repeated."),
    ] = None,
) -> None:
    """Serve one actor's memory over MCP: remember, recall, forget, list_memories."""
    try:
        # Imported here: they would be most of the start of `memstream --help`.
        from mcp.server.mcpserver import MCPServer
        from mcp.server.transport_security import TransportSecuritySettings
    except ImportError as error:
        raise MemstreamError(
            "the mcp package is missing",
            hint="it comes with the extra `mcp`: pip install '/path/to/checkout/libs/sdk[mcp]'",
        ) from error
    from memstream import __version__
    from memstream.tools import MemoryTools

    out = console(ctx)
    with out.client() as client:
        client.memory_stores.get(store)
        server = MCPServer("memstream", version=__version__, instructions=INSTRUCTIONS, log_level="WARNING")
        for tool in MemoryTools(actor, store, client).all():
            _add(server, tool)
        if transport is McpTransport.stdio:
            server.run("stdio")
        else:
            out.note(f"serving {actor}'s memory on http://{host}:{port}/mcp")
            # Against DNS rebinding: a page's name for this address is not among those it is reached by.
            names = [_bracketed(name) for name in (*LOOPBACK, host, *(allowed_hosts or ()))]
            security = TransportSecuritySettings(
                allowed_hosts=[*names, *(f"{name}:*" for name in names)],
                allowed_origins=[f"http://{name}:{port}" for name in names],
            )
            server.run("streamable-http", host=host, port=port, transport_security=security)


def _bracketed(host: str) -> str:
    """As it stands in a URL."""
    return f"[{host}]" if host.count(":") > 1 and not host.startswith("[") else host


def _add(server: MCPServer, tool: Callable[..., str]) -> None:
    from mcp.server.mcpserver.exceptions import ToolError

    @functools.wraps(tool)
    def told(*given: object, **named: object) -> str:
        try:
            return tool(*given, **named)
        except MemstreamError as error:
            raise ToolError(error.message) from error

    server.add_tool(told, description=inspect.getdoc(tool), structured_output=False)
