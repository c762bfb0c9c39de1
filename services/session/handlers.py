"""What the session service answers to the other services, and whose confirmations it hears."""

from datetime import datetime

from libs.chassis.stores import Stores
from libs.chassis.unit_of_work import UnitOfWork
from libs.contracts.events import DistillerActorErased, MemoryActorErased
from libs.contracts.limits import REPLY_BYTES
from libs.contracts.requests import (
    AuthorizeSessionStore,
    ChangedSessions,
    FindSession,
    FoundSession,
    Line,
    ReadTranscript,
    SessionsChanged,
    StoreAuthorization,
    Transcript,
)
from services.session.domain.messages import cut_to, json_size, text_of
from services.session.domain.splitting import instant_of
from services.session.store.erasures import Erasures
from services.session.store.transcripts import StoredLine, Transcripts

LINES_MAX = 1000
SESSIONS_MAX = 1000
LINE_FRAME_BYTES = 300  # of a line's JSON, beside its text


class Handlers:
    def __init__(self, stores: Stores, transcripts: Transcripts, erasures: Erasures, unit_of_work: UnitOfWork) -> None:
        self._stores = stores
        self._transcripts = transcripts
        self._erasures = erasures
        self._unit_of_work = unit_of_work

    async def on_distiller_actor_erased(self, event: DistillerActorErased) -> None:
        async with self._unit_of_work.begin() as tx:
            await self._erasures.confirm_distiller(tx, event.store_uid, event.erasure_id, event.removed)
            await self._erasures.raise_epoch(tx, event.store_uid, event.actor_id, event.known_epoch)

    async def on_memory_actor_erased(self, event: MemoryActorErased) -> None:
        async with self._unit_of_work.begin() as tx:
            await self._erasures.confirm_memory(tx, event.store_uid, event.erasure_id, event.removed)
            await self._erasures.raise_epoch(tx, event.store_uid, event.actor_id, event.known_epoch)

    async def read_transcript(self, request: ReadTranscript) -> Transcript:
        """The readable lines after a position, as many as fit; a line too large for any answer is cut visibly."""
        limit = min(max(request.limit, 1), LINES_MAX)
        room = min(max(request.max_bytes, 1024), REPLY_BYTES - 4096)
        stored = await self._transcripts.read(
            request.store_uid, request.session_uid, after=request.after, limit=limit, max_bytes=room
        )
        if stored is None:
            return Transcript(gone=True)
        lines: list[Line] = []
        left, read_through, is_whole = room, request.after, stored.is_whole
        for line in stored.lines:
            text = cut_to(text_of(line.data), room - LINE_FRAME_BYTES)
            size = json_size(text) + LINE_FRAME_BYTES
            if size > left:
                is_whole = False
                break
            left -= size
            read_through = line.position
            if text:
                lines.append(_line(line, text, stored.copied_through))
        return Transcript(
            lines=lines,
            last_position=stored.last_position,
            read_through=stored.last_position if is_whole else read_through,
            copied_through=stored.copied_through,
            epoch=stored.epoch,
        )

    async def sessions_changed(self, request: SessionsChanged) -> ChangedSessions:
        return await self._transcripts.changed(
            request.store_uid,
            since=request.since,
            actor_id=request.actor_id,
            empty_too=request.empty_too,
            cursor=request.cursor,
            limit=min(max(request.limit, 1), SESSIONS_MAX),
        )

    async def find_session(self, request: FindSession) -> FoundSession:
        return await self._transcripts.find(request.store_uid, request.session_id)

    async def authorize_store(self, request: AuthorizeSessionStore) -> StoreAuthorization:
        return await self._stores.authorize(request)


def _line(line: StoredLine, text: str, copied_through: int) -> Line:
    return Line(
        position=line.position,
        role="user" if line.role == "user" else "assistant",
        text=text,
        said_at=_said_at(line),
        appended_at=line.create_time,
        copied=line.position <= copied_through,
    )


def _said_at(line: StoredLine) -> datetime:
    """In the zone in which it was said; by whatever clock, it was said before it was appended."""
    if line.occurred_at is None:
        return line.create_time
    occurred = instant_of(line.occurred_at)
    return min(occurred, line.create_time.astimezone(occurred.tzinfo))
