"""What `mypy --strict` says to a user of the client, at the oldest Python that it runs on."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.standalone import ROOT

DEADLINE_S = 300.0

RIGHT = """
from collections.abc import AsyncIterator, Iterator
from datetime import datetime, timezone

from typing_extensions import assert_type

from memstream import (
    AgentKitClient, AsyncAgentKitClient, Memory, MemoryStore, MemstreamError, NewItem, Session, SessionItem,
    SessionStore, aio
)


def blocking(client: AgentKitClient) -> None:
    chats = client.session_stores.create("chats", metadata={"a": "b"})
    assert_type(chats, SessionStore)
    assert_type(chats.list(), Iterator[Session])
    session = chats.add(actor_id="ines")
    items = session.append_items([NewItem({"any": ["json"]}, datetime.now(timezone.utc)), 1, None])
    assert_type(items, list[SessionItem])
    assert_type(session.pop_item(), SessionItem | None)
    facts = client.memory_stores.get("facts")
    assert_type(facts, MemoryStore)
    for hit in facts.search(actor_id="ines", query="tea", wait_for=session.up_to(items[-1].position)):
        assert_type(hit.memory, Memory)
        assert_type(hit.score, float | None)
    try:
        client.pipelines.create(session_store=chats.name, memory_store=facts.id, trigger="CONTINUOUS").run()
    except MemstreamError as error:
        assert_type(error.hint, str | None)


async def awaited(client: AsyncAgentKitClient) -> None:
    chats = await client.session_stores.create("chats")
    assert_type(chats, aio.SessionStore)
    assert_type(chats.list(), AsyncIterator[aio.Session])
    facts = await client.memory_stores.get("facts")
    async for memory in facts.list(actor_id="ines"):
        assert_type(memory, aio.Memory)
    async for change in facts.watch():
        assert_type(change.version, int | None)


async def token() -> str:
    return "fresh"


class Config:
    host = "http://server"

    def authenticate(self) -> dict[str, str]:
        return {}


class Workspace:
    config = Config()


AgentKitClient(Workspace())
AgentKitClient(token=lambda: "fresh")
AsyncAgentKitClient(token=token, timeout_s=5)
"""
WRONG = """
from memstream import AgentKitClient, AsyncAgentKitClient

client = AgentKitClient()
client.session_stores.get(1)
client.session_stores.get("a").name = "b"
client.memory_stores.get("a").search(query="tea")
client.nothing


async def token() -> str:
    return "fresh"


AgentKitClient(token=token)


async def awaited(client: AsyncAgentKitClient) -> None:
    client.session_stores.get("a").name
"""


def mypy(program: str, directory: Path) -> tuple[int, list[str]]:
    """Its exit status, and the lines that it finds fault with."""
    path = directory / "program.py"
    path.write_text(program)
    answer = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--python-version", "3.10", "--no-error-summary", path.name],
        cwd=directory,
        env={**os.environ, "MYPYPATH": str(ROOT / "libs/sdk")},
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )
    return answer.returncode, [line for line in answer.stdout.splitlines() if ": error:" in line]


@pytest.mark.slow
def test_a_users_program_is_clean_and_a_wrong_one_is_told(tmp_path: Path) -> None:
    assert mypy(RIGHT, tmp_path) == (0, [])

    status, faults = mypy(WRONG, tmp_path)

    assert status == 1
    lines = [int(fault.split(":")[1]) for fault in faults]
    assert lines == [5, 6, 7, 8, 15, 19], faults
