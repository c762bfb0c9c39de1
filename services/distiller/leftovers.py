"""What becomes of a change that memory did not take, whoever had it applied: nothing is lost silently.

In a conflict, somebody has written the slot since: the lines of the change are distilled once more, on what is there
now, each at most `AGAIN_LIMIT` times. A change whose lines were asked so often, or are gone, is parked with the reason,
and so is one that memory refuses. A redrive has their lines distilled once more: what they were decided on has passed.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, repeat
from uuid import UUID

from libs.chassis.errors import FailedPrecondition
from libs.chassis.parked import ParkedMessages
from libs.chassis.unit_of_work import Tx
from libs.contracts.events import AppliedChange, Change, MemoriesDistilled
from libs.contracts.ids import uuid7
from services.distiller.domain import AGAIN_LIMIT
from services.distiller.store import Lanes

Left = tuple[Change, AppliedChange]


def is_left(applied: AppliedChange) -> bool:
    """Whether a change was not taken, although nobody wants it gone."""
    return applied.outcome in ("conflict", "refused")


def left_of(
    batch: MemoriesDistilled, outcomes: Sequence[AppliedChange], before: Sequence[AppliedChange] = ()
) -> list[Left]:
    """The changes of a batch that memory did not take; without those that it did not `before`, which were seen to.

    The rewrites of a consolidation, whose outcomes come last, are none: one that comes too late has lost nothing.
    """
    known = chain(map(is_left, before), repeat(False))
    return [
        (change, applied)
        for change, applied, is_known in zip(batch.changes, outcomes, known, strict=False)
        if is_left(applied) and not is_known
    ]


class Leftovers:
    def __init__(self, lanes: Lanes, parked: ParkedMessages) -> None:
        self._lanes = lanes
        self._parked = parked

    async def keep(self, tx: Tx, batch: MemoriesDistilled, left: Sequence[Left]) -> None:
        """Sees to what is left of a batch."""
        conflicts = [change for change, applied in left if applied.outcome == "conflict"]
        again = await self._ask_again(tx, batch, conflicts, AGAIN_LIMIT)
        for change, applied in left:
            reason = _reason(change, again) if applied.outcome == "conflict" else applied.reason or "refused"
            if reason is not None:
                only = batch.model_copy(
                    update={"batch_id": uuid7(), "event_id": uuid7(), "changes": [change], "ranges": []}
                )
                await self._parked.park_in(tx, only.subject, only.model_dump_json().encode(), reason, 1)

    async def redrive(self, tx: Tx, payload: str) -> None:
        """Has the lines of a parked change distilled as if for the first time.

        Raises `FailedPrecondition` when they are gone.
        """
        batch = MemoriesDistilled.model_validate_json(payload)
        again = await self._ask_again(tx, batch, batch.changes, None)
        if any(_reason(change, again) is not None for change in batch.changes):
            raise FailedPrecondition("The lines that this rests on are gone, so it can only be dropped.")

    async def _ask_again(
        self, tx: Tx, batch: MemoriesDistilled, changes: Sequence[Change], limit: int | None
    ) -> Mapping[UUID, set[int]]:
        lines = _lines(changes)
        return await self._lanes.ask_again(tx, batch.pipeline_uid, batch.actor_id, lines, limit) if lines else {}


def _lines(changes: Iterable[Change]) -> set[tuple[UUID, int]]:
    return {
        (evidence.session_uid, position)
        for change in changes
        for evidence in change.evidence
        for position in evidence.positions
    }


def _reason(change: Change, again: Mapping[UUID, set[int]]) -> str | None:
    """Why a change that conflicted is not asked again; None when all its lines that are left will be."""
    left = [evidence for evidence in change.evidence if evidence.session_uid in again]
    if not left:
        return "conflict, and its lines are gone"
    if all(again[evidence.session_uid].issuperset(evidence.positions) for evidence in left):
        return None
    return f"conflict, {AGAIN_LIMIT} times"
