"""What a model was asked, and what it answered: the beginning of a batch, in its row.

asked → answered. An answer is kept before anything is done with it, so that the successor of a killed worker does not
pay again.
"""

from dataclasses import dataclass
from uuid import UUID

from pydantic import BaseModel, TypeAdapter

from libs.chassis.database import Database
from libs.chassis.unit_of_work import Tx
from services.distiller.domain import Fenced, Lease, Overlaps, Pipeline, Question
from services.distiller.store.usage import Spent

# Of an answer `b`: no other one has moved a watermark of its lane since it was asked for.
WANTED = (
    "not exists (select 1 from jsonb_to_recordset(b.question -> 'ranges') as r (session_uid uuid, after bigint)"
    " left join lane_sessions s on s.pipeline_uid = b.pipeline_uid and s.actor_id = b.actor_id"
    "  and s.session_uid = r.session_uid where s.distilled_position is distinct from r.after)"
)
QUESTION: TypeAdapter[Question | Overlaps] = TypeAdapter(Question | Overlaps)


@dataclass(frozen=True, slots=True)
class Kept:
    """A paid answer, and what was asked."""

    batch_id: UUID
    question: Question | Overlaps
    answer: str


class Answers:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def kept(self, lease: Lease) -> Kept | None:
        """The answer that a killed worker had paid for, unless another one has moved a watermark of its since."""
        row = await self._database.fetchrow(
            "select b.batch_id, b.question, b.answer from batches b"
            f" where b.pipeline_uid = $1 and b.actor_id = $2 and b.state = 'answered' and {WANTED}"
            " order by b.created_at desc limit 1",
            lease.pipeline_uid,
            lease.actor_id,
        )
        return None if row is None else Kept(row["batch_id"], QUESTION.validate_json(row["question"]), row["answer"])

    async def asked(self, lease: Lease, pipeline: Pipeline, batch_id: UUID, question: BaseModel) -> None:
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

    async def answered(self, tx: Tx, batch_id: UUID, answer: str, spent: Spent) -> bool:
        """Keeps an answer; False when nobody waits for it."""
        kept = await tx.execute(
            "update batches set state = 'answered', answer = $2, prompt_tokens = $3, completion_tokens = $4"
            " where batch_id = $1 and state = 'asked'",
            batch_id,
            answer,
            spent.prompt_tokens,
            spent.completion_tokens,
        )
        return kept == 1

    async def dropped(self, tx: Tx, batch_id: UUID) -> bool:
        """Forgets a question that got no answer; False when it was forgotten before."""
        return await tx.execute("delete from batches where batch_id = $1 and state = 'asked'", batch_id) == 1

    async def drop(self, batch_id: UUID) -> None:
        """A question whose answer is of no use."""
        await self._database.write(
            "delete from batches where batch_id = $1 and state in ('asked', 'answered')", batch_id
        )
