"""What a distillation reads before it asks: a portion of an actor's lines, and the slots that they are about."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any
from uuid import UUID

from libs.contracts.requests import ReadTranscript, Related, RelatedEntries, Transcript
from services.distiller.domain import Behind, LaneFailure, Portion, Question
from services.distiller.extractive import extracted
from services.distiller.settings import DistillerSettings

CONTEXT_REACH = 20
TEXT_CHARS = 500

Ask = Callable[..., Awaitable[Any]]


class Reader:
    def __init__(self, settings: DistillerSettings, ask: Ask) -> None:
        self._settings = settings
        self._ask = ask

    async def question(
        self,
        session_store_uid: UUID,
        memory_store_uid: UUID,
        actor_id: str,
        behind: Sequence[Behind],
        max_lines: int | None = None,
    ) -> Question:
        """Reads sessions from their watermarks up to the limits of one batch. Raises `LaneFailure`, `Retry`."""
        settings = self._settings
        portion = Portion(max_lines or settings.batch_lines, settings.batch_tokens, settings.context_lines)
        # The least that any read saw: what was read before an erasure must not pass as read after it.
        epochs: list[int] = []
        for session in behind:
            if portion.full:
                portion.complete = False
                break
            transcript = await self._transcript(session_store_uid, session, portion.max_lines)
            if not transcript.gone:
                epochs.append(transcript.epoch)
            portion.add(session, transcript)
        portion.check_progress()
        related = await self._related(memory_store_uid, actor_id, portion)
        return Question(
            lines=portion.without_echoes(related.entries).lines,
            ranges=portion.ranges,
            again_left=portion.again_left,
            complete=portion.complete,
            oldest_appended_at=portion.oldest_appended_at,
            related=related.entries,
            source_epoch=min(epochs, default=0),
            memory_epoch=related.epoch,
        )

    async def _transcript(self, store_uid: UUID, session: Behind, max_lines: int) -> Transcript:
        start = min((session.after, *(position - 1 for position in session.again)))
        read = await self._read(store_uid, session, max(0, start - CONTEXT_REACH), max_lines)
        if not read.gone and read.read_through <= start < session.wanted:
            # The lines before are so long that they fill the answer: without them, then.
            read = await self._read(store_uid, session, start, max_lines)
        return read

    async def _read(self, store_uid: UUID, session: Behind, after: int, max_lines: int) -> Transcript:
        read: Transcript = await self._ask(
            ReadTranscript(
                store_uid=store_uid,
                session_uid=session.session_uid,
                after=after,
                limit=max_lines + CONTEXT_REACH + 1,
            ),
            Transcript,
        )
        return read

    async def _related(self, memory_store_uid: UUID, actor_id: str, portion: Portion) -> Related:
        """By the words of the lines, and by the paths that the built-in model would give them."""
        guess = await extracted(portion.asked, [])
        users = [line.asked for line in portion.lines if not line.asked.context and line.asked.role == "user"]
        paths = sorted({change.path for change in guess.changes})
        related: Related = await self._ask(
            RelatedEntries(
                store_uid=memory_store_uid,
                actor_id=actor_id,
                texts=[line.text[:TEXT_CHARS] for line in users],
                paths=paths,
            ),
            Related,
        )
        if related.gone:
            raise LaneFailure("NOT_FOUND: the memory store was deleted")
        return related
