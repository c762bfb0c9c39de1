"""An OpenAI-compatible server that does what a test tells it, and counts calls.

A behaviour takes the request's body and answers; those given are used up in order, then the last one is repeated.
"""

import asyncio
import json
import re
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass, field
from textwrap import dedent
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from services.distiller.llm import Models
from services.distiller.settings import DistillerSettings
from tests.support.servers import free_port
from tests.support.service import until

LINE = re.compile(r"^\[(\d+)\] \S+ user: (.*)$", re.MULTILINE)
ENTRY = re.compile(r"^\[(\d+)\] (\S+) \((\w+)\): (.*(?:\n    .*)*)$", re.MULTILINE)
Behaviour = Callable[[dict[str, Any]], Awaitable[Response]]


def completion(content: str, *, finish_reason: str = "stop", refusal: str | None = None) -> Response:
    return JSONResponse(
        {
            "id": "scripted",
            "object": "chat.completion",
            "created": 0,
            "model": "scripted",
            "choices": [
                {
                    "index": 0,
                    "finish_reason": finish_reason,
                    "message": {"role": "assistant", "content": content, "refusal": refusal},
                }
            ],
            "usage": {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110},
        }
    )


def note(number: int, text: str) -> dict[str, Any]:
    """A change that keeps a line as it is, in a slot of its own."""
    slug = "-".join(re.findall(r"[a-z0-9]+", text.lower()))[:60]
    return {
        "op": "set",
        "path": f"/notes/{slug}.md",
        "kind": "item",
        "statement": text,
        "description": text,
        "said_by": "user",
        "event_date": None,
        "evidence": [number],
    }


def asked_lines(body: dict[str, Any]) -> list[tuple[int, str]]:
    """The user's fresh lines of a request, by number."""
    return [(int(number), text) for number, text in LINE.findall(body["messages"][-1]["content"])]


@dataclass(frozen=True)
class AskedEntry:
    number: int
    path: str
    kind: str
    statement: str


def asked_groups(body: dict[str, Any]) -> list[list[AskedEntry]]:
    """The groups of entries of a consolidation's request; one that is too long is alone. None of a distillation's."""
    content = body["messages"][-1]["content"]
    return [
        [AskedEntry(int(number), path, kind, dedent(f"    {text}")) for number, path, kind, text in ENTRY.findall(part)]
        for part in re.split(r"^(?:Group|Too long):$", content, flags=re.MULTILINE)[1:]
    ]


def into(path: str, statement: str, kind: str = "item") -> dict[str, Any]:
    return {"path": path, "kind": kind, "statement": statement, "description": statement, "event_date": None}


def consolidating(same: Callable[[str], str], parts: Callable[[str], list[str]] = str.splitlines) -> Behaviour:
    """Merges the entries of a group that `same` maps to one thing, the longest statement stays; splits the long ones.

    Lines are kept as by `valid`.
    """

    async def behave(body: dict[str, Any]) -> Response:
        rewrites = []
        for group in asked_groups(body):
            if len(group) == 1:
                slots = [note(0, part) for part in parts(group[0].statement)]
                split = [into(slot["path"], slot["statement"]) for slot in slots]
                rewrites.append({"replaces": [group[0].number], "into": split})
                continue
            things: dict[str, list[AskedEntry]] = {}
            for entry in group:
                things.setdefault(same(entry.statement), []).append(entry)
            for entries in things.values():
                if len(entries) > 1:
                    longest = max(entries, key=lambda entry: len(entry.statement))
                    numbers = [entry.number for entry in entries]
                    rewrites.append({"replaces": numbers, "into": [into(entries[0].path, longest.statement)]})
        return completion(json.dumps({"rewrites": rewrites})) if asked_groups(body) else await valid(body)

    return behave


async def valid(body: dict[str, Any]) -> Response:
    """One fact per line of the user."""
    return completion(json.dumps({"changes": [note(number, text) for number, text in asked_lines(body)]}))


def in_slot(path: str, kind: str = "state", op: str = "set") -> Behaviour:
    """Keeps what is said in one slot, whether or not it was offered."""

    async def behave(body: dict[str, Any]) -> Response:
        slot = {"op": op, "path": path, "kind": kind, "description": ""}
        changes = [note(number, text) | slot for number, text in asked_lines(body)]
        return completion(json.dumps({"changes": changes}))

    return behave


async def fenced(body: dict[str, Any]) -> Response:
    changes = json.dumps({"changes": [note(number, text) for number, text in asked_lines(body)]})
    return completion(f"```json\n{changes}\n```")


async def prose(_: dict[str, Any]) -> Response:
    return completion("I am sorry, what a lovely conversation!")


async def wrong_shape(_: dict[str, Any]) -> Response:
    return completion(json.dumps({"facts": ["ana likes tea"]}))


async def foreign_evidence(_: dict[str, Any]) -> Response:
    return completion(json.dumps({"changes": [note(999, "from nowhere")]}))


async def refused(_: dict[str, Any]) -> Response:
    return completion("", refusal="I cannot help with that.")


def trickle(every_s: float) -> Behaviour:
    """An answer that begins at once and never ends, a byte at a time."""

    async def behave(_: dict[str, Any]) -> Response:
        async def bytes_of_it() -> AsyncIterator[bytes]:
            yield b"{"
            while True:
                await asyncio.sleep(every_s)
                yield b" "

        return StreamingResponse(bytes_of_it(), media_type="application/json")

    return behave


async def hang(_: dict[str, Any]) -> Response:
    await asyncio.sleep(3600)
    return completion("")


def odd(body: Any) -> Behaviour:
    """A 200 with a body that is no completion, or an odd one."""

    async def behave(_: dict[str, Any]) -> Response:
        return body if isinstance(body, Response) else JSONResponse(body)

    return behave


def with_statement(statement: str) -> Behaviour:
    """A well-formed answer with this statement."""

    async def behave(body: dict[str, Any]) -> Response:
        changes = [note(number, text) | {"statement": statement} for number, text in asked_lines(body)]
        return completion(json.dumps({"changes": changes}))

    return behave


def with_usage(usage: Any) -> Behaviour:
    """A valid answer whose bill makes no sense."""

    async def behave(body: dict[str, Any]) -> Response:
        answer = json.loads(bytes((await valid(body)).body))
        return JSONResponse(answer | {"usage": usage})

    return behave


def truncated_above(lines: int) -> Behaviour:
    """Cut at the output limit when there are more lines than that, else valid."""

    async def behave(body: dict[str, Any]) -> Response:
        if len(asked_lines(body)) > lines:
            return completion('{"changes": [{"op": "se', finish_reason="length")
        return await valid(body)

    return behave


def answers(text: str) -> Behaviour:
    """Says that, streamed when asked so."""

    async def behave(body: dict[str, Any]) -> Response:
        return _streamed({"content": text}, "stop") if body.get("stream") else completion(text)

    return behave


def calls(*tools: tuple[str, dict[str, Any]]) -> Behaviour:
    """Calls these tools at once, each by its name and arguments."""

    async def behave(body: dict[str, Any]) -> Response:
        asked = [
            {
                "index": index,
                "id": f"call-{uuid.uuid4().hex[:12]}",
                "type": "function",
                "function": {"name": name, "arguments": json.dumps(arguments)},
            }
            for index, (name, arguments) in enumerate(tools)
        ]
        if body.get("stream"):
            return _streamed({"content": None, "tool_calls": asked}, "tool_calls")
        answer = json.loads(bytes(completion("", finish_reason="tool_calls").body))
        answer["choices"][0]["message"] |= {"content": None, "tool_calls": asked}
        return JSONResponse(answer)

    return behave


def _streamed(delta: dict[str, Any], finish_reason: str) -> Response:
    """One chunk with everything and one that ends it."""
    chunks = [
        {
            "id": "scripted",
            "object": "chat.completion.chunk",
            "created": 0,
            "model": "scripted",
            "choices": [{"index": 0, "delta": delta, "finish_reason": reason}],
        }
        for delta, reason in (({"role": "assistant", **delta}, None), ({}, finish_reason))
    ]
    lines = [*(json.dumps(chunk) for chunk in chunks), "[DONE]"]
    return Response("".join(f"data: {line}\n\n" for line in lines), media_type="text/event-stream")


def status(code: int, **headers: str) -> Behaviour:
    async def behave(_: dict[str, Any]) -> Response:
        return JSONResponse({"error": {"message": "scripted"}}, status_code=code, headers=headers)

    return behave


@dataclass
class ScriptedModel:
    url: str = ""
    behaviours: list[Behaviour] = field(default_factory=lambda: [valid])
    requests: list[dict[str, Any]] = field(default_factory=list)
    tokens: int = 0

    @property
    def calls(self) -> int:
        return len(self.requests)

    def behave(self, *behaviours: Behaviour) -> None:
        self.behaviours = list(behaviours)

    def models(self, **settings: Any) -> Models:
        """The distiller's models with this server as the default one."""
        values: dict[str, Any] = {"database_url": "postgresql://unused", "openai_base_url": self.url} | settings
        return Models.of(DistillerSettings(model="scripted", **values))

    async def _complete(self, request: Request) -> Response:
        body = await request.json()
        self.requests.append(body)
        behaviour = self.behaviours.pop(0) if len(self.behaviours) > 1 else self.behaviours[0]
        answer = await behaviour(body)
        if isinstance(answer, JSONResponse):
            said = json.loads(bytes(answer.body))
            usage = said.get("usage") if isinstance(said, dict) else None
            self.tokens += usage.get("total_tokens", 0) if isinstance(usage, dict) else 0
        return answer


@asynccontextmanager
async def scripted_model() -> AsyncIterator[ScriptedModel]:
    model = ScriptedModel()
    async with listening(Route("/v1/chat/completions", model._complete, methods=["POST"])) as url:
        model.url = f"{url}/v1"
        yield model


@asynccontextmanager
async def listening(*routes: Route) -> AsyncIterator[str]:
    """The address of a server with these routes."""
    port = free_port()
    config = uvicorn.Config(
        Starlette(routes=routes),
        host="127.0.0.1",
        port=port,
        log_config=None,
        lifespan="off",
        timeout_graceful_shutdown=0,
    )
    server = uvicorn.Server(config)
    server.capture_signals = nullcontext  # type: ignore[assignment]  # pytest keeps its own handlers
    serving = asyncio.create_task(server.serve())
    await until(lambda: server.started)
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        await asyncio.wait([serving])
