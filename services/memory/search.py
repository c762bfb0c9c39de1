"""A query becomes terms in the language that the actor's entries were analysed in, and terms become ranked entries."""

import asyncio
from uuid import UUID

from libs.chassis.auth import Caller
from services.memory.indexing import INLINE_CHARS, Indexing
from services.memory.store.entries import Filter
from services.memory.store.index import Hits, Index
from services.memory.store.records import Found
from services.memory.text import query_terms

REMEMBERED = 100_000
RELATED_CHARS = 2000


class Search:
    """Remembers the language of each store; a wrong guess costs one more statement, never a wrong answer."""

    def __init__(self, index: Index, indexing: Indexing) -> None:
        self._index = index
        self._indexing = indexing
        self._languages: dict[UUID, str] = {}

    async def search(
        self,
        caller: Caller,
        store_uid: UUID,
        actor_id: str,
        query: str,
        wanted: Filter,
        *,
        min_score: float,
        limit: int,
    ) -> list[Found]:
        """Best first; nothing that answers no part of the query."""
        guess = self._languages.get(store_uid, self._indexing.language)
        hits = await self._ask(caller, store_uid, actor_id, query, wanted, guess, min_score, limit)
        actual = hits.language or self._indexing.language
        if actual != guess:
            self._remember(store_uid, actual)
            hits = await self._ask(caller, store_uid, actor_id, query, wanted, actual, min_score, limit)
        return hits.found

    async def _ask(
        self,
        caller: Caller,
        store_uid: UUID,
        actor_id: str,
        query: str,
        wanted: Filter,
        language: str,
        min_score: float,
        limit: int,
    ) -> Hits:
        terms = await terms_of(query, language)
        return await self._index.search(caller, store_uid, actor_id, terms, wanted, min_score=min_score, limit=limit)

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
