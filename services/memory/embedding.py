"""Embeds entries in the background, apart from writes and searches: a model at a time for itself."""

import asyncio
from collections.abc import Sequence
from uuid import UUID

from services.memory.embeddings import Away, Embedder
from services.memory.metrics import Metrics
from services.memory.store.vectors import Claim, Text, Vectors

# A claim outlives the call that it is for; should its owner die, another takes over after this.
LEASE_PER_TIMEOUT = 2


class Embedding:
    """Of one model. `wake` says that a store was written to; every entry is found without it too."""

    def __init__(
        self, vectors: Vectors, embedder: Embedder, metrics: Metrics, *, batch: int, timeout_s: float, interval_s: float
    ) -> None:
        self.awake = asyncio.Event()
        self._vectors = vectors
        self._embedder = embedder
        self._metrics = metrics
        self._batch = batch
        self._lease_s = timeout_s * LEASE_PER_TIMEOUT
        self._interval_s = interval_s
        self._written: set[UUID] = set()
        self._look_at = 0.0

    def wake(self, store_uid: UUID) -> None:
        self._written.add(store_uid)
        self.awake.set()

    async def work(self) -> None:
        """Embeds until nothing is due; what was just written comes before what waits for another model."""
        now = asyncio.get_running_loop().time()
        has_more = now >= self._look_at
        while self._written or has_more:
            if self._written:
                written, self._written = list(self._written), set()
                await self._step(written)
            if has_more:
                has_more = await self._step(None)
        if now >= self._look_at:
            self._look_at = now + self._interval_s

    async def count(self) -> None:
        pending = await self._vectors.pending(self._embedder.space, self._embedder.config.names)
        self._metrics.pending_vectors.labels(self._embedder.config.name).set(pending)

    async def _step(self, stores: Sequence[UUID] | None) -> bool:
        """One call of the endpoint; False when there was nothing to do or no way to do it."""
        if self._embedder.breaker.is_shut:
            return False
        work = await self._claim(stores)
        try:
            vectors = iter(await self._embedder.texts([text.text for _, texts, _ in work for text in texts]))
        except Away:
            for claim, _, _ in work:
                await self._vectors.release(claim)
            return False
        for claim, texts, are_the_last in work:
            made = [(text, next(vectors)) for text in texts]
            await self._vectors.save(claim, self._embedder.space, made, are_the_last=are_the_last)
        return bool(work)

    async def _claim(self, stores: Sequence[UUID] | None) -> list[tuple[Claim, list[Text], bool]]:
        """What fits into one call: actors with their texts, and whether these are the actor's last."""
        work: list[tuple[Claim, list[Text], bool]] = []
        room = self._batch
        for due in await self._vectors.due(self._embedder.space, self._embedder.config.names, stores):
            claim = await self._vectors.claim(due, self._lease_s)
            if claim is not None:
                texts = await self._vectors.missing(claim, self._embedder.space, room)
                work.append((claim, texts, len(texts) < room))
                room -= len(texts)
            if room == 0:
                break
        return work
