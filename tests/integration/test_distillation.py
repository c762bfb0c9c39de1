"""From a statement to a memory, through the three services and the bus."""

from collections.abc import Sequence
from itertools import count
from typing import Any
from uuid import UUID

import pytest

from services.memory.store.related import Distilling, Known
from tests.support.service import chassis_of, until
from tests.support.system import System


async def test_a_statement_becomes_a_searchable_memory(memstream: System) -> None:
    pipeline = await memstream.pipeline()

    await memstream.say("ana", "s1", "Hello there!", "I am allergic to peanuts.", "How are you?")
    await memstream.settled(pipeline)

    found = await memstream.call(
        "POST", "/memory-stores/facts/entries:search", json={"actor_id": "ana", "query": "peanuts"}
    )
    [hit] = found["results"]
    assert "peanuts" in hit["managed_memory_entry"]["content"]
    assert 0 < hit["score"] <= 1
    assert hit["managed_memory_entry"]["source_type"] == "MANAGED_MEMORY_ENTRY_SOURCE_TYPE_DREAMER"


async def test_a_change_of_mind_replaces_the_slot_and_a_repetition_adds_none(memstream: System) -> None:
    pipeline = await memstream.pipeline()

    await memstream.say("ana", "s1", "I work at Northwind.")
    await memstream.settled(pipeline)
    before = await memstream.memories("ana")
    await memstream.say("ana", "s2", "I work at Northwind.")
    await memstream.settled(pipeline)
    again = await memstream.memories("ana")
    await memstream.say("ana", "s3", "I work at Contoso now.")
    await memstream.settled(pipeline)
    after = await memstream.memories("ana")

    assert again == before
    assert list(after) == list(before) == ["/job/employer.md"]
    assert "Contoso" in after["/job/employer.md"]


async def test_what_is_no_longer_so_is_retired_and_its_neighbour_stays(memstream: System) -> None:
    pipeline = await memstream.pipeline()

    await memstream.say("ana", "s1", "I'm allergic to peanuts and kiwi.", "I work at Northwind.")
    await memstream.settled(pipeline)
    await memstream.say("ana", "s2", "I'm no longer allergic to peanuts.", "I quit my job.")
    await memstream.settled(pipeline)

    assert await memstream.memories("ana") == {
        "/allergies/kiwi.md": "I'm allergic to peanuts and kiwi.",
        "/job/employer.md": "I quit my job.",
    }


async def test_actors_never_see_each_others_memories(memstream: System) -> None:
    pipeline = await memstream.pipeline()

    await memstream.say("ana", "s1", "I am allergic to peanuts.")
    await memstream.say("bo", "s2", "I am allergic to shellfish.")
    await memstream.settled(pipeline)

    assert "peanuts" in str(await memstream.memories("ana"))
    assert "peanuts" not in str(await memstream.memories("bo"))


async def test_a_pipeline_made_after_the_conversations_distils_them(memstream: System) -> None:
    await memstream.call("POST", "/session-stores?session_store_id=chats", json={})
    await memstream.say("ana", "s1", "I am allergic to peanuts.")

    await memstream.call("POST", "/memory-stores?managed_memory_store_id=facts", json={})
    made = await memstream.call(
        "POST",
        "/memory-pipelines",
        json={
            "session_store": "chats",
            "memory_store": "facts",
            "dreamer_policy": {"trigger": "CONTINUOUS", "quiet_period_s": 0},
        },
    )
    await memstream.settled(made["name"])

    assert "peanuts" in str(await memstream.memories("ana"))


async def test_a_long_text_before_a_short_line_does_not_stop_the_lane(memstream: System) -> None:
    pipeline = await memstream.pipeline()
    await memstream.say("ana", "s1", "x" * 30_000)
    await memstream.settled(pipeline)

    await memstream.say("ana", "s1", "I am allergic to peanuts.")
    await memstream.settled(pipeline)

    assert "peanuts" in str(await memstream.memories("ana"))


async def test_all_that_one_long_text_says_becomes_memories(memstream: System) -> None:
    pipeline = await memstream.pipeline()

    await memstream.say("ana", "s1", " ".join(f"I am allergic to thing{n}berries." for n in range(350)))
    await memstream.settled(pipeline)

    known = await chassis_of(memstream.apps["memory"]).database.fetchval("select count(*) from entries")
    assert known == 350
    assert await chassis_of(memstream.apps["distiller"]).database.fetchval("select count(*) from batches") == 1


async def test_the_builtin_model_asks_memory_once_about_what_it_changes(
    memstream: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = Distilling.known
    asked: list[Sequence[str]] = []

    async def counting(self: Distilling, store_uid: UUID, actor_id: str, paths: Sequence[str]) -> Known | None:
        asked.append(paths)
        return await known(self, store_uid, actor_id, paths)

    monkeypatch.setattr(Distilling, "known", counting)
    pipeline = await memstream.pipeline(quiet_period_s=1)

    for text in ("I live in Paris. Yesterday I ran a marathon in Lyon.", "I moved to Lyon. I am allergic to peanuts."):
        await memstream.say("ana", "s1", text)
        await memstream.settled(pipeline)

    assert {"/home/city.md", "/allergies/peanuts.md"} <= (await memstream.memories("ana")).keys()
    assert len(asked) == 2


async def test_two_long_texts_before_a_short_line_do_not_stop_the_lane(memstream: System) -> None:
    pipeline = await memstream.pipeline()

    await memstream.say("ana", "s1", "x" * 155_000, "y" * 155_000)
    await memstream.say("ana", "s1", "I am allergic to peanuts.")
    await memstream.settled(pipeline)

    assert "peanuts" in str(await memstream.memories("ana"))
    batches = await chassis_of(memstream.apps["distiller"]).database.fetchval("select count(*) from batches")
    assert batches <= 3


async def test_a_manual_pipeline_distils_only_when_run_and_succeeded_means_searchable(memstream: System) -> None:
    pipeline = await memstream.pipeline(trigger="MANUAL_ONLY")
    await memstream.say("ana", "s1", "I am allergic to peanuts.")

    run = await memstream.call("POST", f"/{pipeline}/run", json={})

    async def ended() -> bool:
        state = (await memstream.call("GET", f"/{run['name']}"))["state"]
        assert state in ("PENDING", "RUNNING", "SUCCEEDED")
        return bool(state == "SUCCEEDED")

    await until(ended)
    assert "peanuts" in str(await memstream.memories("ana"))


async def test_a_second_run_while_one_is_active_is_aborted_and_names_it(memstream: System) -> None:
    pipeline = await memstream.pipeline(trigger="MANUAL_ONLY")
    first = await memstream.call("POST", f"/{pipeline}/run", json={})

    answer = await memstream.client.post(f"/api/2.0/agents/{pipeline}/run", json={})

    assert answer.status_code == 409
    assert answer.json()["error_code"] == "ABORTED"
    assert first["name"] in answer.json()["message"]


async def test_a_lane_that_somebody_holds_keeps_no_other_actor_waiting(memstream: System) -> None:
    pipeline = await memstream.pipeline()
    await memstream.say("ana", "s1", "I work at Northwind.")
    await memstream.settled(pipeline)
    chassis = chassis_of(memstream.apps["distiller"])

    async def waits() -> bool:
        waiting = (
            "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()"
        )
        return bool(await chassis.database.fetchval(waiting))

    async def is_known() -> bool:
        return bool(await memstream.memories("bo"))

    async with chassis.unit_of_work.begin() as tx:
        await tx.execute("select from lanes where actor_id = 'ana' for update")
        await memstream.say("ana", "s1", "I live in Paris.")
        await until(waits)
        await memstream.say("bo", "s2", "I am allergic to peanuts.")
        await until(is_known, deadline_s=20)

    await memstream.settled(pipeline)
    assert "Paris" in str(await memstream.memories("ana"))


async def test_an_erasure_repeated_after_the_session_database_was_restored_removes_what_is_distilled(
    memstream: System,
) -> None:
    pipeline = await memstream.pipeline()

    async def erased() -> int:
        """How many lanes, batches and answers went from the distiller."""
        await memstream.say("ana", f"s{next(sessions)}", "I work at Northwind.")
        await memstream.settled(pipeline)
        erasure = await memstream.call("POST", "/session-stores/chats/actors:erase", json={"actor_id": "ana"})
        memstream.said.clear()
        receipt: dict[str, Any] = {}

        async def is_done() -> bool:
            found = await memstream.call("GET", f"/session-stores/chats/erasures/{erasure['erasure_id']}")
            receipt.update(found)
            return bool(found["state"] == "DONE")

        await until(is_done)
        return int(receipt["counts"]["distiller"])

    sessions = count()
    assert await erased() > 0
    await chassis_of(memstream.apps["session"]).database.write("delete from actor_epochs")  # an older dump

    assert await erased() > 0
