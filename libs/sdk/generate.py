"""Makes the blocking client from the asynchronous one: `python libs/sdk/generate.py`; `--check` only compares.

One source for both: what differs is `await` and a few names, and `memstream/http.py`, which is written by hand.
"""

import re
import subprocess
import sys
from pathlib import Path

PACKAGE = Path(__file__).parent / "memstream"
MODULES = (
    "client",
    "fenced",
    "langgraph/appends",
    "langgraph/entries",
    "langgraph/tails",
    "langgraph/threads",
    "langgraph/upkeep",
    "long_term",
    "memories",
    "pipelines",
    "sessions",
    "stores",
    "transport",
)
NOTE = "# Made by libs/sdk/generate.py from aio/{name}.py; change that one.\n"
RULES = (
    (r"\basync (?=def|for|with)", ""),
    (r"`async with`", "`with`"),
    (r"\bawait ", ""),
    (r"\bmemstream\.aio\b", "memstream"),
    (r"\bAsyncAgentKitClient\b", "AgentKitClient"),
    (r"\bAsyncGenerator\[(\w+), None\]", r"Generator[\1, None, None]"),
    (r"\bAsync(?=Generator\b|Iterator\b)", ""),
    (r"\bhttpx\.Async(?=Client\b|BaseTransport\b)", "httpx."),
    (r"\b__a(?=enter__|exit__)", "__"),
    (r"\baclosing\b", "closing"),
    (r"\bAwaitable\[(\w+)\]", r"\1"),
    (r"\bAwaitable, ", ""),
    (r"\basyncio(?=\.Lock\b|$)", "threading"),
    (r"\.a(?=close\(|read\(|iter_lines\()", "."),
)

# A loop that only yields is `yield from` where nothing is awaited.
SORT = ["check", "--quiet", "--fix", "--unsafe-fixes", "--select", "I,UP028"]


def blocking(name: str) -> str:
    text = (PACKAGE / "aio" / f"{name}.py").read_text()
    for pattern, replacement in RULES:
        text = re.sub(pattern, replacement, text, flags=re.MULTILINE)
    for command in (SORT, ["format", "--quiet"]):
        text = subprocess.run(  # noqa: S603 - a fixed command
            [sys.executable, "-m", "ruff", *command, "--stdin-filename", str(PACKAGE / f"{name}.py"), "-"],
            input=text,
            capture_output=True,
            text=True,
            check=True,
        ).stdout
    return NOTE.format(name=name) + text


def main() -> int:
    is_check = "--check" in sys.argv[1:]
    stale = []
    for name in MODULES:
        path, text = PACKAGE / f"{name}.py", blocking(name)
        if path.exists() and path.read_text() == text:
            continue
        stale.append(name)
        if not is_check:
            path.write_text(text)
    if is_check and stale:
        sys.stderr.write(f"stale, run libs/sdk/generate.py: {', '.join(stale)}\n")
    return int(is_check and bool(stale))


if __name__ == "__main__":
    sys.exit(main())
