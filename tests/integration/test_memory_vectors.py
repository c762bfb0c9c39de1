"""Vectors as a second signal: made in the background, never in anybody's way, never two kinds at once."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from starlette.responses import Response

from libs.chassis import housekeeping
from services.memory.app import build
from services.memory.store.vectors import DROP_UNWANTED
from tests.support.embedder import Behaviour, Embedder, answers, embedder, hang, refusing, status, waiting
from tests.support.memory import STORES, Distiller, Memory, memory_service, said, settings
from tests.support.servers import PostgresServer
from tests.support.service import Keys, chassis_of, running, until

MODEL = {"params": {"update_mask": "embedding_model"}}


@pytest.fixture
async def endpoint() -> AsyncIterator[Embedder]:
    async with embedder() as endpoint:
        yield endpoint


@pytest.fixture
async def memory(postgres: PostgresServer, keys: Keys, endpoint: Embedder, tmp_path: Path) -> AsyncIterator[Memory]:
    async with embedding_memory(postgres, keys, endpoint, tmp_path) as memory:
        yield memory


@asynccontextmanager
async def embedding_memory(
    postgres: PostgresServer, keys: Keys, endpoint: Embedder, directory: Path, **more: Any
) -> AsyncIterator[Memory]:
    """A service with the endpoint's models, and a store `near` that asks for the small one."""
    more = {"embedding_interval_s": 0.2, "embedding_query_timeout_s": 5.0} | more
    file = endpoint.models_file(directory)
    async with memory_service(postgres, keys, models_file=file, **more) as memory:
        await memory.make_store("near", embedding_model="small")
        memory.store = "near"
        yield memory


async def embedding(memory: Memory, store: str | None = None) -> dict[str, Any]:
    shown: dict[str, Any] = (await memory.ok("GET", memory.url(store=store)))["embedding"]
    return shown


async def embedded(memory: Memory, model: str = "small", total: int | None = None) -> None:
    """Waits until every entry has a vector of this model."""

    async def is_done() -> bool:
        progress = await embedding(memory)
        done = progress["model"] == model and progress["done"] == progress["total"]
        return done and (total is None or progress["total"] == total) and await served_by(memory, model)

    await until(is_done)


async def served_by(memory: Memory, model: str) -> bool:
    rows = await chassis_of(memory.app).database.fetch(
        "select embedding_space, vectors_due from actor_stats a join memory_stores s using (store_uid)"
        " where s.store_id = $1",
        memory.store,
    )
    return all(row["embedding_space"].startswith(f"{model}:") and not row["vectors_due"] for row in rows)


async def vectors(memory: Memory) -> list[tuple[str, int]]:
    """Space and count of every vector that is kept."""
    rows = await chassis_of(memory.app).database.fetch(
        "select space, count(*) as count from entry_vectors group by 1 order by 1"
    )
    return [(row["space"], row["count"]) for row in rows]


async def test_a_search_finds_by_meaning_once_an_entry_is_embedded(memory: Memory) -> None:
    await memory.add("ana", "/pets/tom.md", "Tom is a grey cat")
    await memory.add("ana", "/work.md", "Works at a bank")
    await embedded(memory, total=2)

    hits = await memory.search("ana", "feline")

    assert hits[0]["managed_memory_entry"]["path"] == "/pets/tom.md"
    assert 0 < hits[0]["score"] <= 0.25
    assert await memory.paths("ana", "feline", min_score=0.3) == []


async def test_the_score_is_three_quarters_words_and_one_quarter_cosine(memory: Memory) -> None:
    await memory.add("ana", "/a.md", "grey cat")
    [words_alone] = await memory.search("ana", "cat", as_of="2999-01-01T00:00:00Z")
    await embedded(memory, total=1)

    [hit] = await memory.search("ana", "cat")

    assert hit["score"] == pytest.approx(0.75 * words_alone["score"] + 0.25 * 2**-0.5, abs=1e-3)


async def test_filters_hold_for_what_only_the_vector_finds(memory: Memory) -> None:
    await memory.add("ana", "/pets/tom.md", "a cat")
    await memory.add("ana", "/jobs/zoo.md", "a cat")
    await memory.add("bo", "/pets/tom.md", "a cat")
    await embedded(memory, total=3)

    found = await memory.search("ana", "feline", path_prefix="/pets/")

    assert [hit["managed_memory_entry"]["path"] for hit in found] == ["/pets/tom.md"]
    assert {hit["managed_memory_entry"]["actor_id"] for hit in found} == {"ana"}


async def test_a_changed_entry_counts_its_words_alone_until_it_is_embedded_again(
    memory: Memory, endpoint: Embedder
) -> None:
    entry = await memory.add("ana", "/a.md", "a cat")
    await embedded(memory, total=1)
    endpoint.behaviour = status(500)
    url = f"/api/2.0/agents/{entry['name']}"

    await memory.ok("PATCH", url, params={"update_mask": "content"}, json={"content": "a car"})

    assert await memory.search("ana", "feline") == []
    assert await vectors(memory) == []


async def test_what_was_changed_while_it_was_embedded_gets_the_vector_of_its_new_words(
    memory: Memory, endpoint: Embedder
) -> None:
    go_on = asyncio.Event()
    endpoint.behaviour = waiting("small", go_on)
    entry = await memory.add("ana", "/a.md", "a cat")
    await until(lambda: "a cat" in endpoint.texts("small"))

    url = f"/api/2.0/agents/{entry['name']}"
    await memory.ok("PATCH", url, params={"update_mask": "content"}, json={"content": "some car"})
    go_on.set()
    await embedded(memory, total=1)

    assert await memory.search("ana", "feline") == []
    assert await memory.paths("ana", "automobile") == ["/a.md"]
    assert endpoint.texts("small")[:2] == ["a cat", "some car"]


async def test_a_batch_of_the_distiller_and_a_retired_entry(memory: Memory) -> None:
    distiller = await Distiller.of(memory, "near")
    await distiller.tell(said("/pets/tom.md", "Tom is a cat"), said("/pets/rex.md", "Rex is a dog"))
    await embedded(memory, total=2)
    assert (await memory.paths("ana", "feline"))[0] == "/pets/tom.md"

    await distiller.tell(said("/pets/tom.md", None, "2026-02-01"))

    await embedded(memory, total=1)
    assert await vectors(memory) == [("small:384", 1)]


async def test_many_texts_go_in_calls_of_a_batch(memory: Memory, endpoint: Embedder) -> None:
    await memory.make_store("later")
    memory.store = "later"
    for number in range(70):
        await memory.add(f"actor{number % 7}", f"/{number}.md", f"fact {number}")

    await memory.ok("PATCH", memory.url(), **MODEL, json={"embedding_model": "small"})
    await embedded(memory, total=70)

    sizes = sorted(len(request["input"]) for request in endpoint.requests)
    assert sizes == [6, 64]
    assert len(set(endpoint.texts("small"))) == 70


async def test_another_model_serves_once_an_actor_is_whole_in_it(memory: Memory, endpoint: Embedder) -> None:
    for number in range(3):
        await memory.add("ana", f"/{number}.md", f"a cat, number {number}")
    await embedded(memory, total=3)
    go_on = asyncio.Event()
    endpoint.behaviour = waiting("large", go_on)

    shown = await memory.ok("PATCH", memory.url(), **MODEL, json={"embedding_model": "large"})
    await until(lambda: len(endpoint.texts("large")) == 3)
    meanwhile = await memory.search("ana", "feline")
    before = await vectors(memory)
    go_on.set()
    await embedded(memory, "large", total=3)

    assert shown["embedding"] == {"model": "large", "dimensions": 768, "done": 0, "total": 3}
    assert len(meanwhile) == 3, "the old vectors serve"
    assert before == [("small:384", 3)]
    assert await vectors(memory) == [("large:768", 3)]
    assert len(await memory.search("ana", "feline")) == 3
    assert endpoint.texts("small").count("feline") == endpoint.texts("large").count("feline") == 1


async def test_a_model_that_is_not_configured_any_more_has_no_dimensions(memory: Memory, keys: Keys) -> None:
    assert (await embedding(memory))["dimensions"] == 384

    async with running(build(settings(memory.dsn, keys)), keys) as client:
        shown = (await client.get(memory.url())).json()

    assert shown["embedding"] == {"model": "small", "done": 0, "total": 0}


async def test_without_a_model_the_vectors_go(memory: Memory) -> None:
    await memory.add("ana", "/a.md", "a cat")
    await embedded(memory, total=1)

    shown = await memory.ok("PATCH", memory.url(), **MODEL, json={})
    await housekeeping.run_pass(chassis_of(memory.app).unit_of_work, DROP_UNWANTED)

    assert "embedding" not in shown
    assert await vectors(memory) == []
    assert await memory.search("ana", "feline") == []
    assert len(await memory.search("ana", "cat")) == 1


async def test_an_erased_actor_leaves_no_vector_and_its_neighbours_keep_theirs(memory: Memory) -> None:
    for actor in ("ana", "bo"):
        for number in range(20):
            await memory.add(actor, f"/{number}.md", f"a cat, number {number}")
    await embedded(memory, total=40)

    await memory.ok("POST", memory.url("/actors:erase"), json={"actor_id": "ana"})

    assert await vectors(memory) == [("small:384", 20)]
    assert await memory.search("ana", "feline") == []
    assert len(await memory.search("bo", "feline", page_size=10)) == 10


async def test_a_model_that_nobody_configured_is_refused_by_name(
    postgres: PostgresServer, keys: Keys, memory: Memory
) -> None:
    body = {"display_name": "other", "embedding_model": "huge"}
    refused = await memory.client.post(STORES, json=body)
    assert (refused.status_code, refused.json()["error_code"]) == (400, "INVALID_PARAMETER_VALUE")
    assert "large, small" in refused.json()["message"]

    async with memory_service(postgres, keys) as plain:
        refused = await plain.client.post(STORES, json=body)

    assert refused.status_code == 400
    assert "EMBEDDING_MODEL" in refused.json()["message"]


@pytest.mark.parametrize(
    "behaviour",
    [
        pytest.param(status(429), id="429"),
        pytest.param(status(401), id="401"),
        pytest.param(status(500), id="500"),
        pytest.param(status(400), id="refuses everything"),
        pytest.param(hang, id="hangs"),
        pytest.param(answers({"data": [{"index": 0, "embedding": [1.0] * 383}]}), id="another dimension"),
        pytest.param(answers({"data": [{"index": 0, "embedding": [1e300] * 384}]}), id="numbers too large"),
        pytest.param(answers({"data": [{"index": 7, "embedding": [1.0] * 384}]}), id="an answer to something else"),
        pytest.param(answers({"data": []}), id="no vector"),
        pytest.param(answers({"object": "error"}), id="no answer"),
        pytest.param(answers(Response("<html>")), id="not JSON"),
    ],
)
async def test_a_search_goes_by_words_while_the_endpoint_is_no_use(
    postgres: PostgresServer, keys: Keys, endpoint: Embedder, tmp_path: Path, behaviour: Behaviour
) -> None:
    patience = {"embedding_query_timeout_s": 0.3, "embedding_timeout_s": 0.5}
    async with embedding_memory(postgres, keys, endpoint, tmp_path, **patience) as memory:
        await memory.add("ana", "/a.md", "a grey cat")
        await embedded(memory, total=1)
        endpoint.behaviour = behaviour

        found = [await memory.search("ana", f"cat {number}") for number in range(5)]
        await memory.add("ana", "/b.md", "a grey cat")

        assert all([hit["managed_memory_entry"]["path"] for hit in hits] == ["/a.md"] for hits in found)
        assert len(await memory.search("ana", "grey")) == 2
        counted = chassis_of(memory.app).metrics.registry
        without = sum(
            counted.get_sample_value("memstream_searches_without_vectors_total", {"model": "small", "reason": reason})
            or 0
            for reason in ("away", "late", "failed", "refused")
        )
        assert without == 6
        asked = sum(request["input"][0].startswith("cat ") for request in endpoint.requests)
        assert asked <= 3, "after a few failures it is left in peace"


async def test_one_text_that_the_endpoint_refuses_holds_up_nothing(memory: Memory, endpoint: Embedder) -> None:
    endpoint.behaviour = refusing("poison")
    await memory.add("ana", "/0.md", "poison")
    for number in range(1, 9):
        await memory.add("ana", f"/{number}.md", f"a cat, number {number}")

    await embedded(memory, total=9)

    assert len(await memory.search("ana", "feline")) == 8
    assert await memory.paths("ana", "poison") == ["/0.md"], "its words count alone"


async def test_a_query_is_embedded_once(memory: Memory, endpoint: Embedder) -> None:
    await memory.add("ana", "/a.md", "a cat")
    await embedded(memory, total=1)

    for _ in range(3):
        assert len(await memory.search("ana", "feline")) == 1

    assert endpoint.texts("small").count("feline") == 1
