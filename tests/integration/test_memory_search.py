"""Search over HTTP: ranking, filters, and what happens to hostile words."""

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from libs.contracts.ids import uuid7
from services.memory.domain import Value
from services.memory.indexing import Indexing
from services.memory.ranking import FieldWeights, Statistics, score
from services.memory.text import query_terms
from tests.support.memory import Distiller, Memory, day, said

WORDS = ["cat", "dog", "tea", "rome", "work", "blue", "the", "running", "2024-03-09", "a@b.c"]


async def test_the_words_of_a_person_find_what_was_distilled(memory: Memory) -> None:
    distiller = await Distiller.of(memory)
    await distiller.tell(
        said("/contact/channel.md", "Prefers e-mail over phone", description="contact preferences: e-mail, phone"),
        said("/contact/zone.md", "Is in the Pacific time zone", description="contact preferences: time zone"),
        said("/pets/cat.md", "Has a cat"),
    )

    found = await memory.paths("ana", "contact preferences")

    assert set(found) == {"/contact/channel.md", "/contact/zone.md"}


async def test_an_event_is_found_by_its_date(memory: Memory) -> None:
    distiller = await Distiller.of(memory)
    await distiller.tell(
        said("/events/test.md", "Passed the driving test", kind="event", event_date=day("2026-03-09")),
        said("/music.md", "Plays the cello"),
    )

    assert await memory.paths("ana", "what happened on 9 March") == ["/events/test.md"]
    assert await memory.paths("ana", "2026-03-09") == ["/events/test.md"]


async def test_nothing_relevant_is_an_empty_list_and_scores_compare(memory: Memory) -> None:
    facts = ["takes the blue pill at eight", "takes the white pill at noon", "has a cat", "has two sisters"]
    for number, fact in enumerate([*facts, *(f"visited town {n} by train" for n in range(8))]):
        await memory.add("ana", f"/facts/{number}.md", fact)

    assert await memory.search("ana", "qzxv wvkj") == []
    assert await memory.search("ana", "current exchange rate of the zloty") == []
    hits = await memory.search("ana", "when does she take the blue pill")
    assert hits[0]["managed_memory_entry"]["path"] == "/facts/0.md"
    assert all(0 < hit["score"] <= 1 for hit in hits)
    assert len(await memory.search("ana", "when does she take the blue pill", min_score=0.5)) < len(hits)


async def test_a_blank_query_is_refused_and_one_without_words_finds_nothing(memory: Memory) -> None:
    await memory.add("ana", "/a.md", "words")

    for query in ("", "   ", "\n\t"):
        body = {"actor_id": "ana", "query": query}
        assert await memory.code("POST", memory.url("/entries:search"), json=body) == (400, "INVALID_PARAMETER_VALUE")
    assert await memory.search("ana", "!!! ???") == []
    assert await memory.search("nobody", "words") == []


@pytest.mark.parametrize(
    "query",
    [
        "cat & dog | !tea <-> (rome)",
        "'; drop table entries; --",
        '"unbalanced \\ quotes %_*',
        "nul \x00 inside cat",
        "قطة שלום cat",
        "👩‍👩‍👧 cat 🏳️‍🌈",
        "\ud83d cat",
        "cat " * 25_000,
    ],
)
async def test_every_word_of_a_query_is_data(memory: Memory, query: str) -> None:
    await memory.add("ana", "/cat.md", "a cat")
    body = b'{"actor_id": "ana", "query": ' + _json(query) + b"}"

    answer = await memory.client.post(
        memory.url("/entries:search"), content=body, headers={"Content-Type": "application/json"}
    )

    assert answer.status_code == 200, answer.text
    if "drop" not in query and "unbalanced" not in query:
        assert [hit["managed_memory_entry"]["path"] for hit in answer.json()["results"]] == ["/cat.md"]


async def test_filters_hold_before_the_limit(memory: Memory) -> None:
    for number in range(30):
        await memory.add("ana", f"/noise/{number}.md", "cat cat cat")
    await memory.add("ana", "/quiet/a.md", "one cat among many other words that make it longer than the rest")
    await memory.add("ana", "/noise/own.md", "cat", session_id="s1")

    assert await memory.paths("ana", "cat", path_prefix="/quiet/", page_size=5) == ["/quiet/a.md"]
    assert await memory.paths("ana", "cat", session_id="s1", page_size=5) == ["/noise/own.md"]
    assert len(await memory.paths("ana", "cat")) == 10
    assert len(await memory.paths("ana", "cat", limit=31)) == 31


@pytest.mark.parametrize(
    "body",
    [
        {"limit": 5, "page_size": 6},
        {"page_size": 101},
        {"page_size": "5"},
        {"limit": -1},
        {"path_prefix": "a"},
        {"path_prefix": "/a//"},
        {"min_score": 2},
        {"query": 5},
        {"actor_id": " "},
        {"query": "x" * 100_001},
    ],
)
async def test_a_search_outside_the_rules_is_refused(refusing: Memory, body: dict[str, Any]) -> None:
    asked = {"actor_id": "ana", "query": "cat", **body}

    assert await refusing.code("POST", refusing.url("/entries:search"), json=asked) == (400, "INVALID_PARAMETER_VALUE")


async def test_equal_answers_come_newest_first(memory: Memory) -> None:
    for number in range(5):
        await memory.add("ana", f"/x{number}.md", "same words")

    found = await memory.paths("ana", "same words")

    assert found == [f"/x{number}.md" for number in reversed(range(5))]


async def test_a_store_in_another_language_is_searched_in_it(memory: Memory) -> None:
    await memory.make_store("souvenirs", language="french")
    await memory.add("ana", "/a.md", "Elle préfère les chevaux noirs", store="souvenirs")

    assert await memory.paths("ana", "cheval noir préférée", store="souvenirs") == ["/a.md"]
    assert await memory.paths("ana", "noire", store="souvenirs") == ["/a.md"]
    bad = {"display_name": "other", "language": "klingon"}
    assert await memory.code("POST", "/api/2.0/agents/memory-stores", json=bad) == (400, "INVALID_PARAMETER_VALUE")


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    texts=st.lists(st.lists(st.sampled_from(WORDS), max_size=8).map(" ".join), min_size=1, max_size=8),
    query=st.lists(st.sampled_from([*WORDS, "unknown"]), min_size=1, max_size=5).map(" ".join),
)
async def test_the_database_scores_as_ranking_does(memory: Memory, texts: list[str], query: str) -> None:
    indexing, actor = Indexing("english", FieldWeights()), uuid7()
    postings = []
    for number, text in enumerate(texts):
        path = f"/{number}.md"
        await memory.add(str(actor), path, text)
        terms, length = indexing.terms_now(path, Value(text, None, "state", "assistant"), "english")
        postings += [(path, term, frequency, length) for term, frequency in terms.items()]
    wanted = query_terms(query, "english")
    statistics = Statistics(
        entry_count=len(texts),
        average_length=sum({path: length for path, _, _, length in postings}.values()) / len(texts),
        document_frequency={term: sum(term == other for _, other, _, _ in postings) for term in wanted},
    )

    hits = await memory.search(str(actor), query, page_size=100)

    expected = {hit.entry: hit.score for hit in score(wanted, postings, statistics)}
    got = {hit["managed_memory_entry"]["path"]: hit["score"] for hit in hits}
    assert got.keys() == expected.keys()
    assert all(abs(got[path] - expected[path]) < 2e-9 for path in got)


def _json(text: str) -> bytes:

    return json.dumps(text).encode()


async def test_what_is_refused_for_half_a_surrogate_pair_is_400(memory: Memory) -> None:
    for field in ("read_mask", "view", "path_prefix", "actor_id"):
        body = b'{"actor_id": "ana", "query": "cat", "%s": "\\ud800"}' % field.encode()
        answer = await memory.client.post(memory.url("/entries:search"), content=body)
        assert (answer.status_code, answer.json()["error_code"]) == (400, "INVALID_PARAMETER_VALUE"), field
