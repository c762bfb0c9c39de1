"""What a distillation reads: a portion of an actor's lines, and the slots that they and its answer are about."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any
from uuid import UUID

from libs.contracts.events import Change
from libs.contracts.requests import ReadTranscript, Related, RelatedEntries, Transcript
from services.distiller.domain import Behind, LaneFailure, Portion, Question, changes_of, paths_of
from services.distiller.extractive import extracted
from services.distiller.llm import parse
from services.distiller.settings import DistillerSettings
from services.distiller.store import Lanes

CONTEXT_REACH = 20
PIECE_CHARS = 500  # about as much as is said of one thing

Ask = Callable[..., Awaitable[Any]]


class Reader:
    def __init__(self, settings: DistillerSettings, lanes: Lanes, ask: Ask) -> None:
        self._settings = settings
        self._lanes = lanes
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
        # Sessions that are gone say no epoch, and their lines nothing.
        source_epoch = min(epochs) if epochs else await self._lanes.erased_epoch(session_store_uid, actor_id)
        users = [line.asked for line in portion.lines if not line.asked.context and line.asked.role == "user"]
        # By the words of the lines, and by the paths that the built-in model would give them.
        paths = sorted(paths_of(await extracted(portion.asked, [])))
        # A long line may be about many things, each of which finds its entry.
        texts = [line.text[at : at + PIECE_CHARS] for line in users for at in range(0, len(line.text), PIECE_CHARS)]
        related = await self._related(memory_store_uid, actor_id, texts, paths)
        return Question(
            lines=portion.without_echoes(related.entries).lines,
            ranges=portion.ranges,
            again_taken=portion.again_taken,
            complete=portion.complete,
            oldest_appended_at=portion.oldest_appended_at,
            related=related.entries,
            looked_up=paths,
            source_epoch=source_epoch,
            memory_epoch=related.epoch,
        )

    async def changes(self, memory_store_uid: UUID, actor_id: str, question: Question, text: str) -> list[Change]:
        """The validated changes of an answer, each decided on its slot as it is. Raises `LaneFailure`, `Retry`.

        A slot that was not offered, for it shares no word with the lines, is read now. The epochs stay those from
        before the question.
        """
        answer = parse(text)
        changes = changes_of(answer, question.lines, question.related)
        known = {*question.looked_up, *(entry.path for entry in question.related)}
        unknown = sorted(paths_of(answer) - known)
        if not unknown:
            return changes
        held = await self._related(memory_store_uid, actor_id, [], unknown)
        return changes_of(answer, question.lines, [*question.related, *held.entries])

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

    async def _related(self, store_uid: UUID, actor_id: str, texts: list[str], paths: list[str]) -> Related:
        related: Related = await self._ask(
            RelatedEntries(store_uid=store_uid, actor_id=actor_id, texts=texts, paths=paths), Related
        )
        if related.gone:
            raise LaneFailure("NOT_FOUND: the memory store was deleted")
        return related
