"""Every `sh` and `python` block of the README is run, in order in one shell, against a fresh data directory."""

import asyncio
import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.support.scripted_model import ScriptedModel, answers, calls, scripted_model
from tests.support.servers import free_port, server_directory
from tests.support.standalone import ROOT, StandaloneProcess

README = ROOT / "README.md"
BLOCK = re.compile(r"^```(sh|python)\n(.*?)^```", re.DOTALL | re.MULTILINE)
DEADLINE_S = 300.0
# What the handlers of the client's README are asked; in one loop, because the Agents SDK keeps one client of its own.
ASKING = """
import os

async def ask():
    print(await answer("nadia", "nadia-2", "Which allergies do I have?"))
    request = {"input": [{"role": "user", "content": "May I eat peanuts?"}], "custom_inputs": {"user_id": "nadia"}}
    first = await predict(request, os.environ["MEMSTREAM_TOKEN"])
    second = await predict({**request, "conversation_id": first["custom_outputs"]["thread_id"]}, "nobody's")
    assert first["custom_outputs"] == second["custom_outputs"]
    print(first["output"][0]["content"])

asyncio.run(ask())
"""


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
async def test_every_block_of_the_readme_runs() -> None:
    languages = {language for language, _ in blocks(README.read_text())}
    assert languages == {"sh", "python"}, "a README without a block to run tests nothing"
    (ROOT / "build").mkdir(exist_ok=True)
    with server_directory() as directory:
        async with scripted_model() as model:
            recall = calls(("recall", {"query": "call or write", "session_id": None}))
            model.behave(answers("Noted."), recall, answers("I would write to you."))
            variables = {"MEMSTREAM_PORT": str(free_port()), "MEMSTREAM_DATA_DIR": str(Path(directory) / "data")}

            told = await ran(of_model(model) | variables, "sh", "-c", script(README.read_text()))

    assert "I would write to you." in told
    assert re.search(r"1 +user: I prefer e-mail over phone, and I am allergic to peanuts\.", told)
    assert re.search(r"\nRun memory-pipelines/\S+: SUCCEEDED\n", told)
    assert re.search(r"\n0\.\d\d +/\S+ +I prefer e-mail over phone", told)
    assert "I live in Lisbon." in told
    assert "support-app has WRITE on memory store facts" in told
    assert told.endswith("Deleted memory store facts\n")


def of_model(model: ScriptedModel) -> dict[str, str]:
    """An environment in which agents ask this model."""
    return {
        **without_model(),
        "OPENAI_BASE_URL": model.url,
        "OPENAI_API_KEY": "none",
        "OPENAI_AGENTS_DISABLE_TRACING": "1",
    }


def without_model() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith(("OPENAI_", "MODEL"))}


async def test_every_block_of_the_clients_readme_runs(standalone: StandaloneProcess) -> None:
    text = (ROOT / "libs/sdk/README.md").read_text()
    python, shell = ("\n".join(block for kind, block in blocks(text) if kind == wanted) for wanted in ("python", "sh"))
    assert python, "a README without a block to run tests nothing"
    assert shell, "a README without a block to run tests nothing"
    async with scripted_model() as model:
        model.behave(calls(("recall", {"query": "allergies", "session_id": None})), answers("Peanuts."))
        variables = {
            "MEMSTREAM_URL": standalone.url,
            "MEMSTREAM_TOKEN": standalone.token,
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        }

        first = next(block for kind, block in blocks(text) if kind == "python")
        await ran(of_model(model) | variables, sys.executable, "-c", first)
        spoken = await ran(of_model(model) | variables, sys.executable, "-c", python + ASKING)
        typed = await ran(without_model() | variables, "sh", "-euc", shell)

    assert "I'm allergic to peanuts." in spoken
    assert "Peanuts." in spoken
    recalled, instructed = model.requests[1]["messages"][-1], model.requests[2]["messages"][0]
    assert "peanuts" in recalled["content"]
    assert "peanuts" in instructed["content"]
    assert "I prefer e-mail over phone." in typed
    assert "I live in Lisbon." in typed


async def ran(variables: Mapping[str, str], *command: str) -> str:
    """What it prints; it must end well."""
    process = await asyncio.create_subprocess_exec(
        *command,
        cwd=ROOT,
        env=variables,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, errors = await asyncio.wait_for(process.communicate(), DEADLINE_S)
    assert process.returncode == 0, errors.decode()[-2000:]
    return out.decode()
