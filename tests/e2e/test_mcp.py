"""`memstream mcp` as an MCP client meets it: a process of its own, over stdio and over HTTP."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from mcp import Client, StdioServerParameters

from memstream.client import AgentKitClient
from tests.support.servers import free_port
from tests.support.service import until
from tests.support.standalone import StandaloneProcess

MEMSTREAM = str(Path(sys.executable).parent / "memstream")
TOOLS = ["remember", "recall", "forget", "list_memories"]
STOP_DEADLINE_S = 30.0


class Served:
    def __init__(self, standalone: StandaloneProcess, store: str) -> None:
        self.arguments = ["mcp", "--actor", "ines", "--store", store]
        self.variables = {
            **os.environ,
            "MEMSTREAM_URL": standalone.url,
            "MEMSTREAM_TOKEN": standalone.token,
        }

    @asynccontextmanager
    async def stdio(self) -> AsyncIterator[Client]:
        async with Client(StdioServerParameters(command=MEMSTREAM, args=self.arguments, env=self.variables)) as client:
            yield client

    @asynccontextmanager
    async def http(self) -> AsyncIterator[Client]:
        async with self.http_url() as url, Client(url) as client:
            yield client

    @asynccontextmanager
    async def http_url(self, *options: str) -> AsyncIterator[str]:
        port = free_port()
        process = await asyncio.create_subprocess_exec(
            MEMSTREAM, *self.arguments, "--transport", "http", "--port", str(port), *options, env=self.variables
        )
        url = f"http://127.0.0.1:{port}/mcp"
        try:
            async with httpx.AsyncClient() as http:
                await until(lambda: _answers(http, url))
            yield url
        finally:
            process.send_signal(signal.SIGINT)
            await asyncio.wait_for(process.wait(), STOP_DEADLINE_S)


async def _answers(http: httpx.AsyncClient, url: str) -> bool:
    try:
        await http.get(url)
    except httpx.TransportError:
        return False
    return True


@pytest.fixture
def served(standalone: StandaloneProcess, client: AgentKitClient, name: str) -> Served:
    return Served(standalone, client.memory_stores.create(name).id)


def text(result: Any) -> str:
    (content,) = result.content
    return str(content.text)


@pytest.mark.parametrize("transport", ["stdio", "http"])
async def test_one_actors_memory_is_served(transport: str, served: Served, client: AgentKitClient, name: str) -> None:
    facts = client.memory_stores.get(name)
    facts.put(actor_id="emil", path="/drinks.md", content="Prefers black tea.")
    open_client = served.stdio if transport == "stdio" else served.http

    async with open_client() as session:
        tools = (await session.list_tools()).tools
        remembered = await session.call_tool("remember", {"fact": "Prefers green tea.", "topic": "drinks"})
        recalled = await session.call_tool("recall", {"query": "tea"})
        listed = await session.call_tool("list_memories", {})
        intruding = await session.call_tool("recall", {"query": "tea", "actor": "emil", "actor_id": "emil"})
        forgotten = await session.call_tool("forget", {"fact": "prefers GREEN tea.", "topic": "drinks"})

    assert [tool.name for tool in tools] == TOOLS
    assert all("actor" not in str(tool.input_schema) and tool.description for tool in tools)
    assert text(remembered) == "Remembered in /drinks.md."
    assert text(recalled) == "<memory>\n/drinks.md:\n  Prefers green tea.\n</memory>"
    assert "/drinks.md (1 fact)" in text(listed)
    assert "black" not in text(intruding)
    assert text(forgotten) == "Forgot 1 fact in /drinks.md."
    assert [memory.content for memory in facts.list(actor_id="emil")] == ["Prefers black tea."]
    assert list(facts.list(actor_id="ines")) == []


async def test_a_store_that_does_not_exist_ends_it_with_one_line(standalone: StandaloneProcess) -> None:
    served = Served(standalone, "no-such-store")
    process = await asyncio.create_subprocess_exec(
        MEMSTREAM, *served.arguments, env=served.variables, stderr=asyncio.subprocess.PIPE
    )
    _, said = await asyncio.wait_for(process.communicate(), STOP_DEADLINE_S)

    assert process.returncode == 1
    assert said.decode().startswith("error[NOT_FOUND]: ")
    assert "no-such-store" in said.decode()


async def test_what_cannot_be_had_is_a_tools_error_with_its_reason(
    served: Served, client: AgentKitClient, name: str
) -> None:
    async with served.stdio() as session:
        client.memory_stores.get(name).delete()
        result = await session.call_tool("recall", {"query": "tea"})
        again = await session.call_tool("recall", {"query": "tea"})

    assert result.is_error
    assert again.is_error
    assert name in text(result)


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
async def test_a_page_of_another_origin_is_refused(host: str, served: Served) -> None:
    options = ("--host", host, "--allowed-host", "memory.internal")
    async with served.http_url(*options) as url, httpx.AsyncClient() as http:
        body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
        accept = {"Accept": "application/json, text/event-stream"}
        foreign = await http.post(url, json=body, headers={**accept, "Origin": "https://example.org"})
        rebound = await http.post(url, json=body, headers={**accept, "Host": "example.org"})
        named = await http.post(url, json=body, headers={**accept, "Host": "memory.internal:80"})

    assert (foreign.status_code, rebound.status_code) == (403, 421)
    assert named.status_code not in (403, 421)
