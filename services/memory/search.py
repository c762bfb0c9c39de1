"""A query becomes terms and a vector, as the actor's entries were analysed and embedded, and these ranked entries."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from libs.chassis.auth import Caller
from services.memory.domain import Entry
from services.memory.embeddings import Embeddings
from services.memory.indexing import INLINE_CHARS, Indexing
from services.memory.ranking import Posting, Statistics, score
from services.memory.store.filters import Filter
from services.memory.store.index import Asked, Hits, Index, Near
from services.memory.store.records import Found
from services.memory.store.versions import Moment, Versions, newest, scored
from services.memory.text import query_terms

REMEMBERED = 100_000
RELATED_CHARS = 2000


@dataclass(frozen=True, slots=True)
class Sight:
    """What an actor's entries are found by: the language of their terms and the space of their vectors."""

    language: str
    space: str = ""


class Search:
    """Remembers the sight of each store; a wrong guess costs one more statement, never a wrong answer."""

    def __init__(self, index: Index, versions: Versions, indexing: Indexing, embeddings: Embeddings) -> None:
        self._index = index
        self._versions = versions
        self._indexing = indexing
        self._embeddings = embeddings
        self._sights: dict[UUID, Sight] = {}

    async def search(self, caller: Caller, store_uid: UUID, asked: Asked) -> list[Found]:
        """Best first; nothing that answers no part of the query."""
        guess = self._guess(store_uid)
        hits = await self._look(caller, store_uid, asked, guess)
        if hits.language is None:
            return hits.found
        actual = Sight(hits.language, hits.space)
        if actual != guess:
            self._remember(store_uid, actual)
            hits = await self._look(caller, store_uid, asked, actual)
        return hits.found

    async def _look(self, caller: Caller, store_uid: UUID, asked: Asked, sight: Sight) -> Hits:
        vector = await self._embeddings.query(asked.query, sight.space)
        near = None if vector is None else Near(vector, sight.space)
        [terms] = await terms_of([asked.query], sight.language)
        return await self._index.search(caller, store_uid, asked, terms, near)

    async def search_then(self, caller: Caller, store_uid: UUID, asked: Asked, moment: Moment) -> list[Found]:
        """Ranks what held at another time by its words; nothing is indexed or embedded for it."""
        language = await self._versions.check_searchable(caller, store_uid, asked.actor_id)
        held = await self._versions.at(caller, store_uid, asked.actor_id, moment, Filter(), None, None)
        ranked = await asyncio.to_thread(
            self._rank, held, query_terms(asked.query, language or self._indexing.language), language
        )
        fitting = [hit for hit in ranked if asked.wanted.fits(hit.entry) and (hit.score or 0.0) >= asked.min_score]
        return fitting[: asked.limit]

    def _rank(self, held: list[Found], terms: list[str], language: str | None) -> list[Found]:
        wanted = set(terms)
        postings: list[Posting[int]] = []
        known_in: Counter[str] = Counter()
        total = 0.0
        held = newest(held)
        for number, found in enumerate(held):
            frequencies, length = self._indexing.terms_now(
                found.entry.path, found.entry.value, language or self._indexing.language
            )
            total += length
            for term in wanted & frequencies.keys():
                known_in[term] += 1
                postings.append((number, term, frequencies[term], length))
        statistics = Statistics(len(held), total / max(1, len(held)), known_in)
        return [scored(held[hit.entry], hit.score) for hit in score(terms, postings, statistics)]

    async def related(self, store_uid: UUID, actor_id: str, texts: Sequence[str], limit: int) -> list[Entry]:
        """The best entry for each text, then the second best, without doubles: `limit`, and never less than texts."""
        guess = self._guess(store_uid).language
        language, found = await self._nearest(store_uid, actor_id, texts, limit, guess)
        if language is not None and language != guess:
            self._remember(store_uid, Sight(language, self._guess(store_uid).space))
            _, found = await self._nearest(store_uid, actor_id, texts, limit, language)
        return found

    async def _nearest(
        self, store_uid: UUID, actor_id: str, texts: Sequence[str], limit: int, language: str
    ) -> tuple[str | None, list[Entry]]:
        terms = await terms_of([text[:RELATED_CHARS] for text in texts], language)
        return await self._index.related(store_uid, actor_id, terms, max(limit, len(texts)))

    def _guess(self, store_uid: UUID) -> Sight:
        return self._sights.get(store_uid) or Sight(self._indexing.language)

    def _remember(self, store_uid: UUID, sight: Sight) -> None:
        if len(self._sights) >= REMEMBERED:
            self._sights.clear()
        self._sights[store_uid] = sight


async def terms_of(texts: Sequence[str], language: str) -> list[list[str]]:
    """What each text asks for."""
    if sum(map(len, texts)) <= INLINE_CHARS:
        return _terms_of(texts, language)
    return await asyncio.to_thread(_terms_of, texts, language)


def _terms_of(texts: Sequence[str], language: str) -> list[list[str]]:
    return [query_terms(text, language) for text in texts]
