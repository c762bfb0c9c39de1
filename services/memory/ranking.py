"""BM25 as the share of the query that an entry answers: 0 to 1, comparable across the queries of an actor.

The caller brings every figure, all of one actor, so nothing of another can move a score.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from math import inf, log
from operator import itemgetter
from typing import Generic, NamedTuple, TypeVar

from services.memory.text import analyse, date_words

K1 = 1.2
B = 0.75
VECTOR_SHARE = 0.25

Entry = TypeVar("Entry")
Posting = tuple[Entry, str, float, float]
"""A row of the index: entry, term, weighted frequency of the term in the entry, length of the entry."""


@dataclass(frozen=True)
class FieldWeights:
    path: float = 1.0
    description: float = 1.0
    content: float = 1.0


@dataclass(frozen=True)
class Statistics:
    """The actor's current entries, whether or not a filter lets them be found."""

    entry_count: int
    average_length: float
    document_frequency: Mapping[str, int]


class Scored(NamedTuple, Generic[Entry]):
    entry: Entry
    score: float


def weighted_terms(
    *, path: str, description: str, content: str, event_date: date | None, language: str, weights: FieldWeights
) -> tuple[dict[str, float], float]:
    """The weighted frequency of each term of an entry, and the entry's length."""
    frequencies: defaultdict[str, float] = defaultdict(float)
    fields = [
        (path.removesuffix(".md").replace("/", " "), weights.path),
        (description, weights.description),
        (content, weights.content),
    ]
    for text, weight in fields:
        if weight:
            for term in analyse(text, language):
                frequencies[term] += weight
    length = sum(frequencies.values())
    if event_date:
        # Beside the length: having a date must not make an event rank below what has none.
        for term in analyse(date_words(event_date, language), language):
            frequencies[term] += weights.content
    return dict(frequencies), length


def term_weights(terms: Sequence[str], statistics: Statistics) -> dict[str, float]:
    """The part of the query that each term is; together 1."""
    idf = {term: _idf(term, statistics) for term in terms}
    whole = sum(idf.values())
    return {term: each / whole for term, each in idf.items()}


def score(terms: Sequence[str], postings: Iterable[Posting[Entry]], statistics: Statistics) -> list[Scored[Entry]]:
    """Every entry with a score above 0, best first; equals are equal floats, in the order of the postings."""
    weights = term_weights(terms, statistics)
    average = statistics.average_length or inf
    shares: defaultdict[Entry, float] = defaultdict(float)
    for entry, term, frequency, length in postings:
        if term in weights:
            # A greeting is not a better answer for being short: length counts only above the average.
            damping = K1 * (1 - B + B * length / average) if length > average else K1
            shares[entry] += weights[term] * frequency / (frequency + damping)
    # Rounded, because the order in which a query's terms are added up must not decide between equals.
    scored = [Scored(entry, rounded) for entry, share in shares.items() if (rounded := round(share, 9)) > 0]
    scored.sort(key=itemgetter(1), reverse=True)
    return scored


def combined(lexical: float, cosine: float | None) -> float:
    """The score to show: an entry without a vector counts its words alone."""
    if cosine is None:
        return lexical
    return (1 - VECTOR_SHARE) * lexical + VECTOR_SHARE * min(1.0, max(0.0, cosine))


def _idf(term: str, statistics: Statistics) -> float:
    """Greatest for a term unknown to the actor: what nobody wrote down weighs against every entry."""
    known_in = statistics.document_frequency.get(term, 0)
    unknown_in = max(0, statistics.entry_count - known_in)
    return log(1 + (unknown_in + 0.5) / (known_in + 0.5))
