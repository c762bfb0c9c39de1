"""Pipelines, which distil a session store's conversations into a memory store, and their runs and lanes."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from memstream.transport import Transport, bare, segment
from memstream.values import given, time_of

COLLECTION = "memory-pipelines"


@dataclass(frozen=True)
class PipelineRun:
    """`state` is PENDING, RUNNING, SUCCEEDED, FAILED or CANCELED."""

    name: str
    state: str | None = None
    error: str | None = None
    create_time: datetime | None = None
    end_time: datetime | None = None

    @property
    def id(self) -> str:
        return self.name.rpartition("/")[2]

    @property
    def has_ended(self) -> bool:
        return self.state not in ("PENDING", "RUNNING")

    @classmethod
    def of(cls, raw: Mapping[str, Any]) -> PipelineRun:
        return cls(
            name=raw["name"],
            state=raw.get("state"),
            error=raw.get("error"),
            create_time=time_of(raw.get("create_time")),
            end_time=time_of(raw.get("end_time")),
        )


@dataclass(frozen=True)
class Lane:
    """Where the pipeline stands with one actor; `behind` is the number of items not yet distilled.

    `state` is settled, waiting, due, running, unanswered, waiting_provider or parked.
    """

    actor_id: str
    state: str | None = None
    behind: int = 0
    attempts: int = 0
    reason: str | None = None
    due_time: datetime | None = None

    @classmethod
    def of(cls, raw: Mapping[str, Any]) -> Lane:
        return cls(
            actor_id=raw["actor_id"],
            state=raw.get("state"),
            behind=int(raw.get("behind") or 0),
            attempts=int(raw.get("attempts") or 0),
            reason=raw.get("reason"),
            due_time=time_of(raw.get("due_time")),
        )


@dataclass(frozen=True)
class Pipeline:
    """A snapshot of a pipeline's record; its methods go to the server."""

    name: str
    session_store: str
    memory_store: str
    trigger: str
    display_name: str | None = None
    model: str | None = None
    instructions: str | None = None
    etag: str | None = None
    create_time: datetime | None = None
    update_time: datetime | None = None
    _transport: Transport = field(default=None, repr=False, compare=False)  # type: ignore[assignment]

    @property
    def id(self) -> str:
        return self.name.rpartition("/")[2]

    @classmethod
    def of(cls, raw: Mapping[str, Any], transport: Transport) -> Pipeline:
        policy = raw.get("dreamer_policy") or {}
        return cls(
            name=raw["name"],
            session_store=raw["session_store"],
            memory_store=raw["memory_store"],
            trigger=policy.get("trigger") or "MANUAL_ONLY",
            display_name=raw.get("display_name"),
            model=policy.get("model") or raw.get("model"),
            instructions=policy.get("instructions"),
            etag=raw.get("etag"),
            create_time=time_of(raw.get("create_time")),
            update_time=time_of(raw.get("update_time")),
            _transport=transport,
        )

    @property
    def _path(self) -> str:
        return f"/{COLLECTION}/{segment(self.id)}"

    def run(self) -> PipelineRun:
        """Starts a run over every actor; raises `Aborted` while one is active."""
        return PipelineRun.of(self._transport.send("POST", f"{self._path}/run", body={}, key=str(uuid.uuid4())))

    def get_run(self, run_id: str) -> PipelineRun:
        """By its number, or its whole name."""
        return PipelineRun.of(self._transport.get(f"{self._path}/runs/{segment(run_id.rpartition('/')[2])}"))

    def runs(self, *, page_size: int | None = None) -> Iterator[PipelineRun]:
        raws = self._transport.pages(f"{self._path}/runs", "pipeline_runs", page_size=page_size)
        return (PipelineRun.of(raw) for raw in raws)

    def lanes(
        self, *, state: str | None = None, actor_id: str | None = None, page_size: int | None = None
    ) -> Iterator[Lane]:
        params = {"state": state, "actor_id": actor_id}
        raws = self._transport.pages(f"{self._path}/lanes", "lanes", page_size=page_size, params=params)
        return (Lane.of(raw) for raw in raws)


class Pipelines:
    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def create(
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
    ) -> Pipeline:
        """A new pipeline; `trigger` is MANUAL_ONLY, SCHEDULED or CONTINUOUS. One per pair, else `AlreadyExists`."""
        raw = self._transport.send(
            "POST",
            f"/{COLLECTION}",
            body=given(
                session_store=f"session-stores/{bare('session-stores', session_store)}",
                memory_store=f"memory-stores/{bare('memory-stores', memory_store)}",
                display_name=display_name,
                dreamer_policy=given(
                    trigger=trigger,
                    model=model,
                    instructions=instructions,
                    quiet_period_s=quiet_period_s,
                    max_wait_s=max_wait_s,
                ),
            ),
            key=str(uuid.uuid4()),
        )
        return Pipeline.of(raw, self._transport)

    def list(self, *, page_size: int | None = None) -> Iterator[Pipeline]:
        raws = self._transport.pages(f"/{COLLECTION}", "memory_pipelines", page_size=page_size)
        return (Pipeline.of(raw, self._transport) for raw in raws)

    def get(self, name: str) -> Pipeline:
        """By its id, or as `memory-pipelines/<id>`."""
        raw = self._transport.get(f"/{COLLECTION}/{segment(bare(COLLECTION, name))}")
        return Pipeline.of(raw, self._transport)
