"""A replay that tells everything anew, and what must be true of any replay that is over."""

import asyncio
import json
from typing import Any

from starlette.responses import Response

from libs.chassis.housekeeping import run_pass
from services.memory.store.purge import PURGE
from tests.support import scripted_model as scripted
from tests.support.scripted_model import asked_lines, note
from tests.support.service import chassis_of, until
from tests.support.system import System

FACTS = "/memory-stores/facts"


def again(text: str) -> str:
    return f"{text}, as told again"


async def second(body: dict[str, Any]) -> Response:
    """Words it anew, and keeps no gossip."""
    kept = [(number, text) for number, text in asked_lines(body) if "gossip" not in text]
    changes = [note(number, text) | {"statement": again(text)} for number, text in kept]
    return scripted.completion(json.dumps({"changes": changes}))


class Gate:
    """A behaviour that waits before it answers, once it is closed."""

    def __init__(self, behaviour: scripted.Behaviour) -> None:
        self._behaviour = behaviour
        self._open = asyncio.Event()
        self._open.set()
        self.waiting = 0

    def close(self) -> None:
        self._open.clear()

    def open(self) -> None:
        self._open.set()

    async def __call__(self, body: dict[str, Any]) -> Response:
        self.waiting += 1
        try:
            await self._open.wait()
        finally:
            self.waiting -= 1
        return await self._behaviour(body)


async def start(memstream: System, pipeline: str, **body: Any) -> dict[str, Any]:
    replay: dict[str, Any] = await memstream.call("POST", f"/{pipeline}:replay", json=body)
    assert replay["state"] == "PENDING"
    return replay


async def ended(memstream: System, replay: dict[str, Any]) -> dict[str, Any]:
    """The replay, once it is over."""
    found: dict[str, Any] = {}

    async def is_over() -> bool:
        found.update(await memstream.call("GET", f"/{replay['name']}"))
        return "end_time" in found

    await until(is_over, deadline_s=60)
    return found


async def search(memstream: System, query: str, actor: str = "ana", store: str = FACTS) -> list[str]:
    body = {"actor_id": actor, "query": query}
    answer = await memstream.call("POST", f"{store}/entries:search", json=body)
    return [hit["managed_memory_entry"]["content"] for hit in answer["results"]]


async def contents(memstream: System, actor: str = "ana", store: str = "facts") -> list[str]:
    return sorted((await memstream.memories(actor, store)).values())


async def put(memstream: System, path: str, content: str) -> dict[str, Any]:
    body = {"actor_id": "ana", "path": path, "content": content}
    entry: dict[str, Any] = await memstream.call("POST", f"{FACTS}/entries:put", json=body)
    return entry


async def nothing_is_left(memstream: System) -> None:
    """Of a replay: no pipeline, lane or held lane, no shadow store and no row of one."""
    distiller, memory = (chassis_of(memstream.apps[name]) for name in ("distiller", "memory"))

    async def is_clean() -> bool:
        await run_pass(memory.unit_of_work, PURGE)
        shadows = await memory.database.fetchval(
            "select (select count(*) from shadow_stores) + (select count(*) from purges)"
            " + (select count(*) from (select store_uid from entries union all select store_uid from progress"
            "  union all select store_uid from batches union all select store_uid from actor_stats) held"
            "  where store_uid not in (select store_uid from memory_stores))"
        )
        hidden = await distiller.database.fetchval(
            "select (select count(*) from pipelines where parent_uid is not null)"
            " + (select count(*) from lanes where held_by is not null)"
        )
        return bool(shadows == 0 and hidden == 0)

    await until(is_clean)
