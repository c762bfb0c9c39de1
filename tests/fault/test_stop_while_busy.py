"""SIGTERM under load: each request is finished or refused, each process ends by itself, and nothing is lost.

A call of a model that is under way is finished, booked and used: nobody pays for the same lines twice.
"""

import asyncio
import json
import signal
from collections import Counter
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import pytest
from starlette.responses import Response

from tests.support import scripted_model as scripted
from tests.support.cluster import MEMORY_STORE, SERVICES, SESSIONS, STOP_DEADLINE_S, Cluster, Replica, cluster
from tests.support.ledger import Fact, Ledger, Line
from tests.support.load import Load, judged
from tests.support.scripted_model import ScriptedModel, scripted_model
from tests.support.servers import PostgresServer
from tests.support.service import until

STOPPED = (0, -signal.SIGTERM)


async def test_a_service_that_is_told_to_stop_under_load_finishes_or_refuses(
    running: Cluster, load: Load, is_soak: bool
) -> None:
    statuses: dict[str, list[int]] = {service: [] for service in SERVICES}

    async def stop_each() -> None:
        for _ in range(5 if is_soak else 1):
            for service in SERVICES:
                await asyncio.sleep(0.5)
                for replica in running.of(service):
                    count = len(replica.statuses)
                    replica.send(signal.SIGTERM)
                    async with asyncio.timeout(20):
                        while len(replica.statuses) == count:  # noqa: ASYNC110 - the keeper finds it, and starts another
                            await asyncio.sleep(0.02)
                    statuses[service].append(replica.statuses[-1])
                await running.ready()

    load.pause_s = 0.01
    stopping = asyncio.create_task(stop_each())
    await load.run(lambda _: stopping.done())
    await stopping

    await judged(running, load.ledger)
    assert all(status in STOPPED for each in statuses.values() for status in each), statuses


@pytest.fixture(params=[1, 3], ids=["one replica", "three replicas"])
async def paying(
    postgres: PostgresServer, request: pytest.FixtureRequest
) -> AsyncIterator[tuple[Cluster, ScriptedModel]]:
    async with scripted_model() as model:
        settings = {"distiller": {"OPENAI_BASE_URL": model.url, "MODEL": "scripted"}}
        async with cluster(postgres, replicas={"distiller": request.param}, settings=settings) as running:
            yield running, model


async def test_calls_under_way_when_a_distiller_is_told_to_stop_are_made_once_booked_and_used(
    paying: tuple[Cluster, ScriptedModel], ledger: Ledger
) -> None:
    running, model = paying
    load = Load(running, ledger, seed=0)
    distillers = running.of("distiller")
    texts = {f"{who}-{len(distillers)}": f"This is {who} before the stop" for who in ("ana", "bo", "cy", "dee")}
    may_answer = asyncio.Event()

    async def late(body: dict[str, Any]) -> Response:
        await may_answer.wait()
        return await scripted.valid(body)

    async def say(actor: str) -> None:
        fact = scripted.note(1, texts[actor])
        data = json.dumps({"type": "message", "role": "user", "content": texts[actor]})
        await load.append(f"s-{actor}", actor, [Line(data, Fact(fact["path"], fact["statement"]))])

    async def is_deaf(replica: Replica) -> bool:
        return not await running.is_ready(replica)

    async def is_left_alone() -> bool:
        overdue = "actor_id = $1 and due_at < now() - interval '1 second' and lease_until is null"
        return bool(await running.rows("distiller", f"select 1 from lanes where {overdue}", last))

    model.behave(late)
    *first, last = texts
    for actor in texts:
        await running.make_session(f"s-{actor}", actor)
    for actor in first:
        await say(actor)
    extraction = f"{SESSIONS}/s-{first[0]}/extractions"
    extracting = asyncio.ensure_future(
        running.request("POST", extraction, json={"memory_store": MEMORY_STORE, "dry_run": True})
    )
    await until(lambda: model.calls == len(first) + 1)

    running.terminate("distiller")
    for replica in distillers:
        await until(partial(is_deaf, replica))
    await say(last)
    await until(is_left_alone)
    may_answer.set()

    assert (await extracting).status_code == 200
    assert {await replica.ended(STOP_DEADLINE_S) for replica in distillers} <= {*STOPPED}
    assert model.calls == len(first) + 1
    running.resume("distiller")
    await judged(running, ledger)
    asked = Counter(text for request in model.requests for _, text in scripted.asked_lines(request))
    assert asked == Counter([*texts.values(), texts[first[0]]])
    [booked] = await running.rows(
        "distiller", "select sum(calls)::int as calls, sum(prompt_tokens + completion_tokens)::int as tokens from usage"
    )
    assert (booked["calls"], booked["tokens"]) == (model.calls, model.tokens)
