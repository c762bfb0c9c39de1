"""A configured model: what its answers and its failures do to a lane, seen from outside."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr
from starlette.responses import HTMLResponse
from structlog.testing import CapturingLogger

from libs.chassis.errors import OutcomeUnknown, Unavailable
from libs.chassis.unit_of_work import Tx
from libs.contracts.routes import BASE
from services.distiller import app as distiller
from services.distiller import lanes, llm, paid
from services.distiller.domain import Lease
from services.distiller.llm import Models
from services.distiller.settings import DistillerSettings
from services.distiller.store import Batches, Lanes, Leases, Usage
from tests.support import scripted_model as scripted
from tests.support.scripted_model import Behaviour, ScriptedModel
from tests.support.servers import NatsServer, PostgresServer, free_port
from tests.support.service import USER, chassis_of, running, until
from tests.support.system import Open, System, system

EXTRACT = "/session-stores/chats/sessions/s1/extractions"


@pytest.fixture
async def memstream(postgres: PostgresServer, nats: NatsServer, model: ScriptedModel) -> AsyncIterator[System]:
    async with system(postgres, nats, models=model.models(model_timeout_s=1.0)) as running:
        yield running


async def lane(memstream: System, pipeline: str) -> dict[str, Any]:
    [only] = (await memstream.call("GET", f"/{pipeline}/lanes"))["lanes"]
    found: dict[str, Any] = only
    return found


async def usage(memstream: System) -> dict[str, int]:
    """Calls by outcome, as booked."""
    rows = await chassis_of(memstream.apps["distiller"]).database.fetch(
        "select outcome, sum(calls)::int as calls from usage group by outcome"
    )
    return {row["outcome"]: row["calls"] for row in rows}


@pytest.mark.parametrize("behaviour", [scripted.valid, scripted.fenced])
async def test_the_facts_of_an_answer_become_memories_for_one_call(
    memstream: System, model: ScriptedModel, behaviour: Behaviour
) -> None:
    model.behave(behaviour)
    pipeline = await memstream.pipeline(instructions="Keep drinks.")

    await memstream.say("ana", "s1", "Tea is what I drink", "Rain or shine")
    await memstream.settled(pipeline)

    assert await memstream.memories("ana") == {
        "/notes/tea-is-what-i-drink.md": "Tea is what I drink",
        "/notes/rain-or-shine.md": "Rain or shine",
    }
    assert model.calls == 1
    assert "Keep drinks." in model.requests[0]["messages"][-1]["content"]
    assert await usage(memstream) == {"answered": 1}


@pytest.mark.parametrize(
    "usage", [None, {"prompt_tokens": None}, {"prompt_tokens": "7", "completion_tokens": -5}, {"prompt_tokens": 10**30}]
)
async def test_a_bill_that_makes_no_sense_costs_no_fact_and_lowers_nothing(
    memstream: System, model: ScriptedModel, usage: Any
) -> None:
    model.behave(scripted.with_usage(usage))
    pipeline = await memstream.pipeline()

    await memstream.say("ana", "s1", "Tea is what I drink")
    await memstream.settled(pipeline)

    assert list(await memstream.memories("ana")) == ["/notes/tea-is-what-i-drink.md"]
    [row] = (await memstream.call("GET", f"/{pipeline}/usage"))["usage"]
    assert row["prompt_tokens"] >= 0
    assert row["completion_tokens"] >= 0


async def test_known_slots_are_offered_to_the_model(memstream: System, model: ScriptedModel) -> None:
    pipeline = await memstream.pipeline()
    await memstream.say("ana", "s1", "Tea is what I drink")
    await memstream.settled(pipeline)

    await memstream.say("ana", "s2", "No more tea for me")
    await memstream.settled(pipeline)

    assert "/notes/tea-is-what-i-drink.md (item): Tea is what I drink" in model.requests[1]["messages"][-1]["content"]


async def test_a_slot_that_was_not_offered_is_changed_for_one_call(memstream: System, model: ScriptedModel) -> None:
    model.behave(scripted.in_slot("/home/city.md"))
    pipeline = await memstream.pipeline()
    await memstream.say("ana", "s1", "Paris it is")
    await memstream.settled(pipeline)

    await memstream.say("ana", "s1", "Lyon since May")
    await memstream.settled(pipeline)

    assert await memstream.memories("ana") == {"/home/city.md": "Lyon since May"}
    assert model.calls == 2
    assert "Paris" not in model.requests[1]["messages"][-1]["content"].partition("Lines:")[0]


async def test_a_slot_that_was_not_offered_is_retired_and_told_again(memstream: System, model: ScriptedModel) -> None:
    city = "/home/city.md"
    model.behave(*(scripted.in_slot(city, op=op) for op in ("set", "retire", "set")))
    pipeline = await memstream.pipeline()

    for text, memories in (("Paris it is", {city: "Paris it is"}), ("No home now", {}), ("Lyon", {city: "Lyon"})):
        await memstream.say("ana", "s1", text)
        await memstream.settled(pipeline)
        assert await memstream.memories("ana") == memories

    assert model.calls == 3


@pytest.mark.parametrize(
    ("behaviour", "reason", "outcome"),
    [
        (scripted.prose, "not JSON: expected ident at line 1 column 2", "not_json"),
        (scripted.wrong_shape, "wrong shape: changes: missing, and 1 more", "wrong_shape"),
        (scripted.foreign_evidence, "foreign evidence", "answered"),
        (scripted.refused, "refused", "refused"),
        (scripted.hang, "deadline", "deadline"),
        (scripted.trickle(0.2), "deadline", "deadline"),
        (scripted.status(400), "refused the request with 400", "http_400"),
        (scripted.odd([]), "wrong shape", "wrong_shape"),
        (scripted.odd({"choices": [{"message": None}]}), "wrong shape", "wrong_shape"),
        (scripted.odd(HTMLResponse("<html>hello</html>")), "wrong shape", "wrong_shape"),
        (scripted.odd(scripted.completion('{"changes": []}\u0000')), "NUL", "not_json"),
        (scripted.with_statement("nul \x00 inside"), "NUL", "answered"),
    ],
)
async def test_a_useless_answer_is_the_lanes_failure_never_done_with_nothing_found(
    memstream: System, model: ScriptedModel, behaviour: Behaviour, reason: str, outcome: str
) -> None:
    model.behave(behaviour)
    pipeline = await memstream.pipeline()
    await memstream.say("ana", "s1", "Tea is what I drink")

    async def failed() -> bool:
        lanes = (await memstream.call("GET", f"/{pipeline}/lanes"))["lanes"]
        return bool(lanes) and lanes[0]["attempts"] == 1

    await until(failed)
    assert reason in (await lane(memstream, pipeline))["reason"]
    assert (await usage(memstream))[outcome] >= 1

    model.behave(scripted.valid)
    await memstream.call("POST", f"/{pipeline}/lanes:redrive", json={"actor_id": "ana"})
    await memstream.settled(pipeline)
    assert list(await memstream.memories("ana")) == ["/notes/tea-is-what-i-drink.md"]


@pytest.mark.parametrize("code", [401, 429, 402, 500, 503])
async def test_a_failing_provider_costs_no_attempt_and_is_not_asked_by_every_lane(
    memstream: System, model: ScriptedModel, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = CapturingLogger()
    monkeypatch.setattr(llm, "log", log)
    model.behave(scripted.status(code, **{"retry-after": "3600"}))
    pipeline = await memstream.pipeline()
    for actor in ("ana", "bo", "cy"):
        await memstream.say(actor, f"s-{actor}", "Tea is what I drink")

    async def are_waiting(count: int) -> bool:
        lanes = (await memstream.call("GET", f"/{pipeline}/lanes", params={"page_size": 100}))["lanes"]
        return len(lanes) == count and all(lane["state"] == "waiting_provider" for lane in lanes)

    await until(partial(are_waiting, 3))
    lanes = (await memstream.call("GET", f"/{pipeline}/lanes"))["lanes"]
    assert {lane["attempts"] for lane in lanes} == {0}
    assert {lane["reason"] for lane in lanes} == {f"the model's endpoint answered {code}"}
    assert model.calls <= 3, "calls that were under way when the breaker opened, and none after"
    assert memstream.metric("distiller", "memstream_model_breaker_open", model="scripted") == 1

    calls = model.calls
    for number in range(20):
        await memstream.say(f"late-{number}", f"s-late-{number}", "Tea is what I drink")
    await until(partial(are_waiting, 23))
    await memstream.call("POST", f"/{pipeline}/lanes:redrive")
    await until(partial(are_waiting, 23))
    lanes = (await memstream.call("GET", f"/{pipeline}/lanes", params={"page_size": 100}))["lanes"]
    assert {lane["reason"] for lane in lanes} == {f"the model's endpoint answered {code}"}
    assert model.calls == calls
    told = {"model": "scripted", "reason": f"the model's endpoint answered {code}"}
    assert log.calls == [("warning", ("model_endpoint_fails",), told)]


async def test_when_the_provider_answers_again_all_its_lanes_go_on_without_a_redrive(
    memstream: System, model: ScriptedModel
) -> None:
    model.behave(scripted.status(503, **{"retry-after": "1"}), scripted.valid)
    pipeline = await memstream.pipeline()
    for actor in ("ana", "bo", "cy"):
        await memstream.say(actor, f"s-{actor}", "Tea is what I drink")

    await memstream.settled(pipeline)

    assert all([await memstream.memories(actor) for actor in ("ana", "bo", "cy")])
    assert memstream.metric("distiller", "memstream_model_breaker_open", model="scripted") == 0


async def test_an_endpoint_that_has_answered_another_replica_again_is_not_waited_for(
    memstream: System, model: ScriptedModel
) -> None:
    model.behave(scripted.status(429, **{"retry-after": "3600"}), scripted.valid)
    pipeline = await memstream.pipeline()
    await memstream.say("ana", "s1", "Tea is what I drink")

    async def is_waiting() -> bool:
        lanes = (await memstream.call("GET", f"/{pipeline}/lanes"))["lanes"]
        return [lane["state"] for lane in lanes] == ["waiting_provider"]

    await until(is_waiting)

    await Lanes(chassis_of(memstream.apps["distiller"]).database).wake_provider(model.url)

    await memstream.settled(pipeline)
    assert await memstream.memories("ana")


async def test_an_answer_cut_at_the_output_limit_is_asked_again_in_smaller_portions(
    memstream: System, model: ScriptedModel
) -> None:
    model.behave(scripted.truncated_above(20))
    pipeline = await memstream.pipeline()

    await memstream.say("ana", "s1", *(f"Fact number {n} holds" for n in range(40)))
    await memstream.settled(pipeline)

    assert len(await memstream.memories("ana")) == 40
    assert model.calls <= 5
    assert await usage(memstream) == {"truncated": 1, "answered": model.calls - 1}
    assert len({str(request["messages"]) for request in model.requests}) == model.calls, "no identical request twice"


async def test_an_answer_that_was_paid_for_is_used_by_whoever_comes_after(
    memstream: System, model: ScriptedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    emit = Batches.emit
    interrupted: list[bool] = []

    async def interrupt_once(self: Batches, *args: Any, **kwargs: Any) -> bool:
        if not interrupted:
            interrupted.append(True)
            raise Unavailable
        return await emit(self, *args, **kwargs)

    monkeypatch.setattr(Batches, "emit", interrupt_once)
    pipeline = await memstream.pipeline()

    await memstream.say("ana", "s1", "Tea is what I drink")
    await until(lambda: interrupted)
    await memstream.say("ana", "s2", "Rain or shine")
    await memstream.settled(pipeline)

    assert len(await memstream.memories("ana")) == 2
    assert [len(scripted.asked_lines(request)) for request in model.requests] == [1, 1], "no line was asked twice"


@pytest.mark.parametrize("away", ["before", "at commit", "after commit"])
@pytest.mark.parametrize(("behaviour", "outcome"), [(scripted.valid, "answered"), (scripted.refused, "refused")])
@pytest.mark.parametrize("by", ["lane", "extraction"])
async def test_what_was_paid_for_outlasts_a_short_outage_and_is_booked(
    memstream: System,
    model: ScriptedModel,
    monkeypatch: pytest.MonkeyPatch,
    away: str,
    behaviour: Behaviour,
    outcome: str,
    by: str,
) -> None:
    book = Usage.book
    tries: list[str] = []

    async def away_at_first(self: Usage, tx: Tx, *args: Any) -> None:
        tries.append(away)
        if len(tries) > 1:
            await book(self, tx, *args)
            return
        if away == "before":
            raise Unavailable
        if away == "after commit":
            await book(self, tx, *args)
            await tx.execute("commit")
        raise OutcomeUnknown

    monkeypatch.setattr(Usage, "book", away_at_first)
    model.behave(behaviour)
    pipeline = await memstream.pipeline(trigger="CONTINUOUS" if by == "lane" else "MANUAL_ONLY")
    await memstream.say("ana", "s1", "Tea is what I drink")

    if by == "extraction":
        await memstream.client.post(f"{BASE}{EXTRACT}", json={"memory_store": "facts"})
    elif outcome == "answered":
        await memstream.settled(pipeline)
    else:
        await until(lambda: usage(memstream))

    # A lane knows by its question what is booked; an extraction has none, and books rather once too often than never.
    booked = 2 if (by, away) == ("extraction", "after commit") else 1
    assert await usage(memstream) == {outcome: booked}
    assert model.calls == 1
    assert len(await memstream.memories("ana")) == (outcome == "answered")


@pytest.mark.parametrize(("behaviour", "outcome"), [(scripted.valid, "answered"), (scripted.refused, "refused")])
async def test_an_extraction_that_is_given_up_while_it_books_is_booked(
    memstream: System, model: ScriptedModel, monkeypatch: pytest.MonkeyPatch, behaviour: Behaviour, outcome: str
) -> None:
    book = Usage.book
    is_booking, go_on = asyncio.Event(), asyncio.Event()

    async def held(self: Usage, tx: Tx, *args: Any) -> None:
        is_booking.set()
        await go_on.wait()
        await book(self, tx, *args)

    monkeypatch.setattr(Usage, "book", held)
    model.behave(behaviour)
    await memstream.pipeline(trigger="MANUAL_ONLY")
    await memstream.say("ana", "s1", "Tea is what I drink")
    extracting = asyncio.ensure_future(memstream.client.post(f"{BASE}{EXTRACT}", json={"memory_store": "facts"}))
    await is_booking.wait()

    extracting.cancel()
    await asyncio.sleep(0)
    go_on.set()
    await asyncio.wait([extracting])

    assert extracting.cancelled()
    assert await usage(memstream) == {outcome: 1}


@pytest.mark.parametrize(("behaviour", "outcome"), [(scripted.valid, "answered"), (scripted.refused, "refused")])
async def test_a_call_of_a_lane_that_is_lost_while_it_is_booked_is_booked(
    opened: Open, model: ScriptedModel, monkeypatch: pytest.MonkeyPatch, behaviour: Behaviour, outcome: str
) -> None:
    book, renew = Usage.book, Leases.renew
    is_booking, is_lost = asyncio.Event(), asyncio.Event()

    async def held(self: Usage, tx: Tx, *args: Any) -> None:
        is_booking.set()
        await is_lost.wait()
        await book(self, tx, *args)

    async def lost_while_it_books(self: Leases, *args: Any) -> bool:
        if not is_booking.is_set() or is_lost.is_set():
            return await renew(self, *args)
        asyncio.get_running_loop().call_later(0.1, is_lost.set)  # once the worker has heard of it
        return False

    monkeypatch.setattr(Usage, "book", held)
    monkeypatch.setattr(Leases, "renew", lost_while_it_books)
    model.behave(behaviour, scripted.valid)
    async with opened(lease_s=0.6) as memstream:
        pipeline = await memstream.pipeline()
        await memstream.say("ana", "s1", "Tea is what I drink")
        await memstream.settled(pipeline)

        assert is_lost.is_set()
        assert await usage(memstream) == Counter([outcome] + ["answered"] * (outcome == "refused"))
        assert model.calls == 1 + (outcome == "refused")


async def test_a_call_that_is_given_up_is_booked_and_its_lane_given_back(
    opened: Open, model: ScriptedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    renew = Leases.renew
    lost: list[Lease] = []

    async def lost_once(self: Leases, lease: Lease, lease_s: float) -> bool:
        if lost or not model.calls:
            return await renew(self, lease, lease_s)
        lost.append(lease)
        return False

    monkeypatch.setattr(Leases, "renew", lost_once)
    model.behave(scripted.hang, scripted.valid)
    async with opened(lease_s=0.6) as memstream:
        pipeline = await memstream.pipeline()
        await memstream.say("ana", "s1", "Tea is what I drink")
        await memstream.settled(pipeline)

        assert await usage(memstream) == {"given_up": 1, "answered": 1}
        assert model.calls == 2


async def test_what_is_left_when_a_stopping_service_has_waited_is_booked_and_its_lane_given_back(
    opened: Open, model: ScriptedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(DistillerSettings, "drain_s", 0.3)
    model.behave(scripted.hang)
    async with opened(lanes_per_process=0) as memstream:
        pipeline = await memstream.pipeline()
        idle = chassis_of(memstream.apps["distiller"]).settings
        assert isinstance(idle, DistillerSettings)
        stopping = distiller.build(idle.model_copy(update={"lanes_per_process": 1}), models=model.models())

        async with running(stopping, memstream.keys):
            await memstream.say("ana", "s1", "Tea is what I drink")
            await until(lambda: model.calls == 1)

        assert await usage(memstream) == {"given_up": 1}
        assert (await lane(memstream, pipeline))["state"] == "due", "long before its lease would have ended"


async def test_a_spent_daily_budget_makes_work_wait_not_vanish(memstream: System, model: ScriptedModel) -> None:
    pipeline = await memstream.pipeline(daily_token_budget=100)
    await memstream.say("ana", "s1", "Tea is what I drink")
    await memstream.settled(pipeline)

    await memstream.say("ana", "s2", "Rain or shine")

    async def waits() -> bool:
        return "daily_token_budget" in ((await lane(memstream, pipeline))["reason"] or "")

    await until(waits)
    assert (await lane(memstream, pipeline))["attempts"] == 0
    assert model.calls == 1
    redrive = f"/{pipeline}/lanes:redrive"
    assert await memstream.call("POST", redrive) == {"redriven": 1, "over_budget": True}
    refused = await memstream.client.post(f"{BASE}{redrive}", json={"actor_id": "nobody"})
    assert (refused.status_code, refused.json()["error_code"]) == (404, "NOT_FOUND")
    await memstream.call(
        "PATCH", f"/{pipeline}?update_mask=dreamer_policy.daily_token_budget", json={"dreamer_policy": {}}
    )
    await memstream.settled(pipeline)
    assert len(await memstream.memories("ana")) == 2


def form(request: dict[str, Any]) -> str | None:
    """How the shape of the answer is asked for; and it is said in words but for a server that takes a schema."""
    asked: str | None = request.get("response_format", {}).get("type")
    says_it = "JSON schema" in request["messages"][0]["content"] and '"changes"' in request["messages"][0]["content"]
    assert says_it == (asked != "json_schema")
    return asked


@pytest.mark.parametrize("code", [400, 422, 501])
@pytest.mark.parametrize("forms", [("json_schema", "json_object"), ("json_schema", "json_object", None)])
async def test_a_form_of_answer_that_a_server_lacks_is_asked_for_once(
    memstream: System, model: ScriptedModel, code: int, forms: tuple[str | None, ...]
) -> None:
    model.behave(*[scripted.status(code)] * (len(forms) - 1), scripted.valid)
    pipeline = await memstream.pipeline()

    await memstream.say("ana", "s1", "Tea is what I drink")
    await memstream.settled(pipeline)
    await memstream.say("ana", "s1", "Rain or shine")
    await memstream.settled(pipeline)

    assert [form(request) for request in model.requests] == [*forms, forms[-1]]
    assert len(await memstream.memories("ana")) == 2
    assert await usage(memstream) == {f"http_{code}": len(forms) - 1, "answered": 2}


async def test_a_server_that_does_not_heed_the_schema_is_told_it_in_words(
    memstream: System, model: ScriptedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lanes, "lane_delay_s", lambda _: 0.0)
    model.behave(scripted.prose, scripted.valid)
    pipeline = await memstream.pipeline()

    await memstream.say("ana", "s1", "Tea is what I drink")
    await memstream.settled(pipeline)

    assert [form(request) for request in model.requests] == ["json_schema", "json_object"]
    assert list(await memstream.memories("ana")) == ["/notes/tea-is-what-i-drink.md"]


async def test_an_endpoint_that_fails_an_extraction_is_known_to_fail_until_it_answers(
    memstream: System, model: ScriptedModel
) -> None:
    model.behave(scripted.status(503, **{"retry-after": "0"}), scripted.valid)
    await memstream.pipeline(trigger="MANUAL_ONLY")
    await memstream.say("ana", "s1", "Tea is what I drink")

    for status, is_open in ((503, 1), (200, 0)):
        answer = await memstream.client.post(f"{BASE}{EXTRACT}", json={"memory_store": "facts"})
        assert answer.status_code == status, answer.text
        assert memstream.metric("distiller", "memstream_model_breaker_open", model="scripted") == is_open


async def test_an_extraction_that_has_paid_is_not_one_to_be_sent_again_blindly(
    opened: Open, model: ScriptedModel
) -> None:
    model.behave(scripted.valid, scripted.status(503))
    async with opened(batch_lines=1) as memstream:
        await memstream.pipeline(trigger="MANUAL_ONLY")
        await memstream.say("ana", "s1", "Tea is what I drink", "Rain or shine")

        answer = await memstream.client.post(f"{BASE}{EXTRACT}", json={"memory_store": "facts", "dry_run": True})

        assert (answer.status_code, answer.json()["error_code"]) == (500, "INTERNAL_ERROR")
        assert "repeating is safe" in answer.json()["message"]


async def test_nor_is_one_whose_call_could_not_be_booked(memstream: System, monkeypatch: pytest.MonkeyPatch) -> None:
    async def away(*_: Any) -> None:
        raise Unavailable

    monkeypatch.setattr(Usage, "book", away)
    monkeypatch.setattr(paid, "PAUSES_S", ())
    await memstream.pipeline(trigger="MANUAL_ONLY")
    await memstream.say("ana", "s1", "Tea is what I drink")

    answer = await memstream.client.post(f"{BASE}{EXTRACT}", json={"memory_store": "facts"})

    assert (answer.status_code, answer.json()["error_code"]) == (500, "INTERNAL_ERROR")
    assert "the database cannot be reached" in answer.json()["message"]


async def test_an_endpoint_that_nobody_answers_at_is_the_providers_failure(
    postgres: PostgresServer, nats: NatsServer, model: ScriptedModel
) -> None:
    models = model.models(openai_base_url=f"http://127.0.0.1:{free_port()}/v1")
    async with system(postgres, nats, models=models) as memstream:
        pipeline = await memstream.pipeline()
        await memstream.say("ana", "s1", "Tea is what I drink")

        async def waiting() -> bool:
            lanes = (await memstream.call("GET", f"/{pipeline}/lanes"))["lanes"]
            return bool(lanes) and lanes[0]["state"] == "waiting_provider"

        await until(waiting)
        assert (await lane(memstream, pipeline))["attempts"] == 0
        assert await usage(memstream) == {"unreachable": 1}


async def test_every_token_is_booked_on_its_workspace_also_of_extractions_and_of_deleted_pipelines(
    memstream: System, model: ScriptedModel
) -> None:
    boss = memstream.keys.header("boss@example.com", admin=True)
    pipeline = await memstream.pipeline()
    await memstream.say("ana", "s1", "Tea is what I drink")
    await memstream.settled(pipeline)
    model.behave(scripted.refused, scripted.valid)
    for status in (500, 200):
        answer = await memstream.client.post(f"{BASE}{EXTRACT}", json={"memory_store": "facts"})
        assert answer.status_code == status, answer.text
    await memstream.call("DELETE", f"/{pipeline}")

    answer = await memstream.client.get("/ops/distiller/usage", headers=boss)

    booked = {row["outcome"]: row for row in answer.json()["usage"]}
    assert {outcome: row["calls"] for outcome, row in booked.items()} == {"answered": 2, "refused": 1}
    assert sum(row["prompt_tokens"] + row["completion_tokens"] for row in booked.values()) == model.tokens
    assert "cost" not in booked["answered"], "this model has no price"
    for outcome, row in booked.items():
        counted = memstream.metric("distiller", "memstream_model_calls_total", model="scripted", outcome=outcome)
        assert counted == row["calls"]
    tokens = [
        memstream.metric("distiller", "memstream_model_tokens_total", model="scripted", kind=kind)
        for kind in ("prompt", "completion")
    ]
    assert sum(tokens) == model.tokens


async def test_an_extraction_ends_at_its_deadline_however_many_portions_are_left(
    postgres: PostgresServer, nats: NatsServer, model: ScriptedModel
) -> None:
    model.behave(scripted.valid, scripted.hang)
    settings = {"extraction_timeout_s": 1.0, "batch_lines": 2}
    async with system(postgres, nats, models=model.models(), distiller_settings=settings) as memstream:
        await memstream.pipeline(trigger="MANUAL_ONLY")
        await memstream.say("ana", "s1", *(f"Fact number {n} holds" for n in range(6)))

        answer = await memstream.client.post(f"{BASE}{EXTRACT}", json={"memory_store": "facts"})

        assert (answer.status_code, answer.json()["error_code"]) == (500, "INTERNAL_ERROR")
        assert "longer than 1 s" in answer.json()["message"]
        assert len(await memstream.memories("ana")) == 2
        assert await usage(memstream) == {"answered": 1, "given_up": 1}


async def test_a_model_is_used_by_any_of_its_names_and_only_by_whom_it_is_open_to(
    postgres: PostgresServer, nats: NatsServer, model: ScriptedModel, tmp_path: Path
) -> None:
    file = tmp_path / "models.json"
    entry = {"name": "small", "aliases": ["system.ai.claude-sonnet-5"], "base_url": model.url, "model": "llm-1"}

    def write(*users: str) -> None:
        priced = entry | {"users": users, "price": {"prompt": 2.0, "completion": 10.0}}
        file.write_text(json.dumps([{"name": "words", "dimensions": 8}, priced]))

    write(USER)
    models = Models.of(DistillerSettings(database_url=SecretStr("postgresql://unused"), models_file=file))
    async with system(postgres, nats, models=models) as memstream:
        pipeline = await memstream.pipeline(model="system.ai.claude-sonnet-5")
        await memstream.say("ana", "s1", "Tea is what I drink")
        await memstream.settled(pipeline)
        assert model.requests[0]["model"] == "llm-1"
        [row] = (await memstream.call("GET", f"/{pipeline}/usage"))["usage"]
        assert row["cost"] == pytest.approx((100 * 2 + 10 * 10) / 1e6)

        write("friend@example.com")
        await models.read_again()
        await memstream.say("ana", "s1", "Rain or shine")

        async def refused() -> bool:
            return "PERMISSION_DENIED" in ((await lane(memstream, pipeline))["reason"] or "")

        await until(refused)
        run = await memstream.call("POST", f"/{pipeline}/run", json={})

        async def failed() -> bool:
            return bool((await memstream.call("GET", f"/{run['name']}"))["state"] == "FAILED")

        await until(failed)
        assert "may not use the model" in (await memstream.call("GET", f"/{run['name']}"))["error"]
        for path, body in (
            ("/memory-pipelines", {"session_store": "chats", "memory_store": "facts"}),
            (EXTRACT, {"memory_store": "facts"}),
        ):
            answer = await memstream.client.post(f"{BASE}{path}", json=body)
            assert (answer.status_code, answer.json()["error_code"]) == (403, "PERMISSION_DENIED"), answer.text
        file.write_text("nonsense")
        await models.read_again()
        assert not models.may_be_used_by(USER, "small"), "an unreadable file changes nothing"
    assert model.calls == 1


async def test_a_batch_names_the_run_in_which_it_was_distilled(memstream: System, model: ScriptedModel) -> None:
    pipeline = await memstream.pipeline(trigger="MANUAL_ONLY")
    await memstream.say("ana", "s1", "Tea is what I drink")
    run = await memstream.call("POST", f"/{pipeline}/run", json={})
    await memstream.settled(pipeline)

    batches = await chassis_of(memstream.apps["distiller"]).database.fetch("select event from batches")
    versions = await chassis_of(memstream.apps["memory"]).database.fetch("select run_id from entry_versions")

    run_id = int(run["name"].rpartition("/")[2])
    assert [json.loads(row["event"])["run_id"] for row in batches] == [run_id]
    assert [row["run_id"] for row in versions] == [run_id]
