"""One list of behaviours for LangGraph's own in-memory store and for ours, so that neither validates itself."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from langgraph.store.base import BaseStore, GetOp, InvalidNamespaceError, PutOp, SearchOp
from langgraph.store.memory import InMemoryStore

from memstream.client import AgentKitClient
from memstream.langgraph import MemstreamStore, store
from tests.support.standalone import StandaloneProcess

LIKES = ("ana", "likes")


@pytest.fixture
def ours(standalone: StandaloneProcess, client: AgentKitClient, name: str) -> Iterator[MemstreamStore]:
    client.memory_stores.create(name)
    with MemstreamStore(name, standalone.url, standalone.token) as made:
        yield made


@pytest.fixture(params=["theirs", "ours"])
def both(request: pytest.FixtureRequest) -> BaseStore:
    made: BaseStore = InMemoryStore() if request.param == "theirs" else request.getfixturevalue("ours")
    return made


def keys(items: Any) -> list[str]:
    return sorted(item.key for item in items)


def test_what_is_put_is_got_until_it_is_deleted(both: BaseStore) -> None:
    both.put(LIKES, "tea", {"kind": "green", "cups": 2, "tags": ["a", None], "deep": {"é": True}})
    item = both.get(LIKES, "tea")

    assert item is not None
    assert (item.namespace, item.key) == (LIKES, "tea")
    assert item.value == {"kind": "green", "cups": 2, "tags": ["a", None], "deep": {"é": True}}
    assert item.created_at.tzinfo is not None
    assert both.get(LIKES, "coffee") is None
    assert both.get(("bo", "likes"), "tea") is None

    both.put(LIKES, "tea", {"kind": "black"})
    again = both.get(LIKES, "tea")
    assert again is not None
    assert again.value == {"kind": "black"}
    assert again.created_at == item.created_at or isinstance(both, InMemoryStore)
    assert again.updated_at >= item.updated_at

    both.delete(LIKES, "tea")
    both.delete(LIKES, "never there")
    assert both.get(LIKES, "tea") is None
    assert both.search(LIKES) == []


@pytest.mark.parametrize("key", ["a/b", ".", "..", "100%", "a b", "ключ", "%2F", "x.md", "?#"], ids=range(9))
def test_any_key_will_do(both: BaseStore, key: str) -> None:
    both.put(("ana", "odd/label", "ü"), key, {"v": 1})

    item = both.get(("ana", "odd/label", "ü"), key)
    assert item is not None
    assert (item.key, item.namespace) == (key, ("ana", "odd/label", "ü"))
    assert [each.key for each in both.search(("ana",))] == [key]


def test_a_search_stays_below_its_prefix_and_is_filtered_and_paged(both: BaseStore) -> None:
    for number in range(5):
        both.put(LIKES, f"k{number}", {"number": number, "even": number % 2 == 0, "of": {"kind": "tea"}})
    both.put(("ana", "likes", "deep"), "below", {"number": 10})
    both.put(("ana", "likes-more"), "beside", {"number": 11})
    both.put(("bo", "likes"), "other", {"number": 12})

    assert keys(both.search(LIKES)) == ["below", "k0", "k1", "k2", "k3", "k4"]
    assert keys(both.search(("ana",))) == ["below", "beside", "k0", "k1", "k2", "k3", "k4"]
    assert keys(both.search(LIKES, filter={"even": True})) == ["k0", "k2", "k4"]
    assert keys(both.search(LIKES, filter={"number": {"$gte": 1, "$lt": 3}})) == ["k1", "k2"]
    assert keys(both.search(LIKES, filter={"number": {"$ne": 1}, "even": False})) == ["k3"]
    assert keys(both.search(LIKES, filter={"of": {"kind": "tea"}, "number": {"$gt": 3}})) == ["k4"]
    assert keys(both.search(LIKES, filter={"absent": 1})) == []
    pages = [both.search(LIKES, limit=4, offset=offset) for offset in (0, 4, 8)]
    assert [len(page) for page in pages] == [4, 2, 0]
    assert keys(item for page in pages for item in page) == ["below", "k0", "k1", "k2", "k3", "k4"]
    with pytest.raises(ValueError, match=r"\$in"):
        both.search(LIKES, filter={"number": {"$in": [1]}})


def test_namespaces_are_listed_below_an_actor(both: BaseStore) -> None:
    for namespace in (("ana",), ("ana", "a"), ("ana", "a", "x"), ("ana", "b", "x"), ("ana", "b", "y"), ("bo", "a")):
        both.put(namespace, "k", {"v": 1})

    below = both.list_namespaces(prefix=("ana",))
    assert below == [("ana",), ("ana", "a"), ("ana", "a", "x"), ("ana", "b", "x"), ("ana", "b", "y")]
    assert both.list_namespaces(prefix=("ana", "b")) == [("ana", "b", "x"), ("ana", "b", "y")]
    assert both.list_namespaces(prefix=("ana", "*", "x")) == [("ana", "a", "x"), ("ana", "b", "x")]
    assert both.list_namespaces(prefix=("ana",), suffix=("x",)) == [("ana", "a", "x"), ("ana", "b", "x")]
    assert both.list_namespaces(prefix=("ana",), max_depth=2) == [("ana",), ("ana", "a"), ("ana", "b")]
    assert both.list_namespaces(prefix=("ana",), limit=2, offset=1) == below[1:3]
    assert both.list_namespaces(prefix=("nobody",)) == []


def test_a_batch_reads_before_it_writes_and_writes_a_key_once(both: BaseStore) -> None:
    both.put(LIKES, "tea", {"v": 1})

    results = both.batch(
        [
            PutOp(LIKES, "tea", {"v": 2}),
            GetOp(LIKES, "tea"),
            PutOp(LIKES, "tea", {"v": 3}),
            SearchOp(LIKES),
            PutOp(LIKES, "gone", {"v": 0}),
            PutOp(LIKES, "gone", None),
        ]
    )

    assert [results[place] for place in (0, 2, 4, 5)] == [None] * 4
    assert results[1].value == {"v": 1}  # type: ignore[union-attr]
    assert [item.value for item in results[3]] == [{"v": 1}]  # type: ignore[union-attr]
    assert [(item.key, item.value) for item in both.search(LIKES)] == [("tea", {"v": 3})]


def test_odd_namespaces_are_refused(both: BaseStore) -> None:
    for namespace in ((), ("ana", ""), ("a.b",), ("langgraph", "x")):
        with pytest.raises(InvalidNamespaceError):
            both.put(namespace, "k", {"v": 1})


def test_there_is_no_expiry(both: BaseStore) -> None:
    with pytest.raises(NotImplementedError, match="TTL"):
        both.put(LIKES, "tea", {"v": 1}, ttl=5)


def test_the_same_to_await(both: BaseStore) -> None:
    async def story() -> None:
        await both.aput(LIKES, "tea", {"kind": "green"})
        item = await both.aget(LIKES, "tea")
        assert item is not None
        assert item.value == {"kind": "green"}
        assert keys(await both.asearch(("ana",), filter={"kind": "green"})) == ["tea"]
        assert await both.alist_namespaces(prefix=("ana",)) == [LIKES]
        await both.adelete(LIKES, "tea")
        assert await both.aget(LIKES, "tea") is None

    async def closed() -> None:
        if isinstance(both, MemstreamStore):
            async with both:
                await story()
        else:
            await story()

    asyncio.run(closed())


def test_a_search_by_words_is_by_relevance(ours: MemstreamStore) -> None:
    ours.put(LIKES, "tea", {"text": "She drinks green tea in the morning"})
    ours.put(LIKES, "bike", {"text": "She cycles to work"})
    ours.put(("ana", "work"), "job", {"text": "She works at a bakery and starts in the morning"})

    found = ours.search(("ana",), query="what does she drink in the morning?")
    assert found[0].key == "tea"
    assert (found[0].score or 0) > (found[1].score or 0)
    assert keys(ours.search(LIKES, query="morning")) == ["tea"]
    assert keys(ours.search(LIKES, query="  ")) == ["bike", "tea"]
    assert ours.search(("bo",), query="morning") == []


def test_what_was_distilled_is_found_too(ours: MemstreamStore, client: AgentKitClient, name: str) -> None:
    facts = client.memory_stores.get(name)
    facts.add(actor_id="ana", path="/job/employer.md", content="I work at a bakery.", description="employer")
    facts.add(actor_id="ana", path="/job/desk.md", content="By the window.", session_id="s-1")

    assert [item.value for item in ours.search(("ana", "job"))] == [
        {"content": "I work at a bakery.", "description": "employer"}
    ]
    assert ours.get(("ana", "job"), "employer.md") is not None
    assert ours.get(("ana", "job"), "desk.md") is None
    assert ours.list_namespaces(prefix=("ana",)) == [("ana", "job")]


def test_the_actor_must_be_named(ours: MemstreamStore) -> None:
    for ask in (
        lambda: ours.search(()),
        lambda: ours.list_namespaces(),
        lambda: ours.list_namespaces(prefix=("*", "a")),
    ):
        with pytest.raises(ValueError, match="begins with the actor"):
            ask()


def test_the_store_is_found_by_name_or_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(store("facts"), MemstreamStore)
    with pytest.raises(ValueError, match="AGENT_MEMORY_STORE"):
        store()
    monkeypatch.setenv("AGENT_MEMORY_STORE", "facts")
    assert isinstance(store(), MemstreamStore)
