"""Runs a program of `tests.bench.peers` in the environment of the peers."""

import asyncio
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.bench.stand import BUILD, ROOT

PYTHON = BUILD / "peers" / "bin" / "python"
DEADLINE_S = 300.0


class PeerFailed(Exception):
    """A peer's program did not print what it measured."""


async def measured(program: str, *arguments: str, python: Path = PYTHON) -> Any:
    """The JSON of the last line that the program prints. Raises `PeerFailed` with the end of what it said."""
    try:
        process = await asyncio.create_subprocess_exec(
            python,
            "-m",
            f"tests.bench.peers.{program}",
            *arguments,
            cwd=ROOT,
            env={"PATH": os.defpath, "HOME": str(BUILD)},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
    except FileNotFoundError:
        raise PeerFailed(f"{python} is not there; `make build/peers/.installed` makes it") from None
    try:
        async with asyncio.timeout(DEADLINE_S):
            printed, complaints = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    try:
        return json.loads(printed.splitlines()[-1])
    except (IndexError, ValueError):
        tail = complaints.decode(errors="replace").splitlines()[-10:]
        raise PeerFailed(f"{program} ended with status {process.returncode}:\n" + "\n".join(tail)) from None


@asynccontextmanager
async def serving(program: str, *, python: Path = PYTHON) -> AsyncIterator[str]:
    """The address that a program prints, while it serves; raises `PeerFailed` when it prints none."""
    process = await asyncio.create_subprocess_exec(
        python, "-m", f"tests.bench.peers.{program}", cwd=ROOT, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        url = (await process.stdout.readline()).decode().strip()
        if not url:
            raise PeerFailed(f"{program} ended before it served, with status {await process.wait()}")
        yield url
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
