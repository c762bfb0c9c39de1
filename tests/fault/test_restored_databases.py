"""Each database restored alone to an older dump heals; `memstream repair` does what no sweep can."""

import asyncio
import sys
from typing import Any

import pytest

from libs.contracts.routes import BASE
from tests.support.cluster import MEMORY_STORE, SESSION_STORE, SESSIONS, Cluster, cluster
from tests.support.ledger import Fact, Ledger
from tests.support.load import Load, judged
from tests.support.replaying import again, second
from tests.support.scripted_model import asked_lines, scripted_model, valid
from tests.support.servers import PostgresServer
from tests.support.service import until

CLI = (sys.executable, "-c", "from memstream.cli import main; main()")


async def repair(running: Cluster) -> str:
    """What `memstream repair` says."""
    [distiller] = running.of("distiller")
    token = running.keys.token("root@example.com", admin=True)
    process = await asyncio.create_subprocess_exec(
        *CLI, "--url", distiller.url, "--token", token, "repair", stdout=-1, stderr=-1
    )
    said, errors = await process.communicate()
    assert process.returncode == 0, errors.decode()
    return said.decode()


async def remembered(running: Cluster, *actors: str) -> list[dict[str, Any]]:
    """All entries of these actors with their ids and versions, without the times at which they were written."""
    times = ("create_time", "update_time")
    return [
        {name: value for name, value in entry.items() if name not in times}
        for actor in actors
        for entry in await running._entries(actor)
    ]


async def test_an_older_distiller_distils_again_and_doubles_nothing(running: Cluster, load: Load) -> None:
    await load.run(lambda done: done == 2)
    assert await running.at_rest()
    dump = await running.dump("distiller")
    await load.run(lambda done: done == 2)
    assert await running.at_rest()

    await running.restore("distiller", dump)
    await load.run(lambda done: done == 1)

    await judged(running, load.ledger)


async def test_an_older_memory_gets_back_what_it_lost_with_the_same_ids_and_versions(
    running: Cluster, load: Load
) -> None:
    await load.run(lambda done: done == 2)
    await running.make_session("mira-1", "mira")
    said = ["I work at Northwind.", "I live in Paris.", "I work at Contoso now.", "I moved to Lyon.", "I live in Lyon."]
    dump = ""
    for number, text in enumerate(said):
        if number == 1:
            dump = await running.dump("memory")
        body = {"items": [{"data": {"type": "message", "role": "user", "content": text}}]}
        await running.answer(
            "POST",
            "/api/2.0/agents/session-stores/chats/sessions/mira-1/items:append",
            json=body,
            headers={"Idempotency-Key": str(number)},
        )
        assert await running.at_rest()
    await load.run(lambda done: done == 2)
    assert await running.at_rest()
    actors = ["mira", *sorted(load.ledger.actors)]
    before = await remembered(running, *actors)

    await running.restore("memory", dump)
    assert len(await remembered(running, *actors)) < len(before)
    first, second = await repair(running), await repair(running)

    assert await remembered(running, *actors) == before
    assert " 0 of " in second.split(";")[1], second
    assert " 0 of " not in first.split(";")[1], first
    await judged(running, load.ledger)


async def say(running: Cluster, *lines: str) -> None:
    await append(running, "s1", *lines)
    assert await running.at_rest()


async def append(running: Cluster, session: str, *lines: str) -> None:
    items = [{"data": {"type": "message", "role": "user", "content": line}} for line in lines]
    await running.answer(
        "POST", f"{SESSIONS}/{session}/items:append", json={"items": items}, headers={"Idempotency-Key": lines[0]}
    )


async def replayed(running: Cluster, key: str) -> None:
    started = await running.answer(
        "POST", f"{BASE}/{running.pipeline}:replay", json={}, headers={"Idempotency-Key": key}
    )

    async def is_over() -> bool:
        return "end_time" in await running.answer("GET", f"{BASE}/{started['name']}")

    await until(is_over, deadline_s=60)


@pytest.mark.parametrize(
    "goes_on", [None, "s1", "s2"], ids=["at once", "after more was said", "after more was said in another session"]
)
async def test_an_older_memory_gets_back_what_a_replay_had_swapped(
    postgres: PostgresServer, seed: int, goes_on: str | None
) -> None:
    async with scripted_model() as model:
        settings = {"OPENAI_BASE_URL": model.url, "OPENAI_API_KEY": "none", "MODEL": "scripted", "BATCH_LINES": "2"}
        async with cluster(postgres, seed=seed, settings={"distiller": settings}) as running:
            await running.make_session("s1", "ana")
            await say(running, *(f"Fact number {n} holds" for n in range(5)))
            dump = await running.dump("memory")
            await say(running, "A sixth fact holds", "Some gossip about Bo")
            model.behave(second)
            await replayed(running, "replay")
            await say(running, "Fact number 3 holds")
            before, calls = await remembered(running, "ana"), model.calls

            await running.restore("memory", dump)
            if goes_on:
                await running.make_session(goes_on, "ana")
                await append(running, goes_on, "One more fact holds")

                async def is_told() -> bool:
                    told = {entry.statement for entry in await running.entries("ana")}
                    return again("One more fact holds") in told

                await until(is_told, deadline_s=30)
            first, again_said = await repair(running), await repair(running)

            if goes_on:
                assert "1 actors must be replayed again" in first
                await replayed(running, "once more")
                assert "must be replayed" not in await repair(running)
            else:
                assert await remembered(running, "ana") == before
                assert model.calls == calls, "nothing is paid for again"
                assert " 0 of " in again_said.split(";")[1], again_said
            known = {entry.statement for entry in await running.entries("ana")}
            lines = [*(f"Fact number {n} holds" for n in range(5)), "A sixth fact holds"]
            assert known == {again(line) for line in [*lines, *(["One more fact holds"] if goes_on else [])]}

            async def is_gone() -> bool:
                return await running.count("memory", "shadow_stores") + await running.count("memory", "purges") == 0

            await until(is_gone, deadline_s=60)


@pytest.mark.parametrize("with_repair", [False, True], ids=["by the sweep", "with a repair"])
async def test_positions_that_an_older_session_database_gives_again_are_distilled(
    postgres: PostgresServer, ledger: Ledger, seed: int, with_repair: bool
) -> None:
    """The sweep sees sessions that are shorter than what is distilled of them; a repair sees them before they grow."""
    settings = {"distiller": {"SWEEP_INTERVAL_S": "3600"}} if with_repair else {}
    async with cluster(postgres, seed=seed, settings=settings) as running:
        load = Load(running, ledger, seed)
        await running.make_session("s1", "ana")
        for number in range(3):
            await load.append("s1", "ana", [load.script.fact()], key=f"kept {number}")
        assert await running.at_rest()
        dump = await running.dump("session")
        await load.append("s1", "ana", [load.script.fact() for _ in range(4)], key="lost")
        assert await running.at_rest()

        await running.restore("session", dump)
        if with_repair:
            assert (await repair(running)).startswith("1 of 1 sessions")
        again = [load.script.fact() for _ in range(9 if with_repair else 2)]
        await load.append("s1", "ana", again, key="again")

        said = {line.fact for each in ledger.appends for line in each.lines}

        async def is_known() -> bool:
            return {Fact(entry.path, entry.statement) for entry in await running.entries("ana")} == said

        await until(is_known, deadline_s=30)
        assert await running.at_rest()
        assert {entry.version for entry in await running.entries("ana")} == {1}


@pytest.mark.parametrize("held", ["nothing", "copies"])
async def test_a_session_of_which_a_restore_left_no_item_of_its_own_is_distilled_anew(
    postgres: PostgresServer, ledger: Ledger, seed: int, held: str
) -> None:
    settings = {"distiller": {"SWEEP_INTERVAL_S": "3600"}}
    async with cluster(postgres, seed=seed, settings=settings) as running:
        load = Load(running, ledger, seed)
        if held == "copies":
            await running.make_session("s0", "bo")
            await load.append("s0", "bo", [load.script.fact() for _ in range(2)], key="copied")
            fork = {"source_session_id": "s0", "session_id": "s1", "actor_id": "ana"}
            await running.answer("POST", f"{SESSIONS}:fork", json=fork, headers={"Idempotency-Key": "fork"})
        else:
            await running.make_session("s1", "ana")
        dump = await running.dump("session")
        lost = await load.append("s1", "ana", [load.script.fact() for _ in range(2)], key="lost")
        assert await running.at_rest()

        await running.restore("session", dump)
        assert (await repair(running)).startswith(f"1 of {2 if held == 'copies' else 1} sessions")
        again = await load.append("s1", "ana", [load.script.fact() for _ in range(2)], key="again")

        said = {line.fact for each in (lost, again) for line in each.lines}

        async def is_known() -> bool:
            return {Fact(entry.path, entry.statement) for entry in await running.entries("ana")} == said

        await until(is_known, deadline_s=30)
        assert await running.at_rest()


@pytest.mark.parametrize("service", ["session", "memory"])
async def test_a_deleted_store_that_a_restore_brought_back_is_distilled_anew_once(
    postgres: PostgresServer, seed: int, service: str
) -> None:
    asked: list[str] = []

    async def listening(body: dict[str, Any]) -> Any:
        asked.extend(text for _, text in asked_lines(body))
        return await valid(body)

    async with scripted_model() as model:
        model.behave(listening)
        endpoint = {"OPENAI_BASE_URL": model.url, "OPENAI_API_KEY": "none", "MODEL": "scripted"}
        settings = {"distiller": endpoint | {"HOUSEKEEPING_INTERVAL_S": "0.2"}}
        async with cluster(postgres, seed=seed, settings=settings) as running:
            await running.make_session("s1", "ana")
            await say(running, "A first fact holds", "A second fact holds")
            dump = await running.dump(service)
            store = f"session-stores/{SESSION_STORE}" if service == "session" else f"memory-stores/{MEMORY_STORE}"
            await running.request("DELETE", f"{BASE}/{store}")

            async def is_purged() -> bool:
                return await running.count("distiller", "lanes") + await running.count("distiller", "batches") == 0

            await until(is_purged, deadline_s=30)
            asked.clear()

            await running.restore(service, dump)
            await repair(running)
            assert await running.at_rest()
            later = [f"Later fact {number} holds" for number in range(4)]
            for line in later:
                await say(running, line)

            assert sorted(asked) == sorted(["A first fact holds", "A second fact holds", *later])
            assert await running.count("distiller", "lanes") == 1
