"""kill -9 of the distiller and of memory during a replay: it goes on, and nobody ever sees half of an actor's swap."""

import asyncio
import json
import random
from pathlib import Path
from typing import Any

import pytest
from starlette.responses import Response

from libs.contracts.routes import BASE
from tests.support import scripted_model as scripted
from tests.support.cluster import SESSIONS, Cluster, cluster
from tests.support.kill_points import SWAP_POINTS, KillPoints
from tests.support.scripted_model import asked_lines, note, scripted_model
from tests.support.servers import PostgresServer
from tests.support.service import until

ACTORS = ("ana", "bo", "cleo", "dan")
LINES = [f"Fact number {n} holds" for n in range(8)]
OLD, NEW = sorted(LINES), sorted(f"{line}, as told again" for line in LINES)


async def again(body: dict[str, Any]) -> Response:
    await asyncio.sleep(0.3)
    changes = [note(number, text) | {"statement": f"{text}, as told again"} for number, text in asked_lines(body)]
    return scripted.completion(json.dumps({"changes": changes}))


async def append(running: Cluster, actor: str) -> None:
    await running.make_session(f"s-{actor}", actor)
    items = [{"data": {"type": "message", "role": "user", "content": line}} for line in LINES]
    await running.answer(
        "POST", f"{SESSIONS}/s-{actor}/items:append", json={"items": items}, headers={"Idempotency-Key": actor}
    )


@pytest.mark.parametrize("replicas", [1, 3])
async def test_a_replay_goes_on_after_any_kill_and_swaps_each_actor_whole(
    postgres: PostgresServer, replicas: int, seed: int, is_soak: bool
) -> None:
    async with scripted_model() as model:
        own = {"OPENAI_BASE_URL": model.url, "OPENAI_API_KEY": "none", "MODEL": "scripted", "BATCH_LINES": "2"}
        async with cluster(
            postgres, replicas={"distiller": replicas, "memory": replicas}, settings={"distiller": own}, seed=seed
        ) as running:
            for actor in ACTORS:
                await append(running, actor)
            assert await running.at_rest()
            model.behave(again)
            replay = await running.answer(
                "POST", f"{BASE}/{running.pipeline}:replay", json={}, headers={"Idempotency-Key": "replay"}
            )
            over: dict[str, Any] = {}
            rng = random.Random(seed)

            async def kill() -> None:
                for _ in range(5 if is_soak else 3):
                    await asyncio.sleep(rng.uniform(0.2, 1.0))
                    running.kill(rng.choice(("distiller", "memory")))
                    await running.ready()

            killing = asyncio.create_task(kill())

            async def is_over() -> bool:
                for actor in ACTORS:
                    assert sorted(entry.statement for entry in await running.entries(actor)) in (OLD, NEW)
                over.update(await running.answer("GET", f"{BASE}/{replay['name']}"))
                return "end_time" in over

            await until(is_over, deadline_s=90)
            await killing

            assert (over["state"], over["actors"]) == ("SUCCEEDED", {"total": 4, "swapped": 4, "failed": 0})
            for actor in ACTORS:
                assert sorted(entry.statement for entry in await running.entries(actor)) == NEW
            assert await running.at_rest()

            async def is_gone() -> bool:
                shadows = await running.count("memory", "shadow_stores") + await running.count("memory", "purges")
                return shadows == await running.count("distiller", "pipelines", "parent_uid is not null") == 0

            await until(is_gone, deadline_s=60)


@pytest.mark.parametrize("point", SWAP_POINTS)
async def test_a_replay_cancelled_while_its_swap_is_killed_is_all_or_nothing(
    postgres: PostgresServer, tmp_path: Path, seed: int, point: str
) -> None:
    points = KillPoints(tmp_path)
    async with scripted_model() as model:
        own = {"OPENAI_BASE_URL": model.url, "OPENAI_API_KEY": "none", "MODEL": "scripted"}
        async with cluster(postgres, settings={"distiller": own}, seed=seed, kill_points=tmp_path) as running:
            await append(running, "ana")
            assert await running.at_rest()
            model.behave(again)
            points.arm(point)
            if point == "withdrawn":
                points.arm("swap_asked")
            replay = await running.answer(
                "POST", f"{BASE}/{running.pipeline}:replay", json={}, headers={"Idempotency-Key": "replay"}
            )
            await until(lambda: not points.is_armed("swap_asked" if point == "withdrawn" else point), deadline_s=60)

            await running.call("DELETE", f"{BASE}/{replay['name']}")

            assert await running.count("distiller", "lanes", "held_by is not null") == 0
            over: dict[str, Any] = {}

            async def is_over() -> bool:
                over.update(await running.answer("GET", f"{BASE}/{replay['name']}"))
                return "end_time" in over

            await until(is_over, deadline_s=60)
            known = sorted(entry.statement for entry in await running.entries("ana"))
            expected = (NEW, "SUCCEEDED", 1) if over["actors"]["swapped"] else (OLD, "CANCELED", 0)
            assert (known, over["state"], over["actors"]["swapped"]) == expected
            if point == "swap_made":
                assert known == NEW

            item = {"data": {"type": "message", "role": "user", "content": "One more fact"}}
            await running.answer(
                "POST", f"{SESSIONS}/s-ana/items:append", json={"items": [item]}, headers={"Idempotency-Key": "more"}
            )
            assert await running.at_rest(), "the live lane goes on"
            assert len(await running.entries("ana")) == len(known) + 1
