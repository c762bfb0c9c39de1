"""Restatements become one entry, long entries become several, and nothing is lost on the way."""

import json
import re
import threading
from collections.abc import AsyncIterator
from contextlib import suppress
from functools import partial
from itertools import product
from typing import Any
from uuid import UUID

import pytest

from libs.chassis.errors import Reject, Retry
from libs.contracts.events import MemoriesDistilled
from libs.contracts.requests import StoredEntry
from services.distiller.consolidation import consolidator
from services.distiller.domain import Lease
from services.distiller.store import Batches
from tests.support import scripted_model as scripted
from tests.support.replaying import ended, start
from tests.support.scripted_model import ScriptedModel, asked_groups, scripted_model
from tests.support.servers import NatsServer, PostgresServer
from tests.support.service import chassis_of, until
from tests.support.system import Open, System, system

FIRST, LAST, TRADES = (
    names.split()
    for names in (
        "Ada Bela Caro Dario Elif Femi Goran Hana Ivo Jonas Kaya Lior Mina Nuno Oana Pavel Rosa Sami Tove Uma",
        "Abbot Brandt Castro Dumas Evans Fontana Garcia Hubert Ivanov Jansen Keller Lopez Moreau Novak Olsen Petit"
        " Quint Rossi Stein Tanaka Ueda Vogel Weber Yilmaz Zimmer",
        "beekeeper baker carpenter dentist electrician",
    )
)

PEOPLE = [f"{first} {last}" for first, last in product(FIRST, LAST)]
FACTS = [f"{name} is my {TRADES[n % 5]}" for n, name in enumerate(PEOPLE)]
RESTATED = [f"As a {TRADES[n % 5]} I always go to {name}, nobody else" for n, name in enumerate(PEOPLE)][::10]


def person(statement: str) -> str:
    return next(name for name in PEOPLE if name in statement)


@pytest.fixture
async def model() -> AsyncIterator[ScriptedModel]:
    async with scripted_model() as served:
        served.behave(scripted.consolidating(person))
        yield served


async def run(memstream: System, pipeline: str) -> None:
    """A run to its end, and what comes after it."""
    started = await memstream.call("POST", f"/{pipeline}/run", json={})

    async def ended() -> bool:
        state = (await memstream.call("GET", f"/{started['name']}"))["state"]
        assert state != "FAILED"
        return bool(state == "SUCCEEDED")

    await until(ended, deadline_s=60)
    await in_order(memstream)


async def in_order(memstream: System) -> None:
    database = chassis_of(memstream.apps["distiller"]).database

    async def is_done() -> bool:
        return not await database.fetchval(
            "select exists (select from lanes where consolidate or pending_batch is not null or due_at is not null)"
        )

    await until(is_done, deadline_s=60)


async def current(memstream: System, actor: str = "ana") -> dict[str, dict[str, Any]]:
    """The actor's entries by name, through all pages."""
    found: dict[str, dict[str, Any]] = {}
    token = ""
    while True:
        params = {"actor_id": actor, "page_size": 100, "page_token": token}
        page = await memstream.call("GET", "/memory-stores/facts/entries", params=params)
        found |= {entry["name"]: entry for entry in page["managed_memory_entries"]}
        token = page.get("next_page_token", "")
        if not token:
            return found


async def put(memstream: System, path: str, content: str) -> dict[str, Any]:
    body = {"actor_id": "ana", "path": path, "content": content}
    entry: dict[str, Any] = await memstream.call("POST", "/memory-stores/facts/entries:put", json=body)
    return entry


async def versions(memstream: System, name: str) -> list[dict[str, Any]]:
    """Newest first."""
    found: list[dict[str, Any]] = (await memstream.call("GET", f"/{name}/versions"))["versions"]
    return found


async def restore(memstream: System, name: str, version: int) -> None:
    await memstream.call("POST", f"/{name}:restore", json={"version": version})


async def test_fifty_restatements_of_five_hundred_facts_leave_five_hundred_and_every_step_can_be_undone(
    opened: Open, model: ScriptedModel
) -> None:
    async with opened() as memstream:
        pipeline = await memstream.pipeline(trigger="MANUAL_ONLY")
        said = [*FACTS, *RESTATED]
        for start in range(0, len(said), 55):
            await memstream.say("ana", f"s{start}", *said[start : start + 55])
        await run(memstream, pipeline)

        entries = await current(memstream)
        assert len(FACTS) == len(PEOPLE) == 500
        assert sorted(person(entry["content"]) for entry in entries.values()) == sorted(PEOPLE)
        shown = [entry for body in model.requests for group in asked_groups(body) for entry in group]
        assert len(shown) < 3 * len(said), "only what overlaps is shown"

        rows = await chassis_of(memstream.apps["memory"]).database.fetch("select entry_id from entries where retired")
        retired = [f"memory-stores/facts/entries/{row['entry_id']}" for row in rows]
        assert len(retired) == 50
        for name in retired:
            ended, said_before = (await versions(memstream, name))[:2]
            assert ended["retired"]
            [successor] = ended["successors"]
            assert person(entries[successor]["content"]) == person(said_before["content"])
            assert entries[successor]["evidence"][0]["session_id"], "it rests on the lines of both"

        calls = model.calls
        await run(memstream, pipeline)
        assert model.calls == calls
        assert await current(memstream) == entries

        for name in retired:
            [successor] = (await versions(memstream, name))[0]["successors"]
            await restore(memstream, name, 1)
            if len(await versions(memstream, successor)) > 1:
                await restore(memstream, successor, 1)
        assert sorted(entry["content"] for entry in (await current(memstream)).values()) == sorted(said)

        await run(memstream, pipeline)
        assert len(await current(memstream)) == 550, "what somebody brought back is left alone"


async def test_the_merged_entry_rests_on_all_the_lines_and_is_found_at_every_time(opened: Open) -> None:
    async with opened() as memstream:
        pipeline = await memstream.pipeline(trigger="MANUAL_ONLY")
        await memstream.say("ana", "s1", FACTS[0], occurred_at="2026-01-05T10:00:00Z")
        await memstream.say("ana", "s2", RESTATED[0], occurred_at="2026-03-05T10:00:00Z")
        await run(memstream, pipeline)

        [entry] = (await current(memstream)).values()
        assert {proof["session_id"] for proof in entry["evidence"]} == {"s1", "s2"}
        assert len(entry["evidence"]) == 2
        for as_of, words in (("2026-02-01", FACTS[0]), ("2026-03-06", RESTATED[0]), ("2026-12-01", RESTATED[0])):
            found = await memstream.call(
                "POST",
                "/memory-stores/facts/entries:search",
                json={"actor_id": "ana", "query": "beekeeper", "as_of": f"{as_of}T00:00:00Z"},
            )
            assert [hit["managed_memory_entry"]["content"] for hit in found["results"]] == [words]


async def test_enough_changes_put_a_memory_in_order_without_a_run(opened: Open, model: ScriptedModel) -> None:
    async with opened(consolidate_after=3) as memstream:
        pipeline = await memstream.pipeline()
        await memstream.say("ana", "s1", FACTS[0], RESTATED[0])
        await memstream.settled(pipeline)
        assert model.calls == 1, "two changes are not enough"

        await memstream.say("ana", "s1", FACTS[1])
        await memstream.settled(pipeline)
        await until(partial(has_calls, model, 3))
        await in_order(memstream)

        assert len(await current(memstream)) == 2


@pytest.mark.parametrize(("into", "left"), [("facts", 1), ("trial", 2)], ids=["its own store", "another store"])
async def test_what_a_replay_swapped_in_is_put_in_order_where_the_live_lane_writes(
    opened: Open, into: str, left: int
) -> None:
    async with opened() as memstream:
        pipeline = await memstream.pipeline()
        await memstream.call("POST", "/memory-stores?managed_memory_store_id=trial", json={})
        await memstream.say("ana", "s1", FACTS[0], RESTATED[0])
        await memstream.settled(pipeline)
        assert len(await current(memstream)) == 2, "two changes are not enough"

        replay = await ended(memstream, await start(memstream, pipeline, memory_store=into))
        await in_order(memstream)

        assert replay["state"] == "SUCCEEDED"
        assert len(await memstream.memories("ana", into)) == left


async def has_calls(model: ScriptedModel, count: int) -> bool:
    return model.calls >= count


async def test_a_long_entry_of_an_agent_is_split_and_comes_back_by_one_restore(opened: Open) -> None:
    async with opened() as memstream:
        pipeline = await memstream.pipeline(trigger="MANUAL_ONLY")
        await memstream.say("ana", "s1", "Nothing of note")
        await put(memstream, "/notes/ada-abbot-is-my-beekeeper.md", FACTS[0])
        long = await put(memstream, "/profile.md", "\n".join(FACTS[:60]))
        huge = await put(memstream, "/archive.md", "word " * 60_000)
        await run(memstream, pipeline)

        entries = await current(memstream)
        assert long["name"] not in entries
        assert huge["name"] in entries, "over 256 KiB it is left alone"
        texts = [entry["content"] for name, entry in entries.items() if name != huge["name"]]
        assert set(FACTS[:60]) <= set(texts)
        ended = (await versions(memstream, long["name"]))[0]
        assert len(ended["successors"]) == 60
        [doubled] = set(ended["successors"]) - entries.keys()
        [merged] = (await versions(memstream, doubled))[0]["successors"]
        assert entries[merged]["content"] == FACTS[0], "the part that an entry said already was merged with it"

        await restore(memstream, long["name"], 1)
        assert (await current(memstream))[long["name"]]["content"] == "\n".join(FACTS[:60])


@pytest.mark.parametrize(
    "rewrite",
    [
        {"replaces": [1, 99], "into": [scripted.into("/x/y.md", "x")]},
        {"replaces": [1, 2], "into": [scripted.into("/another/place.md", "x")]},
        {"replaces": [1, 2], "into": []},
        {"replaces": [1], "into": [scripted.into("/x/y.md", "x"), scripted.into("/x/z.md", "x")]},
    ],
    ids=["foreign entry", "foreign path", "nothing instead", "split of a short one"],
)
async def test_an_answer_that_breaks_a_rule_changes_nothing_and_stops_nobody(
    opened: Open, model: ScriptedModel, rewrite: dict[str, Any]
) -> None:
    async def behave(body: dict[str, Any]) -> Any:
        if not asked_groups(body):
            return await scripted.valid(body)
        return scripted.completion(json.dumps({"rewrites": [rewrite]}))

    model.behave(behave)
    async with opened() as memstream:
        pipeline = await memstream.pipeline(trigger="MANUAL_ONLY")
        await memstream.say("ana", "s1", FACTS[0], RESTATED[0])
        await run(memstream, pipeline)
        assert len(await current(memstream)) == 2

        await memstream.say("ana", "s1", FACTS[1])
        await run(memstream, pipeline)

        assert len(await current(memstream)) == 3
        [lane] = (await memstream.call("GET", f"/{pipeline}/lanes"))["lanes"]
        assert (lane["state"], lane["attempts"]) == ("settled", 0)


@pytest.mark.parametrize("step", ["groups_of", "check"])
@pytest.mark.parametrize("failure", [Reject, RuntimeError])
async def test_a_consolidation_that_fails_in_its_own_way_is_over_and_comes_again(
    opened: Open, model: ScriptedModel, monkeypatch: pytest.MonkeyPatch, step: str, failure: type[Exception]
) -> None:
    def fails(*_: Any) -> None:
        raise failure("broken")

    async with opened() as memstream:
        pipeline = await memstream.pipeline(trigger="MANUAL_ONLY")
        await memstream.say("ana", "s1", FACTS[0], RESTATED[0])
        with monkeypatch.context() as patched:
            patched.setattr(consolidator, step, fails)
            await run(memstream, pipeline)

        assert len(await current(memstream)) == 2
        [lane] = (await memstream.call("GET", f"/{pipeline}/lanes"))["lanes"]
        assert (lane["state"], lane["attempts"], lane.get("reason")) == ("settled", 0, None)
        counted = chassis_of(memstream.apps["distiller"]).metrics.registry
        assert counted.get_sample_value("memstream_distillations_total", {"outcome": "consolidation_failed"}) == 1

        await run(memstream, pipeline)
        assert len(await current(memstream)) == 1


async def test_a_cut_answer_is_asked_for_in_halves_and_one_entry_that_is_too_much_is_left(
    opened: Open, model: ScriptedModel
) -> None:
    async def behave(body: dict[str, Any]) -> Any:
        if len(asked_groups(body)) > 1 or re.search(r"^Too long:", body["messages"][-1]["content"], re.MULTILINE):
            return scripted.completion('{"rewrites": [{"re', finish_reason="length")
        return await scripted.consolidating(person)(body)

    model.behave(behave)
    async with opened() as memstream:
        pipeline = await memstream.pipeline(trigger="MANUAL_ONLY")
        await memstream.say("ana", "s1", FACTS[0], RESTATED[0], FACTS[260], RESTATED[26])
        long = await put(memstream, "/profile.md", "\n".join(FACTS[100:160]))
        await run(memstream, pipeline)

        entries = await current(memstream)
        assert len(entries) == 3
        assert long["name"] in entries
        calls = model.calls
        await run(memstream, pipeline)
        assert model.calls == calls


async def test_one_memory_is_compared_at_a_time_and_of_a_large_one_only_so_much(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    both = threading.Barrier(2)
    met: list[int] = []
    sizes: list[int] = []

    def compares(entries: list[StoredEntry]) -> list[list[StoredEntry]]:
        sizes.append(len(entries))
        with suppress(threading.BrokenBarrierError):
            met.append(both.wait(timeout=1))
        both.reset()
        return []

    monkeypatch.setattr(consolidator, "groups_of", compares)
    monkeypatch.setattr(consolidator, "READ_PAGES", 2)
    async with opened() as memstream:
        pipeline = await memstream.pipeline(trigger="MANUAL_ONLY")
        for actor in ("ana", "bo", "cy"):
            await memstream.say(actor, f"of-{actor}", FACTS[0])
        for number in range(6):
            await put(memstream, f"/notes/{number}.md", "word " * 40_000)
        await run(memstream, pipeline)

    assert not met
    assert sorted(sizes) == [1, 1, 2]


async def test_a_memory_without_a_configured_model_is_never_read_for_it(
    postgres: PostgresServer, nats: NatsServer
) -> None:
    async with system(postgres, nats, distiller_settings={"consolidate_after": 1}) as memstream:
        pipeline = await memstream.pipeline()
        await memstream.say("ana", "s1", "I am allergic to peanuts.", "I live in Paris.")
        await memstream.settled(pipeline)
        await in_order(memstream)

        assert len(await memstream.memories("ana")) == 2


async def test_an_answer_that_was_paid_for_is_not_paid_for_again_when_its_worker_dies(
    opened: Open, model: ScriptedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    emit = Batches.emit
    died: list[UUID] = []

    async def dies_once(batches: Batches, lease: Lease, event: MemoriesDistilled, *args: Any, **more: Any) -> bool:
        if event.rewrites and not died:
            died.append(event.batch_id)
            raise Retry("killed")
        return await emit(batches, lease, event, *args, **more)

    monkeypatch.setattr(Batches, "emit", dies_once)
    async with opened() as memstream:
        pipeline = await memstream.pipeline(trigger="MANUAL_ONLY")
        await memstream.say("ana", "s1", FACTS[0], RESTATED[0])
        await run(memstream, pipeline)

        assert died
        assert len(await current(memstream)) == 1
        assert model.calls == 2, "one for the lines, one for the overlap"


async def test_a_spent_budget_makes_a_consolidation_wait(opened: Open, model: ScriptedModel) -> None:
    async with opened() as memstream:
        pipeline = await memstream.pipeline(trigger="MANUAL_ONLY", daily_token_budget=100)
        await memstream.say("ana", "s1", FACTS[0], RESTATED[0])
        started = await memstream.call("POST", f"/{pipeline}/run", json={})

        async def waits() -> bool:
            [lane] = (await memstream.call("GET", f"/{pipeline}/lanes"))["lanes"] or [{}]
            return "daily_token_budget" in (lane.get("reason") or "")

        await until(waits)
        assert model.calls == 1
        assert (await memstream.call("GET", f"/{started['name']}"))["state"] in ("RUNNING", "SUCCEEDED")

        body = {"dreamer_policy": {"daily_token_budget": 1000}}
        mask = {"update_mask": "dreamer_policy.daily_token_budget"}
        await memstream.call("PATCH", f"/{pipeline}", json=body, params=mask)
        await in_order(memstream)
        assert len(await current(memstream)) == 1
