"""Batches: what was asked, what was answered, what was sent, and whether memory has it.

asked → answered → emitted → settled. An answer is kept before anything is done with it, so that the successor of a
killed worker does not pay again; what memory has not answered is sent again under the same `batch_id`.
"""

import json
from dataclasses import dataclass
from datetime import date
from uuid import UUID

from libs.chassis.database import Database
from libs.chassis.housekeeping import BATCH
from libs.chassis.unit_of_work import Tx
from libs.contracts.events import MemoriesDistilled
from services.distiller.domain import Fenced, Lease, Pipeline, Question


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


@dataclass(frozen=True, slots=True)
class Kept:
    """A paid answer, and what was asked."""

    batch_id: UUID
    question: Question
    answer: str


@dataclass(frozen=True, slots=True)
class Emitted:
    batch_id: UUID
    pipeline_uid: UUID
    actor_id: str
    event: str


async def expired(tx: Tx) -> int:
    """Drops settled batches after 7 days, and questions that nobody came back for after one."""
    return await tx.execute(
        "delete from batches where batch_id in (select batch_id from batches"
        " where (state = 'settled' and settled_at < now() - interval '7 days')"
        " or (state in ('asked', 'answered') and created_at < now() - interval '1 day') limit $1)",
        BATCH,
    )


class Batches:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def kept_answer(self, lease: Lease) -> Kept | None:
        """The answer that a killed worker had paid for, unless another one has moved a watermark of its since."""
        row = await self._database.fetchrow(
            "select b.batch_id, b.question, b.answer from batches b"
            " where b.pipeline_uid = $1 and b.actor_id = $2 and b.state = 'answered' and not exists ("
            "  select 1 from jsonb_to_recordset(b.question -> 'ranges') as r (session_uid uuid, after bigint)"
            "  left join lane_sessions s on s.pipeline_uid = b.pipeline_uid and s.actor_id = b.actor_id"
            "   and s.session_uid = r.session_uid where s.distilled_position is distinct from r.after)"
            " order by b.created_at desc limit 1",
            lease.pipeline_uid,
            lease.actor_id,
        )
        return (
            None if row is None else Kept(row["batch_id"], Question.model_validate_json(row["question"]), row["answer"])
        )

    async def asked(self, lease: Lease, pipeline: Pipeline, batch_id: UUID, question: Question) -> None:
        """Notes a question before it is paid for; what the lane had asked without an answer is forgotten.

        Raises `Fenced` without the lease: an erasure takes the lane away, and its lines must not come back here.
        """
        noted = await self._database.write(
            "with lane as (select 1 from lanes where pipeline_uid = $2 and actor_id = $3 and lease_token = $5"
            "  and lease_until is not null for share),"
            " forgotten as (delete from batches where pipeline_uid = $2 and actor_id = $3"
            "  and state in ('asked', 'answered') and exists (select 1 from lane))"
            " insert into batches (batch_id, pipeline_uid, actor_id, memory_store_uid, state, lease_token, question)"
            " select $1, $2, $3, $4, 'asked', $5, $6 from lane returning 1",
            batch_id,
            lease.pipeline_uid,
            lease.actor_id,
            pipeline.memory_store_uid,
            lease.token,
            question.model_dump_json(),
        )
        if not noted:
            raise Fenced

    async def answered(self, tx: Tx, batch_id: UUID, answer: str, spent: Spent) -> None:
        await tx.execute(
            "update batches set state = 'answered', answer = $2, prompt_tokens = $3, completion_tokens = $4"
            " where batch_id = $1 and state = 'asked'",
            batch_id,
            answer,
            spent.prompt_tokens,
            spent.completion_tokens,
        )

    async def drop(self, batch_id: UUID) -> None:
        """A question whose answer is of no use."""
        await self._database.write(
            "delete from batches where batch_id = $1 and state in ('asked', 'answered')", batch_id
        )

    async def emitted(self, tx: Tx, lease: Lease, pipeline: Pipeline, event: MemoriesDistilled) -> None:
        """Notes a batch on its way. Its statements are kept until memory answers, what it covered stays longer."""
        await tx.execute(
            "insert into batches (batch_id, pipeline_uid, actor_id, memory_store_uid, state, lease_token,"
            " event, ranges, emitted_at) values ($1, $2, $3, $4, 'emitted', $5, $6, $7, now())"
            " on conflict (batch_id) do update set state = 'emitted', event = excluded.event, ranges = excluded.ranges,"
            " emitted_at = now(), question = null, answer = null",
            event.batch_id,
            lease.pipeline_uid,
            lease.actor_id,
            pipeline.memory_store_uid,
            lease.token,
            event.model_dump_json(),
            json.dumps([each.model_dump(mode="json") for each in event.ranges]),
        )

    async def settle(self, tx: Tx, batch_id: UUID, outcomes: str) -> Emitted | None:
        """Marks a batch as answered by memory; None when it was settled before or is not ours."""
        row = await tx.fetchrow(
            "update batches b set state = 'settled', settled_at = now(), outcomes = $2, event = null"
            " from batches held where b.batch_id = $1 and b.state = 'emitted' and held.batch_id = b.batch_id"
            " returning b.batch_id, b.pipeline_uid, b.actor_id, held.event",
            batch_id,
            outcomes,
        )
        return None if row is None else Emitted(**row)

    async def claim_unanswered(self, tx: Tx, after_s: float, limit: int) -> list[Emitted]:
        """Batches that memory has not answered in time; each goes to one replica, and comes up again ever later."""
        rows = await tx.fetch(
            "update batches b set emitted_at = now(), emissions = emissions + 1 from ("
            "  select batch_id, emitted_at from batches where state = 'emitted'"
            "  and emitted_at < now() - make_interval(secs => $1 * 2 ^ least(emissions, 6))"
            "  order by emitted_at limit $2) seen"
            " where b.batch_id = seen.batch_id and b.emitted_at = seen.emitted_at and b.state = 'emitted'"
            " returning b.batch_id, b.pipeline_uid, b.actor_id, b.event",
            after_s,
            limit,
        )
        return [Emitted(**row) for row in rows]

    async def tokens_today(self, pipeline_uid: UUID) -> int:
        """What the calls of a pipeline have cost since midnight UTC."""
        return int(
            await self._database.fetchval(
                "select coalesce(sum(prompt_tokens + completion_tokens), 0) from usage"
                " where pipeline_uid = $1 and day = (now() at time zone 'UTC')::date",
                pipeline_uid,
            )
        )

    async def usage(self, pipeline_uid: UUID, since: date | None, until: date | None) -> list[UsageRow]:
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

    async def spend(self, tx: Tx, pipeline: Pipeline, spent: Spent) -> None:
        """Books a call on its pipeline and day (UTC)."""
        await tx.execute(
            "insert into usage as u (pipeline_uid, day, model, outcome, workspace_id, calls, prompt_tokens,"
            " completion_tokens) values ($1, (now() at time zone 'UTC')::date, $2, $3, $4, 1, $5, $6)"
            " on conflict (pipeline_uid, day, model, outcome) do update set calls = u.calls + 1,"
            " prompt_tokens = u.prompt_tokens + excluded.prompt_tokens,"
            " completion_tokens = u.completion_tokens + excluded.completion_tokens",
            pipeline.pipeline_uid,
            spent.model,
            spent.outcome,
            pipeline.workspace_id,
            spent.prompt_tokens,
            spent.completion_tokens,
        )

    async def forget_actor(self, tx: Tx, memory_store_uid: UUID, actor_id: str) -> int:
        """Drops an actor's batches for a memory store, and frees the lanes that waited for them."""
        await tx.execute(
            "update lanes l set pending_batch = null from batches b where b.memory_store_uid = $1 and b.actor_id = $2"
            " and l.pipeline_uid = b.pipeline_uid and l.actor_id = b.actor_id and l.pending_batch = b.batch_id",
            memory_store_uid,
            actor_id,
        )
        return await tx.execute(
            "delete from batches where memory_store_uid = $1 and actor_id = $2", memory_store_uid, actor_id
        )
