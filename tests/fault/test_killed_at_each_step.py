"""kill -9 at each step of a distillation: the facts of an undisturbed run, and nobody pays for the same lines twice.

Where the answer had not arrived nothing was paid, so every line is asked exactly once, whatever the step.
"""

import json
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support import scripted_model as scripted
from tests.support.cluster import Cluster, cluster
from tests.support.kill_points import KILL_POINTS, KillPoints
from tests.support.ledger import Fact, Ledger, Line
from tests.support.load import Load, judged
from tests.support.scripted_model import ScriptedModel, scripted_model
from tests.support.servers import PostgresServer
from tests.support.service import until


@dataclass(frozen=True)
class Killable:
    cluster: Cluster
    points: KillPoints
    model: ScriptedModel


@pytest.fixture(scope="module", params=[1, 3], ids=["one replica", "three replicas"])
async def killable(
    postgres: PostgresServer, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Killable]:
    directory: Path = tmp_path_factory.mktemp("kill-points")
    async with scripted_model() as model:
        settings = {"distiller": {"OPENAI_BASE_URL": model.url, "MODEL": "scripted"}}
        replicas = {"distiller": request.param, "memory": request.param}
        async with cluster(postgres, replicas=replicas, settings=settings, kill_points=directory) as running:
            yield Killable(running, KillPoints(directory), model)


def told(text: str) -> Line:
    fact = scripted.note(1, text)
    data = json.dumps({"type": "message", "role": "user", "content": text})
    return Line(data, Fact(fact["path"], fact["statement"]))


def texts(point: str, who: str) -> Iterator[str]:
    for number in range(3):
        yield f"This is {who} number {number} of {point.replace('_', ' ')}"


@pytest.mark.parametrize("point", KILL_POINTS)
async def test_a_kill_changes_no_fact_and_no_line_is_paid_for_twice(
    killable: Killable, ledger: Ledger, point: str
) -> None:
    running, model = killable.cluster, killable.model
    load = Load(running, ledger, seed=0)
    actors = [f"{who}-{point}" for who in ("ana", "bo", "cy")]
    for actor in actors:
        await running.make_session(f"s-{actor}", actor)
    await running.ready()
    model.requests.clear()
    first, *rest = [(actor, text) for actor in actors for text in texts(point, actor)]

    killable.points.arm(point)
    await load.append(f"s-{first[0]}", first[0], [told(first[1])])
    await until(lambda: not killable.points.is_armed(point))
    for actor, text in rest:
        await load.append(f"s-{actor}", actor, [told(text)])

    await judged(running, ledger)
    asked = Counter(text for request in model.requests for _, text in scripted.asked_lines(request))
    assert asked == Counter(text for _, text in (first, *rest))
