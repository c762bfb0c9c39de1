"""What the distiller's endpoints take and answer."""

from collections.abc import Sequence
from dataclasses import asdict
from datetime import date
from typing import Annotated, Literal

from fastapi import Query
from pydantic import BaseModel, ConfigDict, Field

from libs.chassis.texts import Text
from libs.chassis.times import optional_rfc3339, rfc3339
from libs.contracts.routes import MEMORY_STORES, SESSION_STORES
from services.distiller.domain import Pipeline, Trigger
from services.distiller.llm import Models
from services.distiller.store import LaneView, Replay, Run
from services.distiller.store.lanes import LaneState
from services.distiller.store.replays import Counts, ReplayState
from services.distiller.store.runs import RunState
from services.distiller.store.usage import UsageRow

Size = Annotated[str | None, Query(alias="page_size")]
Token = Annotated[str | None, Query(alias="page_token")]


class DreamerPolicy(BaseModel):
    """How a pipeline distils; the name is the contract's.

    `enabled` is read by an update whose mask names it: false pauses, which is MANUAL_ONLY; true gives back the trigger
    that there was before, SCHEDULED where there was none.
    """

    model: Text | None = None
    instructions: Text | None = None
    trigger: Literal["MANUAL_ONLY", "SCHEDULED", "CONTINUOUS", "TRIGGER_UNSPECIFIED"] | None = None
    enabled: bool | None = None
    quiet_period_s: float | None = Field(default=None, ge=0, le=86_400)
    max_wait_s: float | None = Field(default=None, ge=0, le=86_400)
    daily_token_budget: int | None = Field(default=None, ge=0, le=2**63 - 1)


class PipelineBody(BaseModel):
    model_config = ConfigDict(extra="ignore")

    session_store: Text | None = None
    memory_store: Text | None = None
    display_name: Text | None = None
    dreamer_policy: DreamerPolicy = DreamerPolicy()
    etag: str | None = None


class RedriveBody(BaseModel):
    actor_id: Text | None = None


class ReplayBody(BaseModel):
    """Everybody, into the pipeline's own memory store, unless it says otherwise."""

    actor_id: Text | None = None
    memory_store: Text | None = None


class PolicyShape(BaseModel):
    model: str | None = None
    instructions: str | None = None
    trigger: Trigger
    enabled: bool
    quiet_period_s: float
    max_wait_s: float
    daily_token_budget: int | None = None


class PipelineShape(BaseModel):
    name: str
    display_name: str | None = None
    session_store: str
    memory_store: str
    dreamer_policy: PolicyShape
    model: str | None = Field(None, description="The older place of dreamer_policy.model.")
    effective_model: str | None = Field(
        None, description="What distils: that model by its first name, or the server's default where it names none."
    )
    error: str | None = Field(
        None,
        description="Why it cannot distil now: a store of it was deleted, also one that was made again under its name,"
        " its model is known no more, or its creator may not use it, read the one store or write the other.",
    )
    etag: str
    create_time: str
    update_time: str

    @classmethod
    def of(cls, pipeline: Pipeline, models: Models, error: str | None = None) -> "PipelineShape":
        model = models.get(pipeline.model)
        return cls(
            name=pipeline.name,
            display_name=pipeline.display_name,
            session_store=f"{SESSION_STORES}/{pipeline.session_store_id}",
            memory_store=f"{MEMORY_STORES}/{pipeline.memory_store_id}",
            dreamer_policy=PolicyShape(
                model=pipeline.model,
                instructions=pipeline.instructions,
                trigger=pipeline.trigger,
                enabled=pipeline.enabled,
                quiet_period_s=pipeline.quiet_period_s,
                max_wait_s=pipeline.max_wait_s,
                daily_token_budget=pipeline.daily_token_budget,
            ),
            model=pipeline.model,
            effective_model=model.name if model else None,
            error=error,
            etag=etag_of(pipeline),
            create_time=rfc3339(pipeline.create_time),
            update_time=rfc3339(pipeline.update_time),
        )


class PipelinePage(BaseModel):
    memory_pipelines: list[PipelineShape]
    next_page_token: str | None = None


class RunShape(BaseModel):
    name: str
    state: RunState
    error: str | None = None
    create_time: str
    end_time: str | None = None

    @classmethod
    def of(cls, run: Run) -> "RunShape":
        return cls(
            name=run.name,
            state=run.state,
            error=run.error,
            create_time=rfc3339(run.create_time),
            end_time=optional_rfc3339(run.end_time),
        )


class RunPage(BaseModel):
    pipeline_runs: list[RunShape]
    next_page_token: str | None = None


class ReplayedActors(BaseModel):
    """Of `total`: how many are swapped, and how many could not be; who is erased meanwhile is neither."""

    total: int
    swapped: int
    failed: int


class ReplayShape(BaseModel):
    name: str
    state: ReplayState
    error: str | None = None
    actor_id: str | None = None
    memory_store: str
    actors: ReplayedActors
    create_time: str
    end_time: str | None = None

    @classmethod
    def of(cls, replay: Replay, counts: Counts) -> "ReplayShape":
        return cls(
            name=replay.name,
            state=replay.state,
            error=replay.error,
            actor_id=replay.actor_id,
            memory_store=f"{MEMORY_STORES}/{replay.into_store_id}",
            actors=ReplayedActors(total=counts.total, swapped=counts.swapped, failed=counts.failed),
            create_time=rfc3339(replay.create_time),
            end_time=optional_rfc3339(replay.end_time),
        )


class ReplayPage(BaseModel):
    replays: list[ReplayShape]
    next_page_token: str | None = None


class LaneShape(BaseModel):
    """`behind`: positions known and not distilled. `due_time`: when it is worked on next."""

    actor_id: str
    state: LaneState
    behind: int
    attempts: int
    reason: str | None = None
    due_time: str | None = None

    @classmethod
    def of(cls, lane: LaneView) -> "LaneShape":
        return cls(
            actor_id=lane.actor_id,
            state=lane.state,
            behind=lane.behind,
            attempts=lane.attempts,
            reason=lane.reason,
            due_time=optional_rfc3339(lane.due_at),
        )


class LanePage(BaseModel):
    lanes: list[LaneShape]
    next_page_token: str | None = None


class Redriven(BaseModel):
    """`over_budget`: the pipeline's tokens of the day are spent, so its lanes wait for the next one all the same."""

    redriven: int
    over_budget: bool


class UsageShape(BaseModel):
    """Calls and tokens of one day (UTC), model and outcome; `cost` by the model's price, where it has one."""

    day: date
    model: str
    outcome: str
    calls: int
    prompt_tokens: int
    completion_tokens: int
    cost: float | None = None


class UsageList(BaseModel):
    usage: list[UsageShape]

    @classmethod
    def of(cls, rows: Sequence[UsageRow], models: Models) -> "UsageList":
        costs = [models.cost(row.model, row.prompt_tokens, row.completion_tokens) for row in rows]
        return cls(usage=[UsageShape(**asdict(row), cost=cost) for row, cost in zip(rows, costs, strict=True)])


def etag_of(pipeline: Pipeline) -> str:
    return f'"{pipeline.revision}"'
