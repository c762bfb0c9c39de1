"""Pipelines, which distil a session store's conversations into a memory store, and their runs and lanes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any

from memstream.aio.stores import Bound
from memstream.aio.transport import Transport
from memstream.records import Lane, PipelineRun, Replay, Usage
from memstream.values import bare, changes, given, last_segment, one_of, segment, snapshot

COLLECTION = "memory-pipelines"
SESSION_STORES, MEMORY_STORES = "session-stores", "memory-stores"
TRIGGERS = ("MANUAL_ONLY", "SCHEDULED", "CONTINUOUS")


@dataclass(frozen=True)
class Pipeline(Bound):
    """A snapshot of a pipeline's record. Stores are in the form `session-stores/<name>`, `memory-stores/<id>`.

    `CONTINUOUS` distils an actor `quiet_period_s` after their last item, `max_wait_s` after the first at the latest;
    `SCHEDULED` about once a day; `MANUAL_ONLY` when it is run. `daily_token_budget` is per UTC day; None has no end.
    `error` says why it cannot distil now: a store of it was deleted, say, and another made under the same name.
    `effective_model` is what distils: `model`, or the server's default where that is None.
    """

    name: str
    session_store: str
    memory_store: str
    trigger: str
    display_name: str | None = None
    model: str | None = None
    effective_model: str | None = None
    instructions: str | None = None
    enabled: bool | None = None
    quiet_period_s: float | None = None
    max_wait_s: float | None = None
    daily_token_budget: int | None = None
    error: str | None = None
    etag: str | None = None
    create_time: datetime | None = None
    update_time: datetime | None = None

    @classmethod
    def of(cls, raw: Mapping[str, Any], transport: Transport) -> Pipeline:
        policy = raw.get("dreamer_policy") or {}
        said = {**raw, **given(**policy)}
        return snapshot(cls, said, trigger=policy.get("trigger") or "MANUAL_ONLY", _transport=transport)

    @property
    def id(self) -> str:
        return last_segment(self.name)

    @property
    def _path(self) -> str:
        return f"/{COLLECTION}/{segment(self.id)}"

    async def update(
        self,
        *,
        display_name: str | None = None,
        model: str | None = None,
        instructions: str | None = None,
        trigger: str | None = None,
        enabled: bool | None = None,
        quiet_period_s: float | None = None,
        max_wait_s: float | None = None,
        daily_token_budget: int | None = None,
        clear: Sequence[str] = (),
        etag: str | None = None,
    ) -> Pipeline:
        """Changes what is given and gives the fields named in `clear` their defaults; returns the new snapshot.

        `enabled=False` pauses it, which is `MANUAL_ONLY`; `True` gives back the trigger that it had, else `SCHEDULED`.
        With `etag` it raises `Aborted` when the pipeline has changed since. For its creator or an admin.
        """
        if trigger is not None:
            one_of("trigger", trigger, TRIGGERS)
        mask, body = changes(
            clear,
            display_name=display_name,
            model=model,
            instructions=instructions,
            trigger=trigger,
            enabled=enabled,
            quiet_period_s=quiet_period_s,
            max_wait_s=max_wait_s,
            daily_token_budget=daily_token_budget,
        )
        paths = (
            name if name == "display_name" else f"dreamer_policy.{name}" for name in mask["update_mask"].split(",")
        )
        policy = {name: value for name, value in body.items() if name != "display_name"}
        raw = await self._transport.send(
            "PATCH",
            self._path,
            params={"update_mask": ",".join(paths)},
            body={"name": self.name, "dreamer_policy": policy, **given(display_name=display_name, etag=etag)},
        )
        return Pipeline.of(raw, self._transport)

    async def delete(self) -> None:
        """With its runs and lanes; memories are kept. For its creator or an admin."""
        await self._transport.send("DELETE", self._path)

    async def run(self) -> PipelineRun:
        """Starts a run over everything that is stored now; raises `Aborted`, naming it, while one is active."""
        return snapshot(PipelineRun, await self._transport.create(f"{self._path}/run"))

    async def get_run(self, run_id: str) -> PipelineRun:
        """By its number, or its whole name."""
        number = segment(bare(f"{self.name}/runs", run_id))
        return snapshot(PipelineRun, await self._transport.get(f"{self._path}/runs/{number}"))

    async def runs(self, *, page_size: int | None = None) -> AsyncIterator[PipelineRun]:
        """The latest started first; `page_size` (1 to 100) a request."""
        async for raw in self._transport.pages(f"{self._path}/runs", "pipeline_runs", page_size=page_size):
            yield snapshot(PipelineRun, raw)

    async def lanes(
        self, *, state: str | None = None, actor_id: str | None = None, page_size: int | None = None
    ) -> AsyncIterator[Lane]:
        """Where it stands with each actor, by actor; `page_size` (1 to 100) a request. For its creator or an admin."""
        params = {"state": state, "actor_id": actor_id}
        async for raw in self._transport.pages(f"{self._path}/lanes", "lanes", page_size=page_size, params=params):
            yield snapshot(Lane, raw)

    async def redrive(self, actor_id: str | None = None) -> int:
        """Tries failing and parked lanes again at once, one actor's or all, as if for the first time; returns how many.

        `NotFound` for an actor of whom the pipeline knows nothing.
        """
        answer = await self._transport.send("POST", f"{self._path}/lanes:redrive", body=given(actor_id=actor_id))
        return int(answer.get("redriven") or 0)

    async def replay(self, *, actor_id: str | None = None, memory_store: str | None = None) -> Replay:
        """Distils everything again, of one actor or of all, and puts it in the place of what the pipeline had written.

        Into another store, to compare, it needs WRITE there and READ on the session store. Raises `Aborted`, naming it,
        while one is active. For the pipeline's creator or an admin.
        """
        target = f"{MEMORY_STORES}/{bare(MEMORY_STORES, memory_store)}" if memory_store is not None else None
        body = given(actor_id=actor_id, memory_store=target)
        return Replay.of(await self._transport.create(f"{self._path}:replay", body=body))

    async def replays(self, *, page_size: int | None = None) -> AsyncIterator[Replay]:
        """The latest started first, up to 30 days after their end; `page_size` (1 to 100) a request.

        For the pipeline's creator or an admin.
        """
        async for raw in self._transport.pages(f"{self._path}/replays", "replays", page_size=page_size):
            yield Replay.of(raw)

    async def get_replay(self, replay_id: str) -> Replay:
        """By its id, or its whole name. For the pipeline's creator or an admin."""
        return Replay.of(await self._transport.get(self._replay(replay_id)))

    async def cancel_replay(self, replay_id: str) -> None:
        """Who has no new memories yet keeps the old ones; one that is over stays as it is."""
        await self._transport.send("DELETE", self._replay(replay_id), is_safe=True)

    def _replay(self, replay_id: str) -> str:
        return f"{self._path}/replays/{segment(bare(f'{self.name}/replays', replay_id))}"

    async def usage(self, *, since: date | None = None, until: date | None = None) -> list[Usage]:
        """Calls and tokens by day (UTC), model and outcome; both ends are included. For its creator or an admin."""
        params = {"from": since and since.isoformat(), "to": until and until.isoformat()}
        answer = await self._transport.get(f"{self._path}/usage", params)
        return [snapshot(Usage, raw) for raw in answer.get("usage") or ()]


class Pipelines:
    """`AgentKitClient.pipelines`."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def create(
        self,
        *,
        session_store: str,
        memory_store: str,
        trigger: str = "MANUAL_ONLY",
        display_name: str | None = None,
        model: str | None = None,
        instructions: str | None = None,
        quiet_period_s: float | None = None,
        max_wait_s: float | None = None,
        daily_token_budget: int | None = None,
    ) -> Pipeline:
        """A new pipeline; one for a pair of stores, else `AlreadyExists`. Fields are explained at `Pipeline`.

        Needs READ on the session store and WRITE on the memory store. Stores are named bare or in their long form.
        """
        one_of("trigger", trigger, TRIGGERS)
        raw = await self._transport.create(
            f"/{COLLECTION}",
            body=given(
                session_store=f"{SESSION_STORES}/{bare(SESSION_STORES, session_store)}",
                memory_store=f"{MEMORY_STORES}/{bare(MEMORY_STORES, memory_store)}",
                display_name=display_name,
                dreamer_policy=given(
                    trigger=trigger,
                    model=model,
                    instructions=instructions,
                    quiet_period_s=quiet_period_s,
                    max_wait_s=max_wait_s,
                    daily_token_budget=daily_token_budget,
                ),
            ),
        )
        return Pipeline.of(raw, self._transport)

    async def list(self, *, page_size: int | None = None) -> AsyncIterator[Pipeline]:
        """Those both of whose stores the caller may read, the oldest first; `page_size` (1 to 100) a request."""
        async for raw in self._transport.pages(f"/{COLLECTION}", "memory_pipelines", page_size=page_size):
            yield Pipeline.of(raw, self._transport)

    async def get(self, name: str) -> Pipeline:
        """By its id, or as `memory-pipelines/<id>`."""
        raw = await self._transport.get(f"/{COLLECTION}/{segment(bare(COLLECTION, name))}")
        return Pipeline.of(raw, self._transport)
