from collections import Counter
from datetime import date
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.memory.ranking import (
    FieldWeights,
    Posting,
    Scored,
    Statistics,
    combined,
    score,
    term_weights,
    weighted_terms,
)
from services.memory.text import query_terms

FACTS = [
    "Takes her heart pills at 8 in the morning",
    "Takes a vitamin with breakfast",
    "Puts in eye drops before bed at 22:00",
    "Has a cat called Miso",
    "Has a dog called Bruno, who is nine years old",
    "Bruno goes to the vet in Lipowa street every spring",
    "Her daughter Ewa lives in Gdansk",
    "Her son Marek is a carpenter",
    "Ewa has two children, Jan and Ola",
    "Her brother calls on Sunday evenings",
    "The pharmacy keeps her prescription until June",
    "Must not eat grapefruit with the heart medicine",
]


class Memory:
    """An actor's entries by number, searched as the store does it."""

    def __init__(self, *contents: str, weights: FieldWeights | None = None) -> None:
        self.weights = weights or FieldWeights()
        self.postings: list[Posting[int]] = []
        self.lengths: list[float] = []
        for content in contents:
            self.put(content=content)

    def put(self, *, content: str, path: str = "/", description: str = "", event_date: date | None = None) -> None:
        frequencies, length = weighted_terms(
            path=path,
            description=description,
            content=content,
            event_date=event_date,
            language="english",
            weights=self.weights,
        )
        entry = len(self.lengths)
        self.lengths.append(length)
        self.postings += [(entry, term, frequency, length) for term, frequency in frequencies.items()]

    def search(self, query: str) -> list[Scored[int]]:
        known_in = Counter(term for _, term, _, _ in self.postings)
        average_length = sum(self.lengths) / len(self.lengths) if self.lengths else 0.0
        statistics = Statistics(len(self.lengths), average_length, known_in)
        terms = query_terms(query, "english")
        return score(terms, [posting for posting in self.postings if posting[1] in terms], statistics)


@pytest.mark.parametrize(
    ("question", "fact"),
    [
        ("when does she take her pills", 0),
        ("what is the name of the cat", 3),
        ("where did Ewa's daughter move", 6),
        ("what does her son do", 7),
        ("grapefruit", 11),
        ("eye drops at 22:00", 2),
    ],
)
def test_the_fact_that_answers_comes_first(question: str, fact: int) -> None:
    assert Memory(*FACTS).search(question)[0].entry == fact


@pytest.mark.parametrize("question", ["qzxvwkjh", "current exchange rate of the zloty", "???", "🐶", "' or 1=1 --\x00"])
def test_nothing_relevant_is_an_empty_list(question: str) -> None:
    assert Memory(*FACTS).search(question) == []


def test_a_chance_match_scores_clearly_below_an_answer() -> None:
    memory = Memory(*FACTS)

    answer = memory.search("when does she take her pills")[0].score
    chance = memory.search("current exchange rate on Sunday for the zloty")[0].score

    assert chance < answer / 2


def test_an_event_is_found_by_its_date() -> None:
    memory = Memory(*FACTS)
    memory.put(content="Passed the driving test", event_date=date(2026, 3, 9))
    memory.put(content="Went to the dentist", event_date=date(2026, 4, 9))

    assert memory.search("what happened on 9 March")[0].entry == len(FACTS)


def test_a_date_does_not_lengthen_an_entry() -> None:
    memory = Memory()
    memory.put(content="passed the driving test")
    memory.put(content="passed the driving test", event_date=date(2026, 3, 9))

    first, second = memory.search("driving test")

    assert first.score == second.score


@pytest.mark.parametrize(
    "question", ["contact preferences", "Preference for contacts?", "contact-preferences", "time zone"]
)
def test_path_and_description_are_searched(question: str) -> None:
    memory = Memory(*FACTS)
    memory.put(
        path="/contact/preferences.md",
        description="contact preferences: e-mail, phone, time zone",
        content="Prefers e-mail over phone, is in Pacific time",
    )

    assert memory.search(question)[0].entry == len(FACTS)


def test_the_ending_of_a_path_is_no_word() -> None:
    memory = Memory()
    memory.put(path="/notes/md.md", content="x")
    memory.put(path="/notes/other.md", content="x")

    assert [hit.entry for hit in memory.search("md")] == [0]


def test_a_field_counts_by_its_weight() -> None:
    frequencies, length = weighted_terms(
        path="/pets/cat.md",
        description="pets",
        content="cat Miso",
        event_date=None,
        language="english",
        weights=FieldWeights(path=0.5, description=2, content=1),
    )

    assert frequencies == {"pet": 2.5, "cat": 1.5, "miso": 1}
    assert length == 5


def test_a_field_of_weight_zero_is_not_searched() -> None:
    memory = Memory(weights=FieldWeights(path=0))
    memory.put(path="/pets.md", content="Miso")

    assert memory.search("pets") == []


def test_chinese_is_found_by_its_characters() -> None:
    memory = Memory("我的猫叫米索", "我的女儿住在北京", "我每天早上吃药")

    assert memory.search("女儿住在哪里")[0].entry == 1
    assert memory.search("猫")[0].entry == 0
    assert memory.search("汇率") == []


def test_a_name_that_looks_like_a_pattern_is_found_as_it_is() -> None:
    memory = Memory("invoice ORD-4471-B is paid", "invoice ORD-4471-C is open", "write to ana.b@example.com")

    assert memory.search("ORD-4471-B")[0].entry == 0
    assert memory.search("ana.b@example.com")[0].entry == 2


def test_being_short_is_no_merit_and_being_long_costs() -> None:
    average = "Miso " + "and so on " * 3
    memory = Memory("Miso", average, "Miso " + "and much more besides " * 30)

    short, middle, long = sorted(memory.search("Miso"), key=lambda hit: hit.entry)

    assert short.score == middle.score > long.score


def test_equal_entries_have_equal_scores_whatever_the_order_of_the_rows() -> None:
    terms = ["a", "b", "c"]
    rows: list[Posting[int]] = [(0, "a", 1, 3), (0, "b", 3, 3), (0, "c", 2, 3)]
    twin: list[Posting[int]] = [(1, term, frequency, length) for _, term, frequency, length in reversed(rows)]

    first, second = score(terms, rows + twin, Statistics(9, 3, {"a": 2, "b": 3, "c": 5}))

    assert first.score == second.score


def test_a_word_nobody_wrote_lowers_every_score() -> None:
    memory = Memory(*FACTS)

    assert memory.search("grapefruit submarine")[0].score < memory.search("grapefruit")[0].score / 2


def test_nothing_is_found_in_an_empty_memory() -> None:
    assert Memory().search("pills") == []


@pytest.mark.parametrize(
    ("cosine", "expected"), [(None, 0.4), (0.0, 0.3), (-1.0, 0.3), (0.8, 0.5), (1.0, 0.55), (1.0001, 0.55)]
)
def test_a_vector_is_a_second_signal(cosine: float | None, expected: float) -> None:
    assert combined(0.4, cosine) == pytest.approx(expected)


COUNTS = st.integers(0, 50)
FREQUENCIES = st.floats(0, 1000)
TERMS = ["a", "b", "c", "d"]
WORDS = ["pill", "dog", "Ewa", "我有猫", "ORD-4471-B", "went", "the", "9th", "é👩", "3.14"]
STATISTICS = st.builds(
    Statistics,
    entry_count=COUNTS,
    average_length=st.just(0.0) | st.floats(1, 1000),
    document_frequency=st.dictionaries(st.sampled_from(TERMS), COUNTS),
)


@given(
    frequencies=st.dictionaries(st.tuples(st.integers(0, 5), st.sampled_from([*TERMS, "e"])), FREQUENCIES),
    length=st.floats(0, 10_000),
    statistics=STATISTICS,
)
def test_scores_are_shares_and_the_best_is_first(
    frequencies: dict[tuple[int, str], float], length: float, statistics: Statistics
) -> None:
    hits = score(TERMS, [(entry, term, tf, length) for (entry, term), tf in frequencies.items()], statistics)

    scores = [hit.score for hit in hits]
    assert scores == sorted(scores, reverse=True)
    assert all(0 < each <= 1 for each in scores)


@given(statistics=STATISTICS)
def test_the_weights_of_a_query_make_a_whole_and_an_unknown_term_weighs_most(statistics: Statistics) -> None:
    weights = term_weights([*TERMS, "unknown"], statistics)

    assert sum(weights.values()) == pytest.approx(1)
    assert max(weights.values()) == weights["unknown"]


@given(statistics=STATISTICS, length=st.floats(0, 1000))
def test_an_entry_that_matches_more_terms_scores_higher(statistics: Statistics, length: float) -> None:
    postings: list[Posting[str]] = []
    for size in range(1, len(TERMS) + 1):
        for matched in combinations(TERMS, size):
            postings += [("".join(matched), term, 1.0, length) for term in matched]

    scores = dict(score(TERMS, postings, statistics))

    for name, share in scores.items():
        for term in set(TERMS) - set(name):
            assert scores["".join(sorted(name + term))] > share


@given(
    words=st.lists(
        st.sampled_from(["pill", "dog", "Ewa", "我有猫", "ORD-4471-B", "went", "the", "9th", "é👩", "3.14"]), min_size=1
    )
)
def test_any_word_of_an_entry_finds_it(words: list[str]) -> None:
    memory = Memory(*FACTS, " ".join(words))

    for word in words:
        if query_terms(word, "english"):
            assert len(FACTS) in [hit.entry for hit in memory.search(word)]
