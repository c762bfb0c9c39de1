"""What the calls of models cost, by day (UTC), model and outcome."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from uuid import UUID

from libs.chassis.database import Database
from libs.chassis.unit_of_work import Tx
from services.distiller.domain import Pipeline


@dataclass(frozen=True, slots=True)
class Spent:
    """What a call of a model cost, whether or not it helped."""

    model: str
    outcome: str
    prompt_tokens: int = 0
    completion_tokens: int = 0


@dataclass(frozen=True, slots=True)
class UsageRow:
    day: date
    model: str
    outcome: str
    calls: int
    prompt_tokens: int
    completion_tokens: int


class Usage:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def spent_budget(self, pipeline_uid: UUID) -> int | None:
        """A pipeline's daily budget of tokens where its calls since midnight UTC have spent it; else None."""
        row = await self._database.fetchrow(
            "select (select daily_token_budget from pipelines where pipeline_uid = $1) as daily,"
            " coalesce(sum(prompt_tokens + completion_tokens), 0)::bigint as spent from usage"
            " where pipeline_uid = $1 and day = (now() at time zone 'UTC')::date",
            pipeline_uid,
        )
        assert row is not None  # noqa: S101 - an aggregate answers one row
        budget: int | None = row["daily"]
        return budget if budget is not None and row["spent"] >= budget else None

    async def of_pipeline(self, pipeline_uid: UUID, since: date | None, until: date | None) -> list[UsageRow]:
        """The newest day first."""
        rows = await self._database.fetch(
            "select day, model, outcome, calls, prompt_tokens, completion_tokens from usage where pipeline_uid = $1"
            " and ($2::date is null or day >= $2) and ($3::date is null or day <= $3)"
            " order by day desc, model, outcome limit 10000",
            pipeline_uid,
            since,
            until,
        )
        return [UsageRow(**row) for row in rows]

    async def of_workspace(self, workspace_id: int, since: date | None, until: date | None) -> list[UsageRow]:
        """Of all pipelines, deleted ones too, and of extractions; the newest day first."""
        rows = await self._database.fetch(
            "select day, model, outcome, sum(calls)::bigint as calls, sum(prompt_tokens)::bigint as prompt_tokens,"
            " sum(completion_tokens)::bigint as completion_tokens from usage where workspace_id = $1"
            " and ($2::date is null or day >= $2) and ($3::date is null or day <= $3)"
            " group by day, model, outcome order by day desc, model, outcome limit 10000",
            workspace_id,
            since,
            until,
        )
        return [UsageRow(**row) for row in rows]

    async def spend(self, tx: Tx, pipeline: Pipeline, spent: Sequence[Spent]) -> None:
        """Books calls on their pipeline and day (UTC)."""
        for each in spent:
            await self.book(tx, pipeline.workspace_id, pipeline.payer_uid, each)

    async def book(self, tx: Tx, workspace_id: int, uid: UUID, spent: Spent) -> None:
        """Books a call on a workspace, on whatever `uid` names there, and on the day (UTC)."""
        await tx.execute(
            "insert into usage as u (pipeline_uid, day, model, outcome, workspace_id, calls, prompt_tokens,"
            " completion_tokens) values ($1, (now() at time zone 'UTC')::date, $2, $3, $4, 1, $5, $6)"
            " on conflict (pipeline_uid, day, model, outcome) do update set calls = u.calls + 1,"
            " prompt_tokens = u.prompt_tokens + excluded.prompt_tokens,"
            " completion_tokens = u.completion_tokens + excluded.completion_tokens",
            uid,
            spent.model,
            spent.outcome,
            workspace_id,
            spent.prompt_tokens,
            spent.completion_tokens,
        )
