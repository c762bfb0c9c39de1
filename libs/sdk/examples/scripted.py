"""Which model the examples ask: that of the environment, else a script that stands in for one, offline.

Environment: OPENAI_API_KEY with MODEL, and OPENAI_BASE_URL for any OpenAI-compatible server. The script speaks the same
protocol on a port of its own. It keeps what sounds like a fact, looks things up when asked, and answers with what it
was given: enough to see where an agent's words come from.
"""

from __future__ import annotations

import json
import os
import re
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

OPENAI = "https://api.openai.com/v1"
FACT = re.compile(r"\b(I prefer|I like|I live|I am|I'm|my)\b", re.IGNORECASE)
MARKS = re.compile(r"</?memory>")

Message = dict[str, Any]


@dataclass(frozen=True)
class Endpoint:
    base_url: str
    api_key: str
    model: str


@contextmanager
def model_endpoint() -> Iterator[Endpoint]:
    base_url, api_key = os.environ.get("OPENAI_BASE_URL"), os.environ.get("OPENAI_API_KEY")
    if base_url or api_key:
        if not os.environ.get("MODEL"):
            sys.exit("which model? set MODEL, or unset OPENAI_API_KEY and OPENAI_BASE_URL to go offline")
        yield Endpoint(base_url or OPENAI, api_key or "none", os.environ["MODEL"])
        return
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    serving = threading.Thread(target=server.serve_forever)
    serving.start()
    try:
        yield Endpoint(f"http://127.0.0.1:{server.server_port}/v1", "none", "scripted")
    finally:
        server.shutdown()
        serving.join()
        server.server_close()


def reply(messages: Sequence[Message], tools: Sequence[str]) -> Message:
    """The assistant's next message."""
    last = messages[-1]
    if last["role"] == "tool":
        return _says(MARKS.sub("", last["content"]).strip())
    text = last["content"]
    if "?" in text:
        return _calls("recall", {"query": text, "session_id": None}) if "recall" in tools else _says(_known(messages))
    if "remember" in tools and FACT.search(text):
        return _calls("remember", {"fact": text, "topic": "preferences"})
    return _says("Thank you, I have noted that.")


def _known(messages: Sequence[Message]) -> str:
    """What the instructions say, and what the user said before."""
    told = [message["content"] for message in messages[:-1] if message["role"] in ("system", "user")]
    return "\n".join(["This is what I know:", *told])


def _says(text: str) -> Message:
    return {"role": "assistant", "content": text}


def _calls(tool: str, arguments: dict[str, Any]) -> Message:
    function = {"name": tool, "arguments": json.dumps(arguments)}
    call = {"id": f"call-{os.urandom(6).hex()}", "type": "function", "function": function}
    return {"role": "assistant", "content": None, "tool_calls": [call]}


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        message = reply(asked["messages"], [tool["function"]["name"] for tool in asked.get("tools") or ()])
        reason = "tool_calls" if "tool_calls" in message else "stop"
        answer = {
            "id": "scripted",
            "object": "chat.completion",
            "created": 0,
            "model": "scripted",
            "choices": [{"index": 0, "finish_reason": reason, "message": message}],
        }
        body = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Quiet: the example's own answer is what is printed."""
