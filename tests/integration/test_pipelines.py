"""Pipelines over HTTP: who may see and change one, and what is refused with which words."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any
from uuid import UUID

import asyncpg
import pytest

from libs.contracts.ids import uuid7
from libs.contracts.routes import BASE
from services.distiller import access
from tests.support.servers import NatsServer, PostgresServer
from tests.support.service import chassis_of, until
from tests.support.system import System, system

OWNER, FRIEND, STRANGER = "ana@example.com", "friend@example.com", "stranger@example.com"


@pytest.fixture(scope="module")
async def memstream(postgres: PostgresServer, nats: NatsServer) -> AsyncIterator[System]:
    async with system(postgres, nats) as running:
        await running.call("POST", "/session-stores?session_store_id=chats", json={})
        await running.call("POST", "/memory-stores?managed_memory_store_id=facts", json={})
        yield running


def body(**fields: Any) -> dict[str, Any]:
    return {"session_store": "session-stores/chats", "memory_store": "memory-stores/facts"} | fields


@pytest.fixture
async def pipeline(memstream: System) -> AsyncIterator[str]:
    made = await memstream.call("POST", "/memory-pipelines", json=body(display_name="Facts"))
    yield made["name"]
    await memstream.client.delete(f"{BASE}/{made['name']}")


async def test_a_pipeline_has_the_published_shape(memstream: System, pipeline: str) -> None:
    shown = await memstream.call("GET", f"/{pipeline}")

    assert shown["name"] == pipeline
    assert pipeline.startswith("memory-pipelines/")
    assert (shown["session_store"], shown["memory_store"]) == ("session-stores/chats", "memory-stores/facts")
    assert shown["display_name"] == "Facts"
    assert shown["dreamer_policy"]["trigger"] == "MANUAL_ONLY"
    assert shown["dreamer_policy"]["enabled"] is False
    assert {"etag", "create_time", "update_time"} <= shown.keys()
    assert "error" not in shown


async def test_a_pair_of_stores_has_one_pipeline_and_the_refusal_names_it(memstream: System, pipeline: str) -> None:
    answer = await memstream.client.post(f"{BASE}/memory-pipelines", json=body())

    assert (answer.status_code, answer.json()["error_code"]) == (409, "ALREADY_EXISTS")
    assert pipeline in answer.json()["message"]


@pytest.mark.parametrize(
    ("fields", "code", "says"),
    [
        ({"session_store": None}, 400, "session_store"),
        ({"memory_store": "session-stores/facts"}, 400, "memory-stores/"),
        ({"session_store": "nobody"}, 404, "nobody"),
        ({"memory_store": "nobody"}, 404, "nobody"),
        ({"dreamer_policy": {"trigger": "SOMETIMES"}}, 400, "CONTINUOUS"),
        ({"dreamer_policy": {"model": "no.such.model"}}, 400, "builtin.extractive"),
        ({"dreamer_policy": {"quiet_period_s": -1}}, 400, "quiet_period_s"),
        ({"dreamer_policy": {"quiet_period_s": 9, "max_wait_s": 3}}, 400, "max_wait_s"),
        ({"dreamer_policy": {"instructions": "x" * 20_000}}, 400, "instructions"),
        ({"display_name": "nul \x00"}, 400, "NUL"),
    ],
)
async def test_a_bad_pipeline_is_refused_with_what_is_allowed(
    memstream: System, fields: dict[str, Any], code: int, says: str
) -> None:
    answer = await memstream.client.post(f"{BASE}/memory-pipelines", json=body(**fields))

    assert answer.status_code == code, answer.text
    assert says in answer.json()["message"]
    assert (await memstream.call("GET", "/memory-pipelines"))["memory_pipelines"] == []


@pytest.mark.parametrize("content", [b"", b"nonsense", b"[]", b'"x"', b"{" * 2000, b'{"a": "\xff"}'])
async def test_a_body_that_is_no_object_is_400_and_never_500(memstream: System, content: bytes) -> None:
    answer = await memstream.client.post(
        f"{BASE}/memory-pipelines", content=content, headers={"content-type": "application/json"}
    )

    assert (answer.status_code, answer.json()["error_code"]) == (400, "INVALID_PARAMETER_VALUE")


async def test_only_leaves_that_the_mask_names_change(memstream: System, pipeline: str) -> None:
    changed = await memstream.call(
        "PATCH",
        f"/{pipeline}?update_mask=dreamer_policy.instructions,dreamer_policy.trigger",
        json={"display_name": "ignored", "dreamer_policy": {"instructions": "Be brief.", "trigger": "CONTINUOUS"}},
    )

    assert changed["display_name"] == "Facts"
    assert changed["dreamer_policy"]["instructions"] == "Be brief."
    assert changed["dreamer_policy"]["trigger"] == "CONTINUOUS"
    cleared = await memstream.call("PATCH", f"/{pipeline}?update_mask=dreamer_policy.instructions", json={})
    assert "instructions" not in cleared["dreamer_policy"]


@pytest.mark.parametrize("trigger", ["CONTINUOUS", "SCHEDULED"])
@pytest.mark.parametrize("pause", [{"enabled": False}, {"trigger": "MANUAL_ONLY"}], ids=["enabled", "trigger"])
async def test_a_paused_pipeline_is_resumed_as_what_it_was(
    memstream: System, pipeline: str, trigger: str, pause: dict[str, Any]
) -> None:
    async def changed(**policy: Any) -> Any:
        mask = ",".join(f"dreamer_policy.{leaf}" for leaf in policy)
        answer = await memstream.call("PATCH", f"/{pipeline}?update_mask={mask}", json={"dreamer_policy": policy})
        return answer["dreamer_policy"]["trigger"], answer["dreamer_policy"]["enabled"]

    await changed(trigger=trigger)

    assert await changed(**pause) == ("MANUAL_ONLY", False)
    assert await changed(instructions="Be brief.") == ("MANUAL_ONLY", False)
    assert await changed(**pause) == ("MANUAL_ONLY", False)
    assert await changed(enabled=True) == (trigger, True)
    assert await changed(enabled=True) == (trigger, True)


async def test_a_pipeline_that_never_ran_by_itself_is_resumed_as_scheduled(memstream: System, pipeline: str) -> None:
    path = f"/{pipeline}?update_mask=dreamer_policy.enabled"

    resumed = await memstream.call("PATCH", path, json={"dreamer_policy": {"enabled": True}})

    assert resumed["dreamer_policy"]["trigger"] == "SCHEDULED"


async def test_a_mask_names_the_trigger_or_whether_it_is_enabled(memstream: System, pipeline: str) -> None:
    answer = await memstream.client.patch(
        f"{BASE}/{pipeline}?update_mask=dreamer_policy.enabled,dreamer_policy.trigger",
        json={"dreamer_policy": {"enabled": True, "trigger": "MANUAL_ONLY"}},
    )

    assert (answer.status_code, answer.json()["error_code"]) == (400, "INVALID_PARAMETER_VALUE")


@pytest.mark.parametrize("body", [{}, {"dreamer_policy": {}}, {"dreamer_policy": {"enabled": None}}])
async def test_a_mask_that_names_enabled_needs_its_value(
    memstream: System, pipeline: str, body: dict[str, Any]
) -> None:
    await memstream.call(
        "PATCH", f"/{pipeline}?update_mask=dreamer_policy.trigger", json={"dreamer_policy": {"trigger": "CONTINUOUS"}}
    )

    answer = await memstream.client.patch(f"{BASE}/{pipeline}?update_mask=dreamer_policy.enabled", json=body)

    assert (answer.status_code, answer.json()["error_code"]) == (400, "INVALID_PARAMETER_VALUE")
    assert "dreamer_policy.enabled" in answer.json()["message"]
    assert (await memstream.call("GET", f"/{pipeline}"))["dreamer_policy"]["trigger"] == "CONTINUOUS"


@pytest.mark.parametrize("mask", ["", "name", "dreamer_policy", "display_name,session_store"])
async def test_a_mask_outside_the_rules_is_refused(memstream: System, pipeline: str, mask: str) -> None:
    answer = await memstream.client.patch(f"{BASE}/{pipeline}", params={"update_mask": mask}, json={})

    assert answer.status_code == 400
    assert "dreamer_policy.trigger" in answer.json()["message"]


async def test_a_stale_etag_is_aborted(memstream: System, pipeline: str) -> None:
    etag = (await memstream.call("GET", f"/{pipeline}"))["etag"]
    path = f"{BASE}/{pipeline}?update_mask=display_name"
    assert (await memstream.client.patch(path, json={"etag": etag, "display_name": "One"})).status_code == 200

    answer = await memstream.client.patch(path, json={"etag": etag, "display_name": "Two"})

    assert (answer.status_code, answer.json()["error_code"]) == (409, "ABORTED")


async def test_a_repeat_with_the_same_key_gets_the_first_pipeline(memstream: System) -> None:
    headers = {"Idempotency-Key": "make-1"}
    first = await memstream.client.post(f"{BASE}/memory-pipelines", json=body(), headers=headers)
    again = await memstream.client.post(f"{BASE}/memory-pipelines", json=body(), headers=headers)
    other = await memstream.client.post(f"{BASE}/memory-pipelines", json=body(display_name="x"), headers=headers)

    assert again.json() == first.json()
    assert again.headers["Idempotent-Replayed"] == "true"
    assert (other.status_code, other.json()["error_code"]) == (409, "ABORTED")
    await memstream.client.delete(f"{BASE}/{first.json()['name']}")


async def test_a_pipeline_that_was_deleted_is_made_again_by_its_key(memstream: System) -> None:
    headers = {"Idempotency-Key": "make-again"}
    first = await memstream.client.post(f"{BASE}/memory-pipelines", json=body(), headers=headers)
    await memstream.client.delete(f"{BASE}/{first.json()['name']}")

    again = await memstream.client.post(f"{BASE}/memory-pipelines", json=body(), headers=headers)

    assert (again.status_code, "Idempotent-Replayed" in again.headers) == (200, False)
    assert again.json()["name"] != first.json()["name"]
    await memstream.client.delete(f"{BASE}/{again.json()['name']}")


async def test_who_may_see_and_manage_a_pipeline(memstream: System, pipeline: str) -> None:
    keys = memstream.keys
    callers = {
        "friend": keys.header(FRIEND),
        "stranger": keys.header(STRANGER),
        "admin": keys.header("boss@example.com", admin=True),
        "foreign": keys.header(OWNER, workspace=2),
        "foreign admin": keys.header(OWNER, workspace=2, admin=True),
    }
    for store in ("session-stores/chats", "memory-stores/facts"):
        await memstream.call(
            "POST",
            f"/{store}/permissions:grant",
            json={"principal": {"principal_type": "USER", "name": FRIEND}, "permission": "READ"},
        )

    async def statuses(method: str, path: str, **request: Any) -> dict[str, int]:
        return {
            name: (await memstream.client.request(method, f"{BASE}/{path}", headers=header, **request)).status_code
            for name, header in callers.items()
        }

    seen = {"friend": 200, "stranger": 403, "admin": 200, "foreign": 404, "foreign admin": 404}
    managed = {"friend": 403, "stranger": 403, "admin": 200, "foreign": 404, "foreign admin": 404}
    assert await statuses("GET", pipeline) == seen
    assert await statuses("GET", f"{pipeline}/runs") == seen
    assert await statuses("GET", f"{pipeline}/lanes") == managed
    assert await statuses("POST", f"{pipeline}/lanes:redrive", json={}) == managed
    assert await statuses("PATCH", f"{pipeline}?update_mask=display_name", json={}) == managed
    listed = await statuses("GET", "memory-pipelines")
    assert set(listed.values()) == {200}
    for name, expected in {"friend": 1, "stranger": 0, "admin": 1, "foreign": 0}.items():
        page = (await memstream.client.get(f"{BASE}/memory-pipelines", headers=callers[name])).json()
        assert len(page["memory_pipelines"]) == expected, name


async def test_without_a_token_nothing_is_told(memstream: System, pipeline: str) -> None:
    for header in ({"Authorization": ""}, {"Authorization": "Bearer nonsense"}):
        answer = await memstream.client.get(f"{BASE}/{pipeline}", headers=header)

        assert (answer.status_code, answer.json()["error_code"]) == (401, "UNAUTHENTICATED")
        assert "detail" not in answer.json()


async def test_a_key_that_met_an_active_run_is_not_kept(memstream: System, pipeline: str) -> None:
    path = f"{BASE}/{pipeline}/run"
    headers = {"Idempotency-Key": "run-1"}
    first = await memstream.client.post(path, json={}, headers={"Idempotency-Key": "run-0"})
    repeated = await memstream.client.post(path, json={}, headers={"Idempotency-Key": "run-0"})
    refused = await memstream.client.post(path, json={}, headers=headers)
    assert repeated.json()["name"] == first.json()["name"]
    assert (refused.status_code, refused.json()["error_code"]) == (409, "ABORTED")

    async def ended() -> bool:
        return bool((await memstream.call("GET", f"/{first.json()['name']}"))["state"] == "SUCCEEDED")

    await until(ended)
    second = await memstream.client.post(path, json={}, headers=headers)

    assert second.status_code == 200
    assert second.json()["name"] != first.json()["name"]


@pytest.mark.parametrize("actor", ["", " ", "x" * 257, "a\nb"], ids=["empty", "blank", "long", "two lines"])
async def test_nobody_is_replayed_whose_id_is_none(memstream: System, pipeline: str, actor: str) -> None:
    answer = await memstream.client.post(f"{BASE}/{pipeline}:replay", json={"actor_id": actor})

    assert (answer.status_code, answer.json()["error_code"]) == (400, "INVALID_PARAMETER_VALUE")
    assert "actor_id" in answer.json()["message"]
    assert await memstream.call("GET", f"/{pipeline}/replays") == {"replays": []}


async def test_a_forged_page_token_and_a_nul_are_refused(memstream: System, pipeline: str) -> None:
    for path in (
        f"memory-pipelines?page_token={'A' * 40}",
        f"{pipeline}/lanes?actor_id=%00",
        f"{pipeline}/lanes?state=x",
    ):
        answer = await memstream.client.get(f"{BASE}/{path}")

        assert (answer.status_code, answer.json()["error_code"]) == (400, "INVALID_PARAMETER_VALUE"), path


async def pages(
    memstream: System, path: str, field: str, headers: dict[str, str] | None = None, **params: Any
) -> list[list[Any]]:
    """Every page of a list, two an answer."""
    found: list[list[Any]] = []
    token = ""
    while True:
        asked = params | {"page_size": 2, "page_token": token}
        page = await memstream.call("GET", path, params=asked, headers=headers)
        found.append(page[field])
        token = page.get("next_page_token", "")
        if not token:
            return found


async def test_runs_are_paged_newest_first_and_a_foreign_token_is_refused(memstream: System, pipeline: str) -> None:
    distiller = chassis_of(memstream.apps["distiller"]).database
    uid = UUID(pipeline.rpartition("/")[2])
    for _ in range(5):
        await distiller.write("insert into runs (pipeline_uid, state, end_time) values ($1, 'SUCCEEDED', now())", uid)

    runs = await pages(memstream, f"/{pipeline}/runs", "pipeline_runs")

    names = [run["name"] for page in runs for run in page]
    numbers = [int(name.removeprefix(f"{pipeline}/runs/")) for name in names]
    assert list(map(len, runs)) == [2, 2, 1]
    assert numbers == sorted(set(numbers), reverse=True)
    assert len(numbers) == 5
    answer = await memstream.client.get(f"{BASE}/{pipeline}/runs", params={"page_token": "nonsense"})
    assert answer.status_code == 400

    for wrong in ("0x1", "99999999999999999999", str(numbers[0] + 1000)):
        assert (await memstream.client.get(f"{BASE}/{pipeline}/runs/{wrong}")).status_code == 404


async def test_lanes_are_paged_by_actor_within_what_is_asked_for(memstream: System, pipeline: str) -> None:
    distiller = chassis_of(memstream.apps["distiller"]).database
    await distiller.write(
        "insert into lanes (pipeline_uid, actor_id, workspace_id, marks, due_at, parked_at, reason)"
        " select $1, 'a' || n, 1, 1, now() + interval '1 hour', case when n % 2 = 0 then now() end, 'not JSON'"
        " from generate_series(5, 1, -1) n",
        UUID(pipeline.rpartition("/")[2]),
    )

    asked: dict[str, dict[str, Any]] = {
        "all": {},
        "due": {"state": "due"},
        "a4": {"state": "parked", "actor_id": "a4"},
    }

    found = {name: await pages(memstream, f"/{pipeline}/lanes", "lanes", **of) for name, of in asked.items()}

    actors = {name: [[lane["actor_id"] for lane in page] for page in of] for name, of in found.items()}
    assert actors == {"all": [["a1", "a2"], ["a3", "a4"], ["a5"]], "due": [["a1", "a3"], ["a5"]], "a4": [["a4"]]}


async def test_pipelines_are_paged_oldest_first_and_what_is_not_seen_leaves_no_gap(memstream: System) -> None:
    friend = {"principal": {"principal_type": "USER", "name": FRIEND}, "permission": "READ"}
    made = []
    for number in range(4):
        name = await memstream.pipeline(f"chats{number}", f"facts{number}", trigger="MANUAL_ONLY")
        made.append(name)
        if number != 1:
            for store in (f"session-stores/chats{number}", f"memory-stores/facts{number}"):
                await memstream.call("POST", f"/{store}/permissions:grant", json=friend)

    async def names(headers: dict[str, str] | None = None) -> list[list[str]]:
        found = await pages(memstream, "/memory-pipelines", "memory_pipelines", headers)
        return [[each["name"] for each in page] for page in found]

    try:
        assert await names() == [made[:2], made[2:]]
        assert await names(memstream.keys.header(FRIEND)) == [made[:1], made[2:]]
    finally:
        for name in made:
            await memstream.call("DELETE", f"/{name}")


async def test_usage_is_of_the_days_that_are_asked_for_both_ends_included(memstream: System, pipeline: str) -> None:
    distiller = chassis_of(memstream.apps["distiller"]).database
    await distiller.write(
        "insert into usage (pipeline_uid, day, model, outcome, workspace_id, calls, prompt_tokens, completion_tokens)"
        " select $1, '2026-03-01'::date + n, 'small', 'answered', 1, n + 1, 0, 0 from generate_series(0, 3) n",
        UUID(pipeline.rpartition("/")[2]),
    )
    admin = memstream.keys.header("boss@example.com", admin=True)

    async def calls(**days: str) -> list[list[int]]:
        """The calls of each day, the latest first: of the pipeline, and of its workspace."""
        params = {name.rstrip("_"): f"2026-03-{day}" for name, day in days.items()}
        of_pipeline = await memstream.call("GET", f"/{pipeline}/usage", params=params)
        of_all = (await memstream.client.get("/ops/distiller/usage", params=params, headers=admin)).json()
        return [[row["calls"] for row in usage["usage"]] for usage in (of_pipeline, of_all)]

    assert await calls() == [[4, 3, 2, 1]] * 2
    assert await calls(from_="02", to="03") == [[3, 2]] * 2
    assert await calls(from_="04") == [[4]] * 2
    assert await calls(to="01") == [[1]] * 2
    assert await calls(from_="05") == [[]] * 2


@pytest.mark.parametrize(("trigger", "hours"), [("SCHEDULED", 24), ("CONTINUOUS", None), ("MANUAL_ONLY", None)])
async def test_only_a_pipeline_that_is_scheduled_has_a_next_run(
    memstream: System, trigger: str, hours: int | None
) -> None:
    """About an hour after it is made, about a day after it becomes so; whatever else it becomes ends that."""
    distiller = chassis_of(memstream.apps["distiller"]).database

    async def next_run(pipeline: str) -> float | None:
        """Hours from now."""
        hours = await distiller.fetchval(
            "select extract(epoch from next_run_at - now())::float8 / 3600 from pipelines where pipeline_uid = $1",
            UUID(pipeline.rpartition("/")[2]),
        )
        return None if hours is None else float(hours)

    made = (await memstream.call("POST", "/memory-pipelines", json=body(dreamer_policy={"trigger": "SCHEDULED"})))[
        "name"
    ]
    try:
        assert await next_run(made) == pytest.approx(1, rel=0.1)
        for before in ("SCHEDULED", "MANUAL_ONLY"):
            for each in (before, trigger):
                policy = {"dreamer_policy": {"trigger": each}}
                await memstream.call("PATCH", f"/{made}?update_mask=dreamer_policy.trigger", json=policy)
            if before != trigger:
                assert await next_run(made) == (None if hours is None else pytest.approx(hours, rel=0.1))
    finally:
        await memstream.call("DELETE", f"/{made}")


@pytest.mark.parametrize(
    ("leaf", "value", "state"),
    [
        ("dreamer_policy.model", "builtin.extractive", "settled"),
        ("dreamer_policy.instructions", "Be brief.", "settled"),
        ("dreamer_policy.daily_token_budget", 7, "settled"),
        ("display_name", "Ours", "parked"),
        ("dreamer_policy.max_wait_s", 30, "parked"),
    ],
)
async def test_parked_lanes_are_tried_again_when_what_may_have_parked_them_changes(
    memstream: System, pipeline: str, leaf: str, value: Any, state: str
) -> None:
    distiller = chassis_of(memstream.apps["distiller"]).database
    await distiller.write(
        "insert into lanes (pipeline_uid, actor_id, workspace_id, marks, due_at, parked_at, attempts, reason)"
        " values ($1, 'ana', 1, 1, now() + interval '1 hour', now(), 6, 'not JSON')",
        UUID(pipeline.rpartition("/")[2]),
    )
    name = leaf.rpartition(".")[2]
    changed = {"dreamer_policy": {name: value}} if "." in leaf else {name: value}

    await memstream.call("PATCH", f"/{pipeline}?update_mask={leaf}", json=changed)

    async def is_so() -> bool:
        [lane] = (await memstream.call("GET", f"/{pipeline}/lanes"))["lanes"]
        return bool((lane["state"], lane["attempts"]) == (state, 6 if state == "parked" else 0))

    await until(is_so)


async def test_the_longest_wait_that_is_cleared_is_no_shorter_than_the_quiet_period(
    memstream: System, pipeline: str
) -> None:
    mask = "dreamer_policy.quiet_period_s,dreamer_policy.max_wait_s"

    async def patched(mask: str, **policy: float) -> tuple[float, float]:
        shown = await memstream.call("PATCH", f"/{pipeline}?update_mask={mask}", json={"dreamer_policy": policy})
        return shown["dreamer_policy"]["quiet_period_s"], shown["dreamer_policy"]["max_wait_s"]

    assert await patched(mask, quiet_period_s=60) == (60, 60)
    assert await patched(mask, quiet_period_s=30, max_wait_s=90) == (30, 90)
    assert await patched("dreamer_policy.max_wait_s") == (30, 30)
    assert await patched(mask) == (2, 15)


async def test_a_pipelines_model_is_cleared_or_refused_and_one_that_is_known_no_more_fails_its_run(
    memstream: System, pipeline: str
) -> None:
    async def patched(model: str) -> Any:
        path = f"{BASE}/{pipeline}?update_mask=dreamer_policy.model"
        return await memstream.client.patch(path, json={"dreamer_policy": {"model": model}})

    assert (await patched("builtin.extractive")).json()["dreamer_policy"]["model"] == "builtin.extractive"
    refused = await patched("no.such.model")
    assert (refused.status_code, refused.json()["error_code"]) == (400, "INVALID_PARAMETER_VALUE")
    assert "builtin.extractive" in refused.json()["message"]
    assert (await memstream.call("GET", f"/{pipeline}"))["dreamer_policy"]["model"] == "builtin.extractive"
    assert "model" not in (await patched("")).json()["dreamer_policy"]

    distiller = chassis_of(memstream.apps["distiller"]).database
    uid = UUID(pipeline.rpartition("/")[2])
    await distiller.write("update pipelines set model = 'left.the.settings' where pipeline_uid = $1", uid)
    shown = await memstream.call("GET", f"/{pipeline}")
    run = (await memstream.call("POST", f"/{pipeline}/run", json={}))["name"]

    async def has_failed() -> bool:
        ended = await memstream.call("GET", f"/{run}")
        assert ended["state"] != "SUCCEEDED"
        return bool(ended["state"] == "FAILED" and ended["error"] == shown["error"])

    assert shown["error"].startswith("unknown model 'left.the.settings'; known are builtin.extractive")
    await until(has_failed)


async def test_a_trigger_that_is_not_specified_is_manual(memstream: System, pipeline: str) -> None:
    policy = {"dreamer_policy": {"trigger": "TRIGGER_UNSPECIFIED"}}
    await memstream.call("PATCH", f"/{pipeline}?update_mask=dreamer_policy.trigger", json=body() | policy)
    assert (await memstream.call("GET", f"/{pipeline}"))["dreamer_policy"]["trigger"] == "MANUAL_ONLY"
    await memstream.call("DELETE", f"/{pipeline}")

    made = await memstream.call("POST", "/memory-pipelines", json=body() | policy)

    assert (made["dreamer_policy"]["trigger"], made["dreamer_policy"]["enabled"]) == ("MANUAL_ONLY", False)
    await memstream.call("DELETE", f"/{made['name']}")


async def test_a_streaming_pipeline_stops_when_its_creator_loses_a_right_and_goes_on_with_it(
    memstream: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(access, "BELIEVED_S", 0.0)
    stores = ("session-stores/streamed", "memory-stores/streamed")
    friend = {"principal": {"principal_type": "USER", "name": FRIEND}}
    await memstream.call("POST", "/session-stores?session_store_id=streamed", json={})
    await memstream.call("POST", "/memory-stores?managed_memory_store_id=streamed", json={})
    for store in stores:
        await memstream.call("POST", f"/{store}/permissions:grant", json=friend | {"permission": "WRITE"})
    made = await memstream.call(
        "POST",
        "/memory-pipelines",
        json=dict(zip(("session_store", "memory_store"), stores, strict=True))
        | {"dreamer_policy": {"trigger": "CONTINUOUS", "quiet_period_s": 0}},
        headers=memstream.keys.header(FRIEND),
    )
    await memstream.say("ana", "s1", "I am allergic to peanuts.", chats="streamed")
    await memstream.settled(made["name"], "streamed")
    admin = memstream.keys.header("boss@example.com", admin=True)

    async def why() -> str | None:
        """Of the failure of the one lane."""
        [lane] = (await memstream.call("GET", f"/{made['name']}/lanes", headers=admin))["lanes"]
        return lane["reason"] if lane["attempts"] else None

    for store in stores:
        await memstream.call("POST", f"/{store}/permissions:revoke", json=friend)
        await memstream.say("ana", "s1", f"I collect {store}.", chats="streamed")
        await until(why)
        needed = "READ" if "session" in store else "WRITE"
        assert await why() == f"PERMISSION_DENIED: the pipeline's creator needs {needed} on {store}"
        await memstream.call("POST", f"/{store}/permissions:grant", json=friend | {"permission": "WRITE"})
        redriven = await memstream.call("POST", f"/{made['name']}/lanes:redrive", headers=admin)
        assert redriven == {"redriven": 1, "over_budget": False}
        await memstream.settled(made["name"], "streamed")

    await memstream.call("DELETE", f"/{made['name']}", headers=admin)


async def test_a_deleted_pipeline_is_gone_with_its_lanes(memstream: System, pipeline: str) -> None:
    assert await memstream.call("DELETE", f"/{pipeline}") == {}

    for method, path in (("GET", pipeline), ("DELETE", pipeline), ("POST", f"{pipeline}/run")):
        answer = await memstream.client.request(method, f"{BASE}/{path}")
        assert (answer.status_code, answer.json()["error_code"]) == (404, "NOT_FOUND")


async def test_a_pipeline_is_deleted_while_its_lanes_are_at_work(memstream: System, pipeline: str) -> None:
    distiller = chassis_of(memstream.apps["distiller"]).database
    uid = UUID(pipeline.rpartition("/")[2])
    await distiller.write(
        "insert into lanes (pipeline_uid, actor_id, workspace_id, marks) values ($1, 'ana', 1, 1)", uid
    )
    async with distiller.transaction() as worker:
        await worker.execute("update lanes set marks = 2 where pipeline_uid = $1", uid)
        deleting = asyncio.create_task(memstream.call("DELETE", f"/{pipeline}"))
        waits = "select exists (select from pg_stat_activity where wait_event_type = 'Lock' and query like 'delete%')"
        await until(lambda: distiller.fetchval(waits))
        with suppress(asyncpg.DeadlockDetectedError):  # Postgres ends one of the two
            await worker.execute(
                "insert into batches (batch_id, pipeline_uid, actor_id, memory_store_uid, state, lease_token)"
                " values ($1, $2, 'ana', $1, 'asked', 1)",
                uuid7(),
                uid,
            )
            assert not deleting.done()

    assert await deleting == {}
    assert await distiller.fetchval("select count(*) from batches where pipeline_uid = $1", uid) == 0
