"""A configured model: what its answers and its failures do to a lane, seen from outside."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from starlette.responses import HTMLResponse

from libs.chassis.errors import Unavailable
from services.distiller.store import Batches
from tests.support import scripted_model as scripted
from tests.support.scripted_model import Behaviour, ScriptedModel, scripted_model
from tests.support.servers import NatsServer, PostgresServer
from tests.support.service import chassis_of, until
from tests.support.system import System, system


@pytest.fixture
async def model() -> AsyncIterator[ScriptedModel]:
    async with scripted_model() as served:
        yield served


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


@pytest.mark.parametrize(
    ("behaviour", "reason", "outcome"),
    [
        (scripted.prose, "not JSON", "answered"),
        (scripted.wrong_shape, "wrong shape", "answered"),
        (scripted.foreign_evidence, "foreign evidence", "answered"),
        (scripted.refused, "refused", "refused"),
        (scripted.hang, "deadline", "deadline"),
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


@pytest.mark.parametrize("code", [429, 402, 500, 503])
async def test_a_failing_provider_costs_no_attempt_and_is_not_asked_by_every_lane(
    memstream: System, model: ScriptedModel, code: int
) -> None:
    model.behave(scripted.status(code, **{"retry-after": "3600"}))
    pipeline = await memstream.pipeline()
    for actor in ("ana", "bo", "cy"):
        await memstream.say(actor, f"s-{actor}", "Tea is what I drink")

    async def waiting() -> bool:
        lanes = (await memstream.call("GET", f"/{pipeline}/lanes"))["lanes"]
        return len(lanes) == 3 and all(lane["state"] == "waiting_provider" for lane in lanes)

    await until(waiting)
    lanes = (await memstream.call("GET", f"/{pipeline}/lanes"))["lanes"]
    assert {lane["attempts"] for lane in lanes} == {0}
    assert model.calls <= 3, "calls that were under way when the breaker opened, and none after"


async def test_when_the_provider_answers_again_all_its_lanes_go_on_without_a_redrive(
    memstream: System, model: ScriptedModel
) -> None:
    model.behave(scripted.status(503, **{"retry-after": "1"}), scripted.valid)
    pipeline = await memstream.pipeline()
    for actor in ("ana", "bo", "cy"):
        await memstream.say(actor, f"s-{actor}", "Tea is what I drink")

    await memstream.settled(pipeline)

    assert all([await memstream.memories(actor) for actor in ("ana", "bo", "cy")])


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
    await memstream.call(
        "PATCH", f"/{pipeline}?update_mask=dreamer_policy.daily_token_budget", json={"dreamer_policy": {}}
    )
    await memstream.settled(pipeline)
    assert len(await memstream.memories("ana")) == 2


async def test_a_server_without_json_schema_is_asked_for_plain_json(model: ScriptedModel) -> None:
    model.behave(scripted.status(400), scripted.valid)
    models = model.models()
    asked = models.get("scripted")
    assert asked is not None

    await asked.ask([], [], None)
    await models.close()

    schema, plain = model.requests
    assert [request["response_format"]["type"] for request in (schema, plain)] == ["json_schema", "json_object"]
    assert '"changes"' in plain["messages"][0]["content"], "the shape of the answer is said in words"
