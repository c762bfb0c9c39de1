"""The doorway to embeddings endpoints: texts become vectors, or it says whose fault it is that they do not.

Vectors can be compared only within one space: a model by its name, with its number of dimensions. A search waits a
moment for the vector of its query and then does without; what is embedded in the background has more time.
"""

import asyncio
import hashlib
from collections.abc import Sequence
from typing import Any

import httpx
import msgspec

from libs.chassis.breaker import PROBE_INTERVAL_S, Breaker, pause_s
from libs.chassis.models import NamedModel, read_models
from services.memory.metrics import Metrics
from services.memory.settings import MemorySettings

OPENAI = "https://api.openai.com/v1"
REMEMBERED_QUERIES = 512
VAIN_IN_A_ROW = 3
VAIN_PAUSE_S = 5.0
LARGEST = 1e30
MAX_TOKENS = 10**9
# Any endpoint embeds it, so what refuses this refuses everything.
PLAIN_TEXT = "memory"


class Away(Exception):
    """The endpoint is failing, or what it answers is no use: try later."""


class TextsRefused(Exception):
    """The endpoint will not embed these texts, however often it is asked."""


class _Item(msgspec.Struct):
    index: int
    embedding: list[float]


class _Answer(msgspec.Struct):
    data: list[_Item]
    usage: Any = None


class Embedder:
    """One model. Its vectors are text as Postgres reads them."""

    def __init__(
        self,
        config: NamedModel,
        *,
        timeout_s: float,
        query_timeout_s: float,
        client: httpx.AsyncClient,
        metrics: Metrics,
    ) -> None:
        assert config.dimensions is not None  # noqa: S101 - what has none is no embedding model
        self.config = config
        self.space = f"{config.name}:{config.dimensions}"
        self.breaker = Breaker()
        self._name = config.name
        self._dimensions = config.dimensions
        self._model = config.model or config.name
        self._url = f"{(config.base_url or OPENAI).rstrip('/')}/embeddings"
        self._headers = {"Authorization": f"Bearer {config.api_key.get_secret_value()}"} if config.api_key else {}
        self._timeout_s = timeout_s
        self._query_timeout_s = query_timeout_s
        self._client = client
        self._metrics = metrics
        self._queries: dict[bytes, str] = {}
        self._in_vain = 0

    async def texts(self, texts: Sequence[str]) -> list[str | None]:
        """A vector for each text; None for one that the endpoint refuses for good. Raises `Away`."""
        if not texts:
            return []
        try:
            return list(await self._ask(texts, self._timeout_s))
        except TimeoutError:
            self.breaker.failed()
            raise Away("deadline") from None
        except TextsRefused:
            if len(texts) > 1:
                half = len(texts) // 2
                return await self.texts(texts[:half]) + await self.texts(texts[half:])
        if texts[0] == PLAIN_TEXT or await self.texts([PLAIN_TEXT]) == [None]:
            self.breaker.failed()
            raise Away("the endpoint refuses every text")
        return [None]

    async def query(self, text: str) -> str | None:
        """The vector of a search's query, or None when it does not come in time."""
        key = hashlib.sha256(text.encode()).digest()
        vector = self._queries.pop(key, None)
        if vector is None:
            vector = await self._ask_query(text)
        if vector is not None:
            self._queries[key] = vector
            if len(self._queries) > REMEMBERED_QUERIES:
                del self._queries[next(iter(self._queries))]
        return vector

    async def _ask_query(self, text: str) -> str | None:
        if self.breaker.wait_s():
            self._metrics.searches_without_vectors.labels(self._name, "away").inc()
            return None
        try:
            [vector] = await self._ask([text], self._query_timeout_s)
        except Away:
            reason = "failed"
        except (TimeoutError, TextsRefused) as vain:
            # One proves nothing against the endpoint: the machine may be busy, the query odd.
            self._in_vain += 1
            if self._in_vain >= VAIN_IN_A_ROW:
                self.breaker.failed(VAIN_PAUSE_S)
            reason = "late" if isinstance(vain, TimeoutError) else "refused"
        else:
            return vector
        self._metrics.searches_without_vectors.labels(self._name, reason).inc()
        return None

    async def _ask(self, texts: Sequence[str], timeout_s: float) -> list[str]:
        """Raises `TimeoutError`, `TextsRefused` or, with the breaker open from then on, `Away`."""
        request = {"model": self._model, "input": list(texts), "encoding_format": "float"}
        try:
            async with asyncio.timeout(timeout_s):
                answer = await self._client.post(self._url, json=request, headers=self._headers)
        except TimeoutError:
            self._count("deadline")
            raise
        except (httpx.HTTPError, httpx.InvalidURL):
            raise self._away("unreachable", PROBE_INTERVAL_S) from None
        if answer.status_code in (400, 413, 422):
            self._count("refused")
            raise TextsRefused
        if answer.status_code != 200:
            raise self._away(f"http_{answer.status_code}", pause_s(answer.headers.get("retry-after")))
        vectors = self._read(answer.content, len(texts))
        if vectors is None:
            raise self._away("wrong_shape", PROBE_INTERVAL_S)
        self._count("answered")
        self._in_vain = 0
        self.breaker.passed()
        return vectors

    def _read(self, content: bytes, expected: int) -> list[str] | None:
        """None for what is no answer to so many texts, or not of this model's dimensions."""
        try:
            answer = msgspec.json.decode(content, type=_Answer)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            return None
        items = sorted(answer.data, key=lambda item: item.index)
        if [item.index for item in items] != list(range(expected)):
            return None
        for item in items:
            if len(item.embedding) != self._dimensions or max(map(abs, item.embedding)) > LARGEST:
                return None
        tokens = answer.usage.get("total_tokens") if isinstance(answer.usage, dict) else None
        if type(tokens) is int and 0 < tokens <= MAX_TOKENS:
            self._metrics.embedding_tokens.labels(self._name).inc(tokens)
        return [msgspec.json.encode(item.embedding).decode() for item in items]

    def _away(self, outcome: str, pause: float) -> Away:
        self._count(outcome)
        self.breaker.failed(pause)
        return Away(outcome)

    def _count(self, outcome: str) -> None:
        self._metrics.embedding_calls.labels(self._name, outcome).inc()


class Embeddings:
    """The models by every name that a store may call them, and by their space."""

    def __init__(self, embedders: Sequence[Embedder], client: httpx.AsyncClient) -> None:
        self.embedders = embedders
        self._client = client
        self._by_name = {name: embedder for embedder in embedders for name in embedder.config.names}
        self._by_space = {embedder.space: embedder for embedder in embedders}

    def names_for(self, principal: str) -> list[str]:
        """What somebody may call the embedding model of a store."""
        return sorted(name for name, each in self._by_name.items() if each.config.may_be_used_by(principal))

    def space(self, name: str | None) -> str:
        """What a store's model embeds into; '' for none, or for one that is not configured any more."""
        embedder = self._by_name.get(name or "")
        return "" if embedder is None else embedder.space

    def dimensions(self, name: str | None) -> int | None:
        """Of the vectors of a store's model; None for none, or for one that is not configured any more."""
        embedder = self._by_name.get(name or "")
        return None if embedder is None else embedder.config.dimensions

    async def query(self, text: str, space: str) -> str | None:
        """The vector of a query in a space; None when there is none, in time or at all."""
        embedder = self._by_space.get(space)
        return None if embedder is None else await embedder.query(text)

    async def close(self) -> None:
        await self._client.aclose()

    @classmethod
    def of(cls, settings: MemorySettings, metrics: Metrics) -> "Embeddings":
        client = httpx.AsyncClient(timeout=None, trust_env=False)  # noqa: S113 - each call has its deadline
        embedders = [
            Embedder(
                config,
                timeout_s=settings.embedding_timeout_s,
                query_timeout_s=settings.embedding_query_timeout_s,
                client=client,
                metrics=metrics,
            )
            for config in _configured(settings)
        ]
        return cls(embedders, client)


def _configured(settings: MemorySettings) -> list[NamedModel]:
    if settings.models_file is not None:
        return [each for each in read_models(settings.models_file) if each.makes_embeddings]
    if settings.embedding_model is None:
        return []
    return [
        NamedModel(
            name=settings.embedding_model,
            base_url=settings.openai_base_url,
            api_key=settings.openai_api_key,
            dimensions=settings.embedding_dimensions,
        )
    ]
