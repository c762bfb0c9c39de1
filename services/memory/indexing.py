"""What an entry is found by: its weighted terms, made off the event loop when the text is long."""

import asyncio

from services.memory.domain import Value
from services.memory.ranking import FieldWeights, weighted_terms
from services.memory.text import TEXT_ANALYSIS_VERSION

# About 4 ms of analysis; more would hold up everybody else.
INLINE_CHARS = 16_000
# What the context of a small embedding model holds, many times over.
EMBEDDED_CHARS = 8_000


class Indexing:
    """`language` is that of stores which name none."""

    version = TEXT_ANALYSIS_VERSION

    def __init__(self, language: str, weights: FieldWeights) -> None:
        self.language = language
        self.weights = weights

    async def terms(self, path: str, value: Value, language: str) -> tuple[dict[str, float], float]:
        """The frequency of each term, and the length."""
        if len(value.content or "") <= INLINE_CHARS:
            return self.terms_now(path, value, language)
        return await asyncio.to_thread(self.terms_now, path, value, language)

    def terms_now(self, path: str, value: Value, language: str) -> tuple[dict[str, float], float]:
        return weighted_terms(
            path=path,
            description=value.description or "",
            content=value.content or "",
            event_date=value.event_date,
            language=language,
            weights=self.weights,
        )


def embedded_text(path: str, content: str | None, description: str | None) -> str:
    """What the vector of an entry is made of: its words, or those of its path when it has no other."""
    words = "\n".join(text for text in (description, content) if text and text.strip())
    return (words or path.removesuffix(".md").replace("/", " "))[:EMBEDDED_CHARS]
