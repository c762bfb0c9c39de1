"""A query becomes terms in the language that the actor's entries were analysed in, and terms become ranked entries."""

import asyncio
from collections import Counter
from uuid import UUID

from libs.chassis.auth import Caller
from services.memory.indexing import INLINE_CHARS, Indexing
from services.memory.ranking import Posting, Statistics, score
from services.memory.store.entries import Filter
from services.memory.store.index import Asked, Index
from services.memory.store.records import Found
from services.memory.store.versions import Moment, Versions, newest, scored
from services.memory.text import query_terms

REMEMBERED = 100_000
RELATED_CHARS = 2000


class Search:
    """Remembers the language of each store; a wrong guess costs one more statement, never a wrong answer."""

    def __init__(self, index: Index, versions: Versions, indexing: Indexing) -> None:
        self._index = index
        self._versions = versions
        self._indexing = indexing
        self._languages: dict[UUID, str] = {}

    async def search(self, caller: Caller, store_uid: UUID, asked: Asked) -> list[Found]:
        """Best first; nothing that answers no part of the query."""
        guess = self._languages.get(store_uid, self._indexing.language)
        hits = await self._index.search(caller, store_uid, asked, await terms_of(asked.query, guess))
        actual = hits.language or self._indexing.language
        if actual != guess:
            self._remember(store_uid, actual)
            hits = await self._index.search(caller, store_uid, asked, await terms_of(asked.query, actual))
        return hits.found

    async def search_then(self, caller: Caller, store_uid: UUID, asked: Asked, moment: Moment) -> list[Found]:
        """Ranks what held at another time, by the same rules; nothing is indexed for it."""
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

    async def related(self, store_uid: UUID, actor_id: str, texts: list[str], limit: int) -> list[Found]:
        """The best entries for each text in turn, without doubles."""
        language = self._languages.get(store_uid, self._indexing.language)
        found: dict[UUID, Found] = {}
        ranks: list[list[Found]] = []
        for text in texts:
            hits = await self._index.related(store_uid, actor_id, query_terms(text[:RELATED_CHARS], language), limit)
            if hits.language is not None and hits.language != language:
                language = hits.language
                self._remember(store_uid, language)
                terms = query_terms(text[:RELATED_CHARS], language)
                hits = await self._index.related(store_uid, actor_id, terms, limit)
            ranks.append(hits.found)
        for rank in range(limit):
            for hits_of_text in ranks:
                if rank < len(hits_of_text) and len(found) < limit:
                    found.setdefault(hits_of_text[rank].entry.entry_uid, hits_of_text[rank])
        return list(found.values())

    def _remember(self, store_uid: UUID, language: str) -> None:
        if len(self._languages) >= REMEMBERED:
            self._languages.clear()
        self._languages[store_uid] = language


async def terms_of(query: str, language: str) -> list[str]:
    if len(query) <= INLINE_CHARS:
        return query_terms(query, language)
    return await asyncio.to_thread(query_terms, query, language)
