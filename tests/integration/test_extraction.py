"""Synchronous extraction: a session distilled at once, into the slots that a pipeline would write."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID

import httpx
import pytest
from starlette.responses import Response

from libs.chassis.errors import Contended, OutcomeUnknown
from libs.contracts.events import Change
from libs.contracts.requests import ApplyBatch, BatchApplied
from libs.contracts.routes import BASE
from services.distiller import extraction
from services.memory.handlers import Handlers
from services.memory.store import batches
from services.memory.store.access import open_store_for_batch
from tests.support import scripted_model as scripted
from tests.support.replaying import put
from tests.support.scripted_model import ScriptedModel
from tests.support.servers import NatsServer, PostgresServer
from tests.support.service import chassis_of, until
from tests.support.system import Open, System, system

EXTRACT = "/session-stores/chats/sessions/s1/extractions"


@pytest.fixture
async def memstream(postgres: PostgresServer, nats: NatsServer) -> AsyncIterator[System]:
    async with system(postgres, nats) as running:
        await running.call("POST", "/session-stores?session_store_id=chats", json={})
        await running.call("POST", "/memory-stores?managed_memory_store_id=facts", json={})
        await running.say("ana", "s1", "I am allergic to peanuts.", "Hello?", "I work at Northwind.")
        yield running


async def extract(memstream: System, **body: Any) -> list[dict[str, Any]]:
    answer = await memstream.call("POST", EXTRACT, json={"memory_store": "memory-stores/facts"} | body)
    assert answer["name"]
    entries: list[dict[str, Any]] = answer["entries"]
    return entries


async def test_an_extraction_answers_what_it_has_written(memstream: System) -> None:
    entries = await extract(memstream)

    assert {entry["path"]: entry["content"] for entry in entries} == await memstream.memories("ana")
    assert "/job/employer.md" in await memstream.memories("ana")
    for entry in entries:
        shown = await memstream.call("GET", f"/{entry['name']}")
        assert (shown["path"], shown["actor_id"]) == (entry["path"], "ana")
        assert shown["source_type"] == "MANAGED_MEMORY_ENTRY_SOURCE_TYPE_DREAMER"


async def test_a_dry_run_writes_nothing_and_names_every_entry(memstream: System) -> None:
    entries = await extract(memstream, dry_run=True)

    assert len(entries) == 2
    assert all(entry["name"].startswith("memory-stores/facts/entries/") for entry in entries)
    assert await memstream.memories("ana") == {}


async def test_an_extraction_and_a_pipeline_never_make_a_fact_twice(memstream: System) -> None:
    await extract(memstream)
    before = await memstream.memories("ana")

    pipeline = await memstream.call(
        "POST",
        "/memory-pipelines",
        json={"session_store": "chats", "memory_store": "facts", "dreamer_policy": {"trigger": "CONTINUOUS"}},
    )
    await memstream.settled(pipeline["name"])
    await extract(memstream)

    assert await memstream.memories("ana") == before


async def test_what_one_append_said_is_current_as_it_was_said_last_however_often_it_is_extracted(
    memstream: System,
) -> None:
    await memstream.say("ana", "s1", "I live in Paris.", "I work at Contoso now.", "I moved to Lyon.")
    first = {entry["path"]: entry["name"] for entry in await extract(memstream)}
    versions = {path: await memstream.call("GET", f"/{name}/versions") for path, name in first.items()}
    told = await memstream.memories("ana")

    for _ in range(2):
        await extract(memstream)

        assert await memstream.memories("ana") == told
        assert {path: await memstream.call("GET", f"/{name}/versions") for path, name in first.items()} == versions
    assert any("Lyon" in content for content in told.values())
    assert not any("Paris" in content for content in told.values())


async def test_a_long_session_is_extracted_whole(memstream: System) -> None:
    likes = [f"I am allergic to thing{n}berries." for n in range(90)]
    for start in range(0, 90, 30):
        await memstream.say("ana", "s1", *likes[start : start + 30])

    await extract(memstream)

    allergies = [path for path in await memstream.memories("ana") if path.startswith("/allergies/")]
    assert len(allergies) == 91


CITY = "/home/city.md"


async def said_and_extracted(memstream: System, text: str, **wanted: Any) -> httpx.Response:
    await memstream.say("ana", "s1", text)
    return await memstream.client.post(f"{BASE}{EXTRACT}", json={"memory_store": "facts"} | wanted)


async def test_a_slot_that_was_not_offered_is_changed(opened: Open, model: ScriptedModel) -> None:
    async with opened() as memstream:
        await memstream.pipeline(trigger="MANUAL_ONLY")
        model.behave(scripted.in_slot(CITY))
        await put(memstream, CITY, "Paris it is")

        answer = await said_and_extracted(memstream, "Lyon since May", instructions="Keep places.")

        assert [entry["content"] for entry in answer.json()["entries"]] == ["Lyon since May"]
        assert await memstream.memories("ana") == {CITY: "Lyon since May"}
        assert model.calls == 1
        assert "Instructions of the operator:\nKeep places.\n" in model.requests[0]["messages"][-1]["content"]


@pytest.mark.parametrize(("times", "code"), [(3, 200), (4, 409)])
async def test_who_writes_a_slot_meanwhile_has_it_asked_again_or_told(
    opened: Open, model: ScriptedModel, monkeypatch: pytest.MonkeyPatch, times: int, code: int
) -> None:
    apply = Handlers.apply_batch
    clashes: list[int] = []

    async def clash(self: Handlers, request: ApplyBatch) -> BatchApplied:
        if len(clashes) < times:
            clashes.append(len(clashes))
            await put(running, CITY, f"Said by an agent, {len(clashes)}")
        return await apply(self, request)

    monkeypatch.setattr(Handlers, "apply_batch", clash)
    model.behave(scripted.in_slot(CITY))
    async with opened() as running:
        await running.pipeline(trigger="MANUAL_ONLY")
        await put(running, CITY, "Paris it is")

        answer = await said_and_extracted(running, "Lyon since May")

        assert answer.status_code == code, answer.text
        assert model.calls == 4, "once, and three times again"
        assert running.metric("distiller", "memstream_changes_total", outcome="conflict") == times
        last = await running.memories("ana")
        if code == 200:
            [entry] = answer.json()["entries"]
            told = await running.call("GET", f"/{entry['name']}/versions")
            agents = [f"Said by an agent, {number}" for number in (3, 2, 1)]
            assert (entry["content"], last) == ("Lyon since May", {CITY: agents[0]}), "which was written later"
            assert [each["content"] for each in told["versions"]] == [*agents, "Lyon since May", "Paris it is"]
        else:
            assert (answer.json()["error_code"], last) == ("ABORTED", {CITY: "Said by an agent, 4"})
            assert "Not all was written (conflict: " in answer.json()["message"]


async def test_what_memory_refuses_is_told_and_the_rest_is_written(
    opened: Open, model: ScriptedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(change: Change, max_path_bytes: int) -> str | None:
        return "the operator lowered a limit" if change.statement == "Tea is what I drink" else None

    monkeypatch.setattr(batches, "change_problem", refused)
    async with opened() as memstream:
        await memstream.pipeline(trigger="MANUAL_ONLY")
        await memstream.say("ana", "s1", "Tea is what I drink")

        answer = await said_and_extracted(memstream, "Rain or shine")

        assert (answer.status_code, answer.json()["error_code"]) == (409, "ABORTED")
        assert "refused: the operator lowered a limit" in answer.json()["message"]
        assert list((await memstream.memories("ana")).values()) == ["Rain or shine"]


async def test_an_extraction_waits_for_an_actor_who_is_held(
    opened: Open, model: ScriptedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    apply = Handlers.apply_batch
    refused: list[Contended] = []

    async def counted(self: Handlers, request: ApplyBatch) -> BatchApplied:
        try:
            return await apply(self, request)
        except Contended as held:
            refused.append(held)
            raise

    monkeypatch.setattr(Handlers, "apply_batch", counted)
    async with opened() as memstream:
        await memstream.pipeline(trigger="MANUAL_ONLY")
        chassis = chassis_of(memstream.apps["memory"])
        facts: UUID = await chassis.database.fetchval("select store_uid from memory_stores")
        async with chassis.unit_of_work.begin() as tx:
            await open_store_for_batch(tx, facts, "ana")
            extracting = asyncio.ensure_future(said_and_extracted(memstream, "Rain or shine"))
            await until(lambda: len(refused) == 2)

        answer = await extracting

        assert answer.status_code == 200, answer.text
        assert list((await memstream.memories("ana")).values()) == ["Rain or shine"]
        assert model.calls == 1


@pytest.mark.parametrize(
    ("failure", "answered"),
    [(Contended, (503, "TEMPORARILY_UNAVAILABLE")), (OutcomeUnknown, (500, "INTERNAL_ERROR"))],
)
async def test_an_extraction_that_memory_goes_on_refusing_says_whether_something_may_be_written(
    postgres: PostgresServer,
    nats: NatsServer,
    monkeypatch: pytest.MonkeyPatch,
    failure: type[Contended | OutcomeUnknown],
    answered: tuple[int, str],
) -> None:
    asked: list[ApplyBatch] = []

    async def refuse(self: Handlers, request: ApplyBatch) -> BatchApplied:
        asked.append(request)
        raise failure

    monkeypatch.setattr(Handlers, "apply_batch", refuse)
    monkeypatch.setattr(extraction, "APPLY_AGAIN_S", 0.5)

    async with system(postgres, nats) as memstream:
        await memstream.pipeline(trigger="MANUAL_ONLY")
        answer = await said_and_extracted(memstream, "I collect stamps.")

    assert (answer.status_code, answer.json()["error_code"]) == answered
    assert ("Nothing was written" in answer.json()["message"]) == (failure is Contended)
    assert len({request.batch.batch_id for request in asked}) == 1 < len(asked)


async def test_an_extraction_ends_where_its_actor_is_erased(opened: Open, model: ScriptedModel) -> None:
    async with opened(batch_lines=1) as memstream:
        await memstream.pipeline(trigger="MANUAL_ONLY")
        await memstream.say("ana", "s1", "Tea is what I drink")

        async def erased_meanwhile(body: dict[str, Any]) -> Response:
            await memstream.call("POST", "/memory-stores/facts/actors:erase", json={"actor_id": "ana"})
            return await scripted.valid(body)

        model.behave(erased_meanwhile, scripted.valid)

        answer = await said_and_extracted(memstream, "Rain or shine")

        assert (answer.status_code, answer.json()["error_code"]) == (409, "ABORTED")
        assert "erased" in answer.json()["message"]
        assert await memstream.memories("ana") == {}
        assert model.calls == 1


@pytest.mark.parametrize(
    ("path", "body", "code", "says"),
    [
        (EXTRACT, {}, 400, "memory_store"),
        (EXTRACT, {"memory_store": "session-stores/facts"}, 400, "memory-stores/"),
        (EXTRACT, {"memory_store": "nobody"}, 404, "nobody"),
        (EXTRACT.replace("s1", "s9"), {"memory_store": "facts"}, 404, "s9"),
        (EXTRACT.replace("chats", "others"), {"memory_store": "facts"}, 404, "others"),
    ],
)
async def test_a_bad_extraction_is_refused(
    memstream: System, path: str, body: dict[str, Any], code: int, says: str
) -> None:
    answer = await memstream.client.post(f"{BASE}{path}", json=body)

    assert answer.status_code == code
    assert says in answer.json()["message"]


async def test_an_extraction_needs_both_grants(memstream: System) -> None:
    friend = memstream.keys.header("friend@example.com")
    body = {"memory_store": "facts"}

    assert (await memstream.client.post(f"{BASE}{EXTRACT}", json=body, headers=friend)).status_code == 403
    for store, permission, code in (("session-stores/chats", "READ", 403), ("memory-stores/facts", "WRITE", 200)):
        await memstream.call(
            "POST",
            f"/{store}/permissions:grant",
            json={
                "principal": {"principal_type": "USER", "name": "friend@example.com"},
                "permission": permission,
            },
        )
        answer = await memstream.client.post(f"{BASE}{EXTRACT}", json=body, headers=friend)
        assert answer.status_code == code, answer.text
