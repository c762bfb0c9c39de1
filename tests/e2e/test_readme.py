"""Every `sh` block of the README is run, one after another in one shell, against a fresh data directory."""

import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.support.servers import free_port, server_directory
from tests.support.standalone import ROOT

README = ROOT / "README.md"
BLOCK = re.compile(r"^```sh\n(.*?)^```", re.DOTALL | re.MULTILINE)
DEADLINE_S = 300.0


def blocks(text: str) -> list[str]:
    return BLOCK.findall(text)


def script(text: str) -> str:
    """The blocks as one script; a line that serves until Ctrl-C runs in the background and is waited for."""
    lines = ["set -eu", "trap 'kill $server 2>/dev/null || true; wait' EXIT", "server="]
    for block in blocks(text):
        for line in block.splitlines():
            lines += SERVING if line.strip() == "make run" else [line]
    return "\n".join(lines)


SERVING = [
    ".venv/bin/python -m services.standalone > build/readme.out & server=$!",
    "until grep -q '^curl' build/readme.out; do kill -0 $server; sleep 0.2; done",
    "eval \"$(grep '^export' build/readme.out)\"",
]


@pytest.mark.slow
def test_every_block_of_the_readme_runs() -> None:
    assert blocks(README.read_text()), "a README without a block to run tests nothing"
    (ROOT / "build").mkdir(exist_ok=True)
    with server_directory() as directory:
        variables = {"MEMSTREAM_PORT": str(free_port()), "MEMSTREAM_DATA_DIR": str(Path(directory) / "data")}

        answer = subprocess.run(
            ["sh", "-c", script(README.read_text())],
            cwd=ROOT,
            env={**os.environ, **variables},
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
        )

    assert answer.returncode == 0, answer.stdout[-2000:] + answer.stderr[-2000:]
