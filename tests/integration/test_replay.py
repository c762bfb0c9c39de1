"""What was said is distilled again beside what is known, and takes its place actor by actor, or not at all."""

import asyncio
from collections import Counter
from datetime import datetime
from typing import Any
from uuid import UUID

import pytest
from starlette.responses import Response

from libs.chassis.errors import Reject
from libs.chassis.housekeeping import Pass, run_pass
from libs.chassis.unit_of_work import Tx
from libs.contracts.requests import MemoriesSwapped, SwapMemories
from services.distiller.store import Replay, Replays
from services.distiller.store.replays import expired
from services.memory.indexing import Indexing
from services.memory.store.swapping import swap
from tests.support import scripted_model as scripted
from tests.support.replaying import FACTS, Gate, again, contents, ended, nothing_is_left, put, search, second, start
from tests.support.scripted_model import ScriptedModel
from tests.support.service import chassis_of, until
from tests.support.system import Open


async def test_live_appends_go_on_and_every_look_finds_the_old_statement_or_the_new_one(
    opened: Open, model: ScriptedModel
) -> None:
    async with opened(batch_lines=5) as memstream:
        pipeline = await memstream.pipeline()
        await memstream.say("ana", "s1", "Peanuts make me ill", *(f"Fact number {n} holds" for n in range(30)))
        await memstream.say("bo", "s2", "Shellfish makes me ill")
        await memstream.settled(pipeline)
        model.behave(second)
        found: Counter[tuple[str, ...]] = Counter()
        over = asyncio.Event()

        async def look() -> None:
            while not over.is_set():
                found[tuple(await search(memstream, "peanuts"))] += 1

        async def talk() -> None:
            for number in range(1000):
                if over.is_set():
                    return
                await memstream.say("ana", "s3", f"Meanwhile {number} happened")
                await asyncio.sleep(0.05)

        looking, talking = asyncio.create_task(look()), asyncio.create_task(talk())
        replay = await ended(memstream, await start(memstream, pipeline))
        over.set()
        await asyncio.gather(looking, talking)
        await memstream.settled(pipeline)

        assert (replay["state"], replay["actors"]) == ("SUCCEEDED", {"total": 2, "swapped": 2, "failed": 0})
        assert found.keys() == {("Peanuts make me ill",), (again("Peanuts make me ill"),)}
        assert await search(memstream, "peanuts") == [again("Peanuts make me ill")]
        assert await contents(memstream, "bo") == [again("Shellfish makes me ill")]
        spoken = await search(memstream, "meanwhile")
        assert spoken
        assert all(text.endswith("as told again") for text in await contents(memstream))
        await nothing_is_left(memstream)


async def test_what_the_replay_does_not_make_is_retired_and_what_others_wrote_stays(
    opened: Open, model: ScriptedModel
) -> None:
    async with opened() as memstream:
        pipeline = await memstream.pipeline()
        said = ("I live in Lyon", "Some gossip about Bo", "I play chess", "I own a boat", "I read poems")
        await memstream.say("ana", "s1", *said)
        await memstream.settled(pipeline)
        entries = await memstream.memories("ana")
        paths = {content: path for path, content in entries.items()}
        await put(memstream, paths["I play chess"], "Plays chess, says the agent")
        await put(memstream, "/agent.md", "Only the agent knows")
        page = await memstream.call(
            "GET", f"{FACTS}/entries", params={"actor_id": "ana", "path": paths["I own a boat"]}
        )
        await memstream.call("DELETE", f"/{page['managed_memory_entries'][0]['name']}")
        model.behave(second)

        replay = await ended(memstream, await start(memstream, pipeline, actor_id="ana"))

        assert replay["state"] == "SUCCEEDED"
        assert await memstream.memories("ana") == {
            paths["I live in Lyon"]: again("I live in Lyon"),
            paths["I play chess"]: "Plays chess, says the agent",
            paths["I read poems"]: again("I read poems"),
            "/agent.md": "Only the agent knows",
        }
        page = await memstream.call(
            "GET", f"{FACTS}/entries", params={"actor_id": "ana", "path": paths["I read poems"]}
        )
        [entry] = page["managed_memory_entries"]
        assert [(proof["session_id"], proof["positions"]) for proof in entry["evidence"]] == [("s1", [5])]
        versions = (await memstream.call("GET", f"/{entry['name']}/versions"))["versions"]
        assert [version["content"] for version in versions] == [again("I read poems"), "I read poems"]
        assert {version["writer"]["name"] for version in versions} == {pipeline.partition("/")[2]}

        await memstream.say("ana", "s1", "I live in Lyon")
        await memstream.settled(pipeline)
        assert len(await memstream.memories("ana")) == 4, "the live lane goes on where it was"


async def test_what_rests_on_a_session_that_is_gone_stays(opened: Open, model: ScriptedModel) -> None:
    async with opened() as memstream:
        pipeline = await memstream.pipeline()
        await memstream.say("ana", "old", "I lived in Oslo")
        await memstream.say("ana", "new", "I live in Lyon")
        await memstream.settled(pipeline)
        await memstream.call("DELETE", "/session-stores/chats/sessions/old")
        model.behave(second)

        assert (await ended(memstream, await start(memstream, pipeline)))["state"] == "SUCCEEDED"

        assert await contents(memstream) == sorted(["I lived in Oslo", again("I live in Lyon")])


async def test_a_session_deleted_during_a_replay_neither_holds_it_up_nor_loses_a_memory(
    opened: Open, model: ScriptedModel
) -> None:
    gate = Gate(second)
    async with opened(batch_lines=2) as memstream:
        pipeline = await memstream.pipeline()
        await memstream.say("ana", "s1", *(f"Fact number {n} holds" for n in range(6)))
        await memstream.settled(pipeline)
        model.behave(second, gate)
        gate.close()
        replay = await start(memstream, pipeline)
        await until(lambda: gate.waiting)
        await memstream.call("DELETE", "/session-stores/chats/sessions/s1")

        async def is_forgotten() -> bool:
            live = "select count(*) from lane_sessions where pipeline_uid = $1"
            database = chassis_of(memstream.apps["distiller"]).database
            return bool(await database.fetchval(live, UUID(pipeline.partition("/")[2])) == 0)

        await until(is_forgotten)
        gate.open()

        assert (await ended(memstream, replay))["state"] == "SUCCEEDED"
        told = [again(f"Fact number {n} holds") for n in range(4)]
        assert await contents(memstream) == sorted([*told, "Fact number 4 holds", "Fact number 5 holds"])
        await nothing_is_left(memstream)
        await memstream.say("ana", "s2", "I live in Lyon")

        async def goes_on() -> bool:
            return len(await contents(memstream)) == 7

        await until(goes_on, deadline_s=30)


@pytest.mark.parametrize("removed", ["items:pop", "items:clear", "items:clear?through=1"])
async def test_what_rests_on_lines_that_are_gone_stays(opened: Open, model: ScriptedModel, removed: str) -> None:
    async with opened() as memstream:
        pipeline = await memstream.pipeline()
        await memstream.say("ana", "s1", "I live in Lyon", "Some gossip about Bo")
        await memstream.settled(pipeline)
        await memstream.call("POST", f"/session-stores/chats/sessions/s1/{removed}", json={})
        model.behave(second)

        assert (await ended(memstream, await start(memstream, pipeline)))["state"] == "SUCCEEDED"

        told = {
            "items:pop": [again("I live in Lyon"), "Some gossip about Bo"],
            "items:clear": ["I live in Lyon", "Some gossip about Bo"],
            "items:clear?through=1": ["I live in Lyon"],
        }
        assert await contents(memstream) == sorted(told[removed])


async def test_a_replay_into_another_store_leaves_its_own_alone(opened: Open, model: ScriptedModel) -> None:
    async with opened() as memstream:
        pipeline = await memstream.pipeline()
        await memstream.call("POST", "/memory-stores?managed_memory_store_id=trial", json={})
        await memstream.say("ana", "s1", "I live in Lyon", "Some gossip about Bo")
        await memstream.settled(pipeline)
        model.behave(second)

        replay = await ended(memstream, await start(memstream, pipeline, memory_store="memory-stores/trial"))

        assert (replay["state"], replay["memory_store"]) == ("SUCCEEDED", "memory-stores/trial")
        assert await contents(memstream) == ["I live in Lyon", "Some gossip about Bo"]
        assert await contents(memstream, store="trial") == [again("I live in Lyon")]
        model.behave(scripted.valid)
        await ended(memstream, await start(memstream, pipeline, memory_store="trial"))
        assert await contents(memstream, store="trial") == ["I live in Lyon", "Some gossip about Bo"]
        await nothing_is_left(memstream)


async def test_replays_are_paged_the_latest_first(opened: Open) -> None:
    async with opened() as memstream:
        pipeline = await memstream.pipeline()
        await memstream.say("ana", "s1", "I live in Lyon")
        await memstream.say("bo", "s2", "I live in Oslo")
        await memstream.settled(pipeline)
        assert await memstream.call("GET", f"/{pipeline}/replays") == {"replays": []}
        replays = [
            await ended(memstream, await start(memstream, pipeline, **body)) for body in ({}, {"actor_id": "bo"})
        ]

        first = await memstream.call("GET", f"/{pipeline}/replays", params={"page_size": 1})
        rest = await memstream.call("GET", f"/{pipeline}/replays", params={"page_token": first["next_page_token"]})

        assert [replay["actors"]["swapped"] for replay in replays] == [2, 1]
        assert (first["replays"], rest) == ([replays[1]], {"replays": [replays[0]]})
        assert await memstream.call("GET", f"/{pipeline}/replays") == {"replays": [replays[1], replays[0]]}
        foreign = await memstream.client.get(
            f"/api/2.0/agents/{pipeline}/runs", params={"page_token": first["next_page_token"]}
        )
        assert foreign.status_code == 400


async def test_a_cancelled_replay_changes_nothing(opened: Open, model: ScriptedModel) -> None:
    gate = Gate(second)
    async with opened(batch_lines=2) as memstream:
        pipeline = await memstream.pipeline()
        await memstream.say("ana", "s1", *(f"Fact number {n} holds" for n in range(6)))
        await memstream.settled(pipeline)
        before = await contents(memstream)
        model.behave(second, gate)
        gate.close()
        replay = await start(memstream, pipeline)
        await until(lambda: gate.waiting)

        answer = await memstream.client.post(f"/api/2.0/agents/{pipeline}:replay", json={})
        assert answer.status_code == 409
        assert replay["name"] in answer.json()["message"]
        await memstream.call("DELETE", f"/{replay['name']}")
        gate.open()

        assert (await ended(memstream, replay))["state"] == "CANCELED"
        assert await contents(memstream) == before
        await nothing_is_left(memstream)
        await memstream.say("ana", "s1", "One more fact")
        await memstream.settled(pipeline)
        assert len(await contents(memstream)) == len(before) + 1


async def test_deleting_the_pipeline_ends_its_replay(opened: Open, model: ScriptedModel) -> None:
    gate = Gate(second)
    async with opened() as memstream:
        pipeline = await memstream.pipeline()
        await memstream.say("ana", "s1", "I live in Lyon")
        await memstream.settled(pipeline)
        model.behave(gate)
        gate.close()
        await start(memstream, pipeline)
        await until(lambda: gate.waiting)

        await memstream.call("DELETE", f"/{pipeline}")
        gate.open()

        await nothing_is_left(memstream)
        assert await contents(memstream) == ["I live in Lyon"]


@pytest.mark.parametrize("store", ["memory-stores/facts", "session-stores/chats"])
async def test_who_is_erased_during_a_replay_does_not_come_back(opened: Open, model: ScriptedModel, store: str) -> None:
    gate = Gate(second)
    async with opened(batch_lines=2, replay_actors=2) as memstream:
        pipeline = await memstream.pipeline()
        await memstream.say("ana", "s1", *(f"Fact number {n} holds" for n in range(6)))
        await memstream.say("bo", "s2", "I live in Lyon")
        await memstream.settled(pipeline)
        model.behave(second, second, gate)
        gate.close()
        replay = await start(memstream, pipeline)
        await until(lambda: gate.waiting)

        receipt = await memstream.call("POST", f"/{store}/actors:erase", json={"actor_id": "ana"})

        async def is_erased() -> bool:
            return bool((await memstream.call("GET", f"/{store}/erasures/{receipt['erasure_id']}"))["state"] == "DONE")

        await until(is_erased)
        gate.open()
        over = await ended(memstream, replay)

        assert over["state"] == "SUCCEEDED"
        assert over["actors"]["swapped"] == 1
        assert await contents(memstream) == []
        assert await contents(memstream, "bo") == [again("I live in Lyon")]
        await nothing_is_left(memstream)


async def test_a_replay_that_waits_writes_nothing(
    opened: Open, model: ScriptedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks, all_active = 0, Replays.all_active

    async def counted(replays: Replays) -> list[Replay]:
        nonlocal looks
        looks += 1
        return await all_active(replays)

    monkeypatch.setattr(Replays, "all_active", counted)
    gate = Gate(second)
    async with opened() as memstream:
        pipeline = await memstream.pipeline()
        await memstream.say("ana", "s1", "I live in Lyon")
        await memstream.settled(pipeline)
        gate.close()
        model.behave(gate)
        replay = await start(memstream, pipeline)
        await until(lambda: gate.waiting)
        database = chassis_of(memstream.apps["distiller"]).database
        row = "select ctid, xmin, xmax, state from replay_actors"
        before, seen = await database.fetchrow(row), looks

        await until(lambda: looks >= seen + 3)

        assert await database.fetchrow(row) == before
        gate.open()
        assert (await ended(memstream, replay))["state"] == "SUCCEEDED"


@pytest.mark.parametrize("store", ["memory-stores/facts", "session-stores/chats"])
async def test_a_replay_that_is_over_forgets_who_is_erased_and_is_forgotten_itself(
    opened: Open, model: ScriptedModel, store: str
) -> None:
    async with opened() as memstream:
        pipeline = await memstream.pipeline()
        await memstream.say("ana", "s1", "I live in Lyon")
        await memstream.settled(pipeline)
        replay = await ended(memstream, await start(memstream, pipeline, actor_id="ana"))
        distiller = chassis_of(memstream.apps["distiller"])
        named = (
            "select (select count(*) from replays where actor_id = 'ana' or error like '%ana%')"
            " + (select count(*) from replay_actors where actor_id = 'ana')"
            " + (select count(*) from batches where actor_id = 'ana')"
        )
        kept = "select count(*) from batches where swap_id is not null"
        assert await distiller.database.fetchval(kept) == 2, "the swap, and what it was made of, for a repair"
        await distiller.database.write("update replay_actors set state = 'failed'")
        await distiller.database.write("update replays set state = 'FAILED', error = '1 actor not replayed: ana'")

        await memstream.call("POST", f"/{store}/actors:erase", json={"actor_id": "ana"})

        async def is_forgotten() -> bool:
            return not await distiller.database.fetchval(named)

        await until(is_forgotten)
        assert (await memstream.call("GET", f"/{replay['name']}"))["error"] == "1 actor not replayed"
        await run_pass(distiller.unit_of_work, Pass("expire", expired))
        assert await distiller.database.fetchval("select count(*) from replays") == 1
        await distiller.database.write("update replays set end_time = end_time - interval '31 days'")
        await run_pass(distiller.unit_of_work, Pass("expire", expired))
        assert await distiller.database.fetchval("select count(*) from replays") == 0


async def test_nobody_sees_a_replay_at_work_and_its_parent_pays(opened: Open, model: ScriptedModel) -> None:
    gate = Gate(second)
    async with opened(batch_lines=2) as memstream:
        pipeline = await memstream.pipeline()
        await memstream.say("ana", "s1", *(f"Fact number {n} holds" for n in range(6)))
        await memstream.settled(pipeline)
        paid = model.calls
        stores = await memstream.call("GET", "/memory-stores")
        pipelines = await memstream.call("GET", "/memory-pipelines")
        gate.close()
        model.behave(second, second, gate)
        replay = await start(memstream, pipeline)
        await until(lambda: gate.waiting)

        assert await memstream.call("GET", "/memory-stores") == stores
        for params in ({}, {"page_size": 1}):
            assert await memstream.call("GET", "/memory-pipelines", params=params) == pipelines
        row = await chassis_of(memstream.apps["distiller"]).database.fetchrow("select * from replays")
        assert row is not None
        admin = memstream.keys.header("root@example.com", admin=True)
        for hidden in (f"memory-pipelines/{row['hidden_uid']}", f"memory-pipelines/{row['hidden_uid']}/lanes"):
            assert (await memstream.client.get(f"/api/2.0/agents/{hidden}", headers=admin)).status_code == 404
        shadow = f"/api/2.0/agents/memory-stores/{row['shadow_uid']}"
        for path in (shadow, f"{shadow}/entries?actor_id=ana"):
            assert (await memstream.client.get(path, headers=admin)).status_code in (400, 404)
        assert await contents(memstream) == sorted(f"Fact number {n} holds" for n in range(6))
        gate.open()
        await ended(memstream, replay)

        usage = (await memstream.call("GET", f"/{pipeline}/usage"))["usage"]
        assert sum(day["calls"] for day in usage) == model.calls == paid + 3
        rows = await chassis_of(memstream.apps["distiller"]).database.fetch("select distinct pipeline_uid from usage")
        assert [row["pipeline_uid"] for row in rows] == [UUID(pipeline.partition("/")[2])]


async def test_the_budget_of_a_replay_is_its_parents_as_it_is_now(opened: Open, model: ScriptedModel) -> None:
    async with opened() as memstream:
        pipeline = await memstream.pipeline()
        await memstream.say("ana", "s1", "Fact number 1 holds")
        await memstream.settled(pipeline)
        model.behave(second)

        async def set_budget(tokens: int) -> None:
            await memstream.call(
                "PATCH",
                f"/{pipeline}",
                params={"update_mask": "dreamer_policy.daily_token_budget"},
                json={"dreamer_policy": {"daily_token_budget": tokens}},
            )

        async def waits() -> bool:
            rows = await chassis_of(memstream.apps["distiller"]).database.fetch(
                "select reason from lanes join pipelines using (pipeline_uid) where parent_uid is not null"
            )
            return any("daily_token_budget of 110" in (row["reason"] or "") for row in rows)

        gate = Gate(second)
        gate.close()
        model.behave(gate)
        await memstream.say("bo", "s2", "Fact number 2 holds")
        await until(lambda: gate.waiting)
        replay = await start(memstream, pipeline)
        await set_budget(110)
        gate.open()
        await until(waits)
        assert (await memstream.call("GET", f"/{replay['name']}"))["state"] == "RUNNING"

        await set_budget(1_000_000)

        assert (await ended(memstream, replay))["state"] == "SUCCEEDED"
        assert await contents(memstream) == [again("Fact number 1 holds")]


async def test_who_was_erased_once_and_deletes_a_session_is_replayed(opened: Open, model: ScriptedModel) -> None:
    async with opened() as memstream:
        pipeline = await memstream.pipeline()
        await memstream.say("ana", "s0", "I lived in Rome")
        await memstream.settled(pipeline)
        erasure = await memstream.call("POST", "/session-stores/chats/actors:erase", json={"actor_id": "ana"})

        async def is_done() -> bool:
            receipt = f"/session-stores/chats/erasures/{erasure['erasure_id']}"
            return bool((await memstream.call("GET", receipt))["state"] == "DONE")

        await until(is_done)
        for session_id, text in (("s1", "I lived in Oslo"), ("s2", "I live in Lyon")):
            await memstream.say("ana", session_id, text)

        async def are_known() -> bool:
            return len(await memstream.memories("ana")) == 2

        await until(are_known)
        await memstream.call("DELETE", "/session-stores/chats/sessions/s1")
        database = chassis_of(memstream.apps["distiller"]).database

        async def is_forgotten() -> bool:
            return bool(await database.fetchval("select count(*) = 1 from lane_sessions"))

        await until(is_forgotten)
        model.behave(second)

        replay = await ended(memstream, await start(memstream, pipeline))

        assert (replay["state"], replay["actors"]) == ("SUCCEEDED", {"total": 1, "swapped": 1, "failed": 0})
        assert await contents(memstream) == [again("I live in Lyon"), "I lived in Oslo"]


async def test_an_actor_whose_replay_fails_keeps_what_it_had_and_the_others_are_swapped(
    opened: Open, model: ScriptedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("services.distiller.domain.lanes.LANE_DELAYS_S", (0.0,))
    monkeypatch.setattr("services.distiller.lanes.LANE_DELAYS_S", (0.0,))

    async def fails_for_ana(body: dict[str, Any]) -> Response:
        return await (scripted.prose if "Lyon" in str(body["messages"]) else second)(body)

    async with opened() as memstream:
        pipeline = await memstream.pipeline()
        await memstream.say("ana", "s1", "I live in Lyon")
        await memstream.say("bo", "s2", "I live in Oslo")
        await memstream.settled(pipeline)
        model.behave(fails_for_ana)

        replay = await ended(memstream, await start(memstream, pipeline))

        assert replay["state"] == "FAILED"
        assert "not JSON" in replay["error"]
        assert await contents(memstream) == ["I live in Lyon"]
        assert await contents(memstream, "bo") == [again("I live in Oslo")]
        await nothing_is_left(memstream)


async def test_an_actor_whose_swap_never_succeeds_stops_nobody_and_goes_on_as_before(
    opened: Open, model: ScriptedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("services.distiller.replays.DELAYS_S", (0.0, 0.0))

    async def fails_for_ana(tx: Tx, indexing: Indexing, wanted: SwapMemories, now: datetime) -> MemoriesSwapped:
        if wanted.actor_id == "ana":
            raise Reject("never")
        return await swap(tx, indexing, wanted, now)

    monkeypatch.setattr("services.memory.replays.swap", fails_for_ana)
    async with opened(replay_actors=1) as memstream:
        pipeline = await memstream.pipeline()
        await memstream.say("ana", "s1", "I live in Lyon")
        await memstream.say("bo", "s2", "I live in Oslo")
        await memstream.settled(pipeline)
        model.behave(second)

        replay = await ended(memstream, await start(memstream, pipeline))

        assert (replay["state"], replay["actors"]) == ("FAILED", {"total": 2, "swapped": 1, "failed": 1})
        assert await contents(memstream, "bo") == [again("I live in Oslo")]
        await nothing_is_left(memstream)
        await memstream.say("ana", "s1", "I play chess")
        await memstream.settled(pipeline)
        assert await contents(memstream) == ["I live in Lyon", again("I play chess")]


async def test_only_who_manages_the_pipeline_and_may_write_there_replays(opened: Open) -> None:
    async with opened() as memstream:
        pipeline = await memstream.pipeline()
        await memstream.call("POST", "/memory-stores?managed_memory_store_id=trial", json={})
        stranger = memstream.keys.header("eve@example.com")
        admin = memstream.keys.header("root@example.com", admin=True)
        url = f"/api/2.0/agents/{pipeline}"

        async def code(method: str, tail: str, headers: dict[str, str], **request: Any) -> int:
            return (await memstream.client.request(method, url + tail, headers=headers, **request)).status_code

        replay = await ended(memstream, await start(memstream, pipeline))
        tail = f"/replays/{replay['name'].rpartition('/')[2]}"
        for method, path in (("POST", ":replay"), ("GET", tail), ("DELETE", tail)):
            assert await code(method, path, stranger, **({"json": {}} if method == "POST" else {})) == 403
        assert await code("GET", tail, admin) == 200
        assert await code("POST", ":replay", admin, json={"memory_store": "trial"}) == 403, "no READ, no WRITE"
        assert await code("POST", ":replay", memstream.keys.header(), json={"memory_store": "nowhere"}) == 404
        assert await code("GET", "/replays/none", memstream.keys.header()) == 404
        assert await code("POST", ":replay", memstream.keys.header(workspace=2), json={}) == 404
        key = memstream.keys.header() | {"Idempotency-Key": "again"}
        first = await memstream.client.post(f"{url}:replay", json={}, headers=key)
        repeated = await memstream.client.post(f"{url}:replay", json={}, headers=key)
        assert first.json()["name"] == repeated.json()["name"]
        assert repeated.headers["Idempotent-Replayed"] == "true"
