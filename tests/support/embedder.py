"""An OpenAI-compatible embeddings server: words hashed into bags, so that texts with the same words are near.

It does what a test tells it, and counts what it was asked.
"""

import asyncio
import hashlib
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from tests.support.scripted_model import listening

Behaviour = Callable[["Embedder", dict[str, Any]], Awaitable[Response]]


def bag(text: str, dimensions: int) -> list[float]:
    """Each word counts in one dimension; a synonym is the word that it stands for."""
    vector = [0.0] * dimensions
    for word in re.findall(r"\w+", text.lower()):
        meant = SYNONYMS.get(word, word)
        vector[int.from_bytes(hashlib.sha256(meant.encode()).digest()[:4], "big") % dimensions] += 1.0
    return vector


SYNONYMS = {"feline": "cat", "automobile": "car", "physician": "doctor"}


async def embed(embedder: "Embedder", body: dict[str, Any]) -> Response:
    dimensions = embedder.dimensions[body["model"]]
    data = [{"index": number, "embedding": bag(text, dimensions)} for number, text in enumerate(body["input"])]
    return JSONResponse({"object": "list", "data": data, "usage": {"total_tokens": 7 * len(data)}})


async def hang(_: "Embedder", __: dict[str, Any]) -> Response:
    await asyncio.sleep(3600)
    return JSONResponse({})


def status(code: int, **headers: str) -> Behaviour:
    async def behave(_: "Embedder", __: dict[str, Any]) -> Response:
        return JSONResponse({"error": {"message": "scripted"}}, status_code=code, headers=headers)

    return behave


def answers(body: Any) -> Behaviour:
    """A 200 that is no embeddings, or odd ones."""

    async def behave(_: "Embedder", __: dict[str, Any]) -> Response:
        return body if isinstance(body, Response) else JSONResponse(body)

    return behave


def refusing(word: str) -> Behaviour:
    """400 for whatever has a text with this word."""

    async def behave(embedder: "Embedder", body: dict[str, Any]) -> Response:
        if any(word in text for text in body["input"]):
            return JSONResponse({"error": {"message": "scripted"}}, status_code=400)
        return await embed(embedder, body)

    return behave


def waiting(model: str, until: asyncio.Event) -> Behaviour:
    """Answers nothing about one model before an event."""

    async def behave(embedder: "Embedder", body: dict[str, Any]) -> Response:
        if body["model"] == model:
            await until.wait()
        return await embed(embedder, body)

    return behave


@dataclass
class Embedder:
    """`dimensions` by the name of the model."""

    dimensions: dict[str, int] = field(default_factory=lambda: {"small": 384, "large": 768})
    url: str = ""
    behaviour: Behaviour = embed
    requests: list[dict[str, Any]] = field(default_factory=list)
    slow_s: float = 0.0

    def texts(self, model: str) -> list[str]:
        """Everything that it was asked to embed."""
        return [text for request in self.requests if request["model"] == model for text in request["input"]]

    def models_file(self, directory: Path, *, names: Sequence[str] = ("small", "large")) -> Path:
        entries = [
            f'{{"name": "{name}", "base_url": "{self.url}", "dimensions": {self.dimensions[name]}}}' for name in names
        ]
        file = directory / "models.json"
        file.write_text(f'[{{"name": "writes", "base_url": "{self.url}"}}, {", ".join(entries)}]')
        return file

    async def _embed(self, request: Request) -> Response:
        body = await request.json()
        self.requests.append(body)
        await asyncio.sleep(self.slow_s)
        return await self.behaviour(self, body)


@asynccontextmanager
async def embedder() -> AsyncIterator[Embedder]:
    made = Embedder()
    async with listening(Route("/v1/embeddings", made._embed, methods=["POST"])) as url:
        made.url = f"{url}/v1"
        yield made
