"""What becomes of changes that memory did not take: asked again or parked, never lost, and redriven with one call."""

import itertools
import json
from typing import Any

import httpx
from starlette.responses import Response

from libs.chassis.metrics import Metrics
from libs.chassis.outbox import Relay
from libs.chassis.parked import ParkedMessages
from libs.contracts.events import AppliedChange, BatchesApplied, Evidence, MemoriesDistilled, Outcome
from libs.contracts.ids import uuid7
from libs.contracts.limits import Limits
from libs.contracts.requests import (
    ApplyBatch,
    BatchApplied,
    FindLacking,
    LackingBatches,
    MemoriesSwapped,
    ShadowStore,
    StoreShadowed,
    SwapMemories,
)
from libs.contracts.topology import Consumer
from services.distiller.domain import batch_of
from services.distiller.leftovers import Leftovers
from services.distiller.restored import Restored
from services.distiller.store import ReplayActors
from tests.support import scripted_model as scripted
from tests.support.distiller import NoBroker, distiller_store
from tests.support.memory import said
from tests.support.replaying import put
from tests.support.scripted_model import Behaviour, ScriptedModel, asked_lines, completion, note
from tests.support.servers import NatsServer, PostgresServer
from tests.support.service import chassis_of, until
from tests.support.system import Open, System, system

LINES = [f"Fact number {n} holds" for n in range(6)]
OPS = "/ops/distiller"
CHANGES = "memstream_changes_total"


def clashing(memstream: System) -> Behaviour:
    """As `valid`, while an agent writes to the slots that were offered."""
    times = itertools.count()

    async def behave(body: dict[str, Any]) -> Response:
        for number, text in asked_lines(body):
            await put(memstream, note(number, text)["path"], f"An agent's words, time {next(times)}")
        return await scripted.valid(body)

    return behave


async def offered(memstream: System, *lines: str) -> None:
    """What these lines will be kept as is there before they are said."""
    for line in lines:
        await put(memstream, note(1, line)["path"], "An agent's first words")


async def parked(memstream: System) -> list[dict[str, Any]]:
    listed = await memstream.client.get(f"{OPS}/parked-messages", headers=memstream.keys.header(admin=True))
    found: list[dict[str, Any]] = listed.json()["parked_messages"]
    return found


async def redriven(memstream: System, message: dict[str, Any]) -> httpx.Response:
    path = f"{OPS}/parked-messages/{message['parked_id']}:redrive"
    return await memstream.client.post(path, headers=memstream.keys.header(admin=True))


async def one_conflict(memstream: System, model: ScriptedModel) -> dict[str, Any]:
    """What is parked of a line whose change conflicts every time."""
    await memstream.pipeline()
    await offered(memstream, LINES[0])
    model.behave(clashing(memstream))
    await memstream.say("ana", "s1", LINES[0])
    return await one_is_parked(memstream)


async def one_is_parked(memstream: System) -> dict[str, Any]:
    await until(lambda: parked(memstream), deadline_s=30)
    [message] = await parked(memstream)
    return message


async def told(memstream: System) -> set[str]:
    """All that the actor's memory ever held; what was said before an agent's words is history at once."""
    path = "/memory-stores/facts/entries"
    page = await memstream.call("GET", path, params={"actor_id": "ana", "page_size": 100})
    found: set[str] = set()
    for entry in page["managed_memory_entries"]:
        versions = await memstream.call("GET", f"/{entry['name']}/versions")
        found |= {version["content"] for version in versions["versions"]}
    return found


async def learns(memstream: System, *lines: str) -> None:
    """Waits until the actor's memory holds or held all of these."""

    async def is_so() -> bool:
        return await told(memstream) >= {*lines}

    await until(is_so, deadline_s=30)


async def test_however_many_lines_of_a_session_conflict_each_is_asked_again(opened: Open, model: ScriptedModel) -> None:
    async with opened() as memstream:
        await memstream.pipeline()
        await offered(memstream, *LINES)
        model.behave(clashing(memstream), scripted.valid)

        await memstream.say("ana", "s1", *LINES)

        await learns(memstream, *LINES)
        assert await parked(memstream) == []
        assert model.calls == 2


async def test_a_change_that_conflicts_every_time_is_parked_as_often_as_it_is_redriven_until_it_is_taken(
    opened: Open, model: ScriptedModel
) -> None:
    async with opened() as memstream:
        first = await one_conflict(memstream, model)
        assert (first["reason"], first["actor_id"], model.calls) == ("conflict, 3 times", "ana", 4)
        assert memstream.metric("distiller", CHANGES, outcome="conflict") == 4

        assert (await redriven(memstream, first)).status_code == 200
        second = await one_is_parked(memstream)
        assert second["parked_id"] != first["parked_id"]
        model.behave(scripted.valid)
        assert (await redriven(memstream, second)).status_code == 200

        await learns(memstream, LINES[0])
        assert await parked(memstream) == []


async def test_a_repeated_answer_of_memory_is_counted_once(opened: Open, model: ScriptedModel) -> None:
    async with opened() as memstream:
        pipeline = await memstream.pipeline()
        await offered(memstream, *LINES[:2])
        model.behave(clashing(memstream), scripted.valid)
        await memstream.say("ana", "s1", *LINES[:2])
        await learns(memstream, *LINES[:2])
        await memstream.settled(pipeline)

        def heard() -> float:
            consumer = Consumer("distiller", BatchesApplied).durable
            return memstream.metric("distiller", "memstream_deliveries_total", consumer=consumer, outcome="done")

        distiller = chassis_of(memstream.apps["distiller"]).database
        batches = await distiller.fetchval("select count(*) from batches")
        await until(lambda: heard() == batches)
        await distiller.write(
            "insert into outbox (message_id, subject, payload) select gen_random_uuid(), $1, event from batches",
            MemoriesDistilled.subject,
        )
        await until(lambda: heard() == 2 * batches)

        assert memstream.metric("distiller", CHANGES, outcome="conflict") == 2
        assert (
            memstream.metric("distiller", CHANGES, outcome="applied")
            + memstream.metric("distiller", CHANGES, outcome="history")
            == 2
        )


async def test_a_refused_change_is_distilled_anew_when_it_is_redriven(
    postgres: PostgresServer, nats: NatsServer, model: ScriptedModel
) -> None:
    async def briefly(body: dict[str, Any]) -> Response:
        changes = [note(number, text) | {"path": "/notes/short.md"} for number, text in asked_lines(body)]
        return completion(json.dumps({"changes": changes}))

    line = "A fact of so many words that its slot has a path beyond the limit"
    limited = {"limits": Limits(path_bytes=40)}
    async with system(postgres, nats, models=model.models(), memory_settings=limited) as memstream:
        await memstream.pipeline()
        await memstream.say("ana", "s1", line)
        first = await one_is_parked(memstream)
        assert "path" in first["reason"]

        await redriven(memstream, first)
        second = await one_is_parked(memstream)
        assert (second["reason"], second["parked_id"] != first["parked_id"]) == (first["reason"], True)
        model.behave(briefly)
        await redriven(memstream, second)

        await learns(memstream, line)
        assert await parked(memstream) == []


async def test_what_rests_on_a_deleted_session_stays_parked_when_it_is_redriven(
    opened: Open, model: ScriptedModel
) -> None:
    async with opened() as memstream:
        message = await one_conflict(memstream, model)
        await memstream.call("DELETE", "/session-stores/chats/sessions/s1")
        distiller = chassis_of(memstream.apps["distiller"]).database
        await until(lambda: distiller.fetchval("select count(*) = 0 from lane_sessions"))

        answer = await redriven(memstream, message)

        assert (answer.status_code, answer.json()["error_code"]) == (400, "FAILED_PRECONDITION")
        assert await parked(memstream) == [message]


async def test_a_repair_sees_to_what_conflicts_now_and_leaves_what_did_before(
    opened: Open, model: ScriptedModel
) -> None:
    async with opened() as memstream:
        pipeline = await memstream.pipeline()
        first = await put(memstream, note(1, LINES[0])["path"], "An agent's first words")
        model.behave(clashing(memstream), scripted.valid)
        await memstream.say("ana", "s1", LINES[0])
        await learns(memstream, LINES[0])
        await memstream.say("ana", "s1", LINES[1])
        await memstream.settled(pipeline)
        # As if the database were one of before it knew anything, and an agent had written since.
        memory = chassis_of(memstream.apps["memory"]).database
        for table in ("batches", "version_evidence", "entry_versions", "entries"):
            await memory.write(f"delete from {table}")
        await memstream.call(
            "POST",
            "/memory-stores/facts/entries",
            params={"managed_memory_entry_id": first["name"].rpartition("/")[2]},
            json={"actor_id": "ana", "path": first["path"], "content": "An agent's first words"},
        )
        await put(memstream, first["path"], "An agent's second words")
        await offered(memstream, LINES[1])
        calls = model.calls

        answer = await memstream.client.post(
            f"{OPS}/batches:repair", json={}, headers=memstream.keys.header(admin=True)
        )

        assert answer.json()["applied_again"] == 3
        await learns(memstream, *LINES[:2])
        assert [text for body in model.requests[calls:] for _, text in asked_lines(body)] == [LINES[1]]


async def test_a_swap_of_which_memory_takes_less_than_it_did_is_not_made_again(postgres: PostgresServer) -> None:
    async with distiller_store(postgres) as store:
        pipeline = await store.pipeline()
        swap_id, session = uuid7(), uuid7()
        changes = [said(f"/a/{n}.md", "x", evidence=[Evidence(session_uid=session, positions=[n])]) for n in (1, 2)]
        batch = batch_of(pipeline, uuid7(), "ana", source_epoch=0, memory_epoch=0, changes=changes)
        swap = SwapMemories(
            swap_id=swap_id,
            store_uid=pipeline.memory_store_uid,
            shadow_uid=uuid7(),
            actor_id="ana",
            pipeline_uid=pipeline.pipeline_uid,
            session_store_uid=pipeline.session_store_uid,
            source_epoch=0,
            keeps_up=True,
        )
        answer = BatchApplied(outcomes=[AppliedChange(outcome="refused"), AppliedChange(outcome="applied")])
        for batch_id, sent, outcomes in ((batch.batch_id, batch, answer.model_dump_json()), (swap_id, swap, None)):
            await store.database.write(
                "insert into batches (batch_id, pipeline_uid, actor_id, memory_store_uid, state, lease_token, event,"
                " ranges, outcomes, emitted_at, settled_at, swap_id)"
                " values ($1, $2, 'ana', $3, 'settled', 0, $4, '[]', $5, now(), now(), $6)",
                batch_id,
                pipeline.pipeline_uid,
                pipeline.memory_store_uid,
                sent.model_dump_json(),
                outcomes,
                swap_id,
            )
        taken: list[Outcome] = ["refused", "applied"]
        asked: list[type] = []

        async def ask(request: Any, *_: Any, **__: Any) -> Any:
            asked.append(type(request))
            match request:
                case FindLacking():
                    return LackingBatches(batch_ids=request.batch_ids)
                case ShadowStore():
                    return StoreShadowed()
                case ApplyBatch():
                    return BatchApplied(outcomes=[AppliedChange(outcome=each) for each in taken])
            return MemoriesSwapped(outcome="swapped")

        leftovers = Leftovers(store.lanes, ParkedMessages(store.database))
        relay = Relay("distiller", store.database, NoBroker(), Metrics())
        actors = ReplayActors(store.database)
        restored = Restored(store.lanes, store.batches, actors, leftovers, store.unit_of_work, relay, ask)

        as_before = await restored.apply_again(pipeline.workspace_id, None, 10)
        assert (as_before.lacking, as_before.late, asked.count(SwapMemories)) == (1, 0, 1)
        taken[1] = "refused"
        less = await restored.apply_again(pipeline.workspace_id, None, 10)

        assert (less.lacking, less.late, asked.count(SwapMemories)) == (0, 1, 1)
