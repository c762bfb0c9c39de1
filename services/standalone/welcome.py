"""What `make run` prints: the address, a token, and three commands that work as they are pasted."""

import json
import shlex
from pathlib import Path

from libs.contracts.routes import BASE, MEMORY_STORES, PIPELINES, SESSION_STORES
from services.standalone.app import Standalone

PRINCIPAL = "developer@localhost"
TOKEN_TTL_S = 24 * 3600
SESSION_STORE, MEMORY_STORE = "conversations", "memories"


def welcome(standalone: Standalone) -> str:
    lines = [f"Memstream serves on {standalone.url} (Ctrl-C stops it), data in {standalone.settings.data_dir}"]
    lines.append(f"Documentation of the API: {standalone.url}/docs")
    lines.append(f"Conversations are distilled by {standalone.settings.model}")
    token = standalone.token(PRINCIPAL, ttl_s=TOKEN_TTL_S)
    header = _header_file(standalone.settings.data_dir, token)
    lines += ["", f"A token for {PRINCIPAL} in workspace 1, good for 24 hours:", ""]
    lines += [f"export MEMSTREAM_URL={standalone.url}", f"export MEMSTREAM_TOKEN={token}"]
    lines += ["", "The first time: a store for conversations, a store for memories, and what distils the one into the"]
    lines += ["other. They outlive a restart; once they are there, these lines answer ALREADY_EXISTS.", ""]
    return "\n".join([*lines, *curl_lines(standalone.url, header), ""])


def curl_lines(url: str, header: Path) -> list[str]:
    pipeline = {
        "session_store": f"{SESSION_STORES}/{SESSION_STORE}",
        "memory_store": f"{MEMORY_STORES}/{MEMORY_STORE}",
        "dreamer_policy": {"trigger": "CONTINUOUS"},
    }
    calls: list[tuple[str, dict[str, object]]] = [
        (f"{SESSION_STORES}?session_store_id={SESSION_STORE}", {"description": "Conversations of my agent"}),
        (f"{MEMORY_STORES}?managed_memory_store_id={MEMORY_STORE}", {"description": "What my agent knows"}),
        (PIPELINES, {**pipeline}),
    ]
    return [
        shlex.join(["curl", "-sS", "-w", "\\n", "-H", f"@{header}", f"{url}{BASE}/{path}", "-d", json.dumps(body)])
        for path, body in calls
    ]


def _header_file(directory: Path, token: str) -> Path:
    """The headers for curl's `-H @file`: a line to paste stays short and holds no secret."""
    path = directory / "curl-headers"
    path.touch(mode=0o600)
    path.chmod(0o600)
    path.write_text(f"Authorization: Bearer {token}\nContent-Type: application/json\n")
    return path
