"""Every `sh` and `python` block of the README is run, in order in one shell, against a fresh data directory."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.servers import free_port, server_directory
from tests.support.standalone import ROOT, StandaloneProcess

README = ROOT / "README.md"
BLOCK = re.compile(r"^```(sh|python)\n(.*?)^```", re.DOTALL | re.MULTILINE)
DEADLINE_S = 300.0


def blocks(text: str) -> list[tuple[str, str]]:
    """Each block's language and lines."""
    return BLOCK.findall(text)


def script(text: str) -> str:
    """The blocks as one script; a line that serves until Ctrl-C runs in the background and is waited for."""
    lines = ["set -eu", "trap 'kill $server 2>/dev/null || true; wait' EXIT", "server="]
    for language, block in blocks(text):
        if language == "python":
            lines += [".venv/bin/python - <<'END'", *block.splitlines(), "END"]
            continue
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
    languages = {language for language, _ in blocks(README.read_text())}
    assert languages == {"sh", "python"}, "a README without a block to run tests nothing"
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


def test_the_python_of_the_clients_readme_runs(standalone: StandaloneProcess) -> None:
    text = (ROOT / "libs/sdk/README.md").read_text()
    python = [block for language, block in blocks(text) if language == "python"]
    assert python, "a README without a block to run tests nothing"

    answer = subprocess.run(
        [sys.executable, "-c", "\n".join(python)],
        env={**os.environ, "MEMSTREAM_URL": standalone.url, "MEMSTREAM_TOKEN": standalone.token},
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )

    assert answer.returncode == 0, answer.stderr[-2000:]
    assert "I'm allergic to peanuts." in answer.stdout
