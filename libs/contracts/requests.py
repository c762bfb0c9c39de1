"""Questions that one service asks another over the bus, with their answers. Every answer fits in `REPLY_BYTES`."""

from datetime import date, datetime
from typing import ClassVar, Literal
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field

from libs.contracts.events import AppliedChange, Kind, MemoriesDistilled, Speaker

Permission = Literal["READ", "WRITE"]
PrincipalType = Literal["USER", "SERVICE_PRINCIPAL"]


class Message(BaseModel):
    """A question names its subject; an answer has none. What was sent stays out of error texts, which reach logs."""

    model_config = ConfigDict(frozen=True, hide_input_in_errors=True)
    subject: ClassVar[str] = ""


class Line(Message):
    """A readable item: who said what, when. `copied` lines came with a fork: context, never evidence."""

    position: int
    role: Speaker
    text: str
    said_at: datetime
    appended_at: datetime
    copied: bool = False


class ReadTranscript(Message):
    """The readable items of a session after a position; `limit` lines and `max_bytes` of text at most."""

    subject: ClassVar[str] = "session.transcript.read"

    store_uid: UUID
    session_uid: UUID
    after: int
    limit: int = 100
    max_bytes: int = 256 * 1024


class Transcript(Message):
    """`read_through`: up to where the answer is complete, whether or not the items there exist or are readable."""

    gone: bool = False
    lines: list[Line] = Field(default_factory=list)
    last_position: int = 0
    read_through: int = 0
    copied_through: int = 0
    epoch: int = 0


class SessionsChanged(Message):
    """The sessions of a store with activity since a time, by (last_activity_time, session_uid), a page at a time.

    `empty_too`: also those without an item of their own.
    """

    subject: ClassVar[str] = "session.sessions.changed"

    store_uid: UUID
    since: datetime | None = None
    actor_id: str | None = None
    empty_too: bool = False
    cursor: str | None = None
    limit: int = 1000


class ChangedSession(Message):
    """Up to `copied_through`, its items came with a fork."""

    session_uid: UUID
    session_id: str
    actor_id: str
    last_position: int
    copied_through: int = 0
    last_activity_time: datetime


class ChangedSessions(Message):
    sessions: list[ChangedSession] = Field(default_factory=list)
    cursor: str | None = None
    gone: bool = False


class FindSession(Message):
    """The session of a name."""

    subject: ClassVar[str] = "session.session.find"

    store_uid: UUID
    session_id: str


class FoundSession(Message):
    """Nothing is set when there is no such session."""

    session_uid: UUID | None = None
    actor_id: str = ""
    last_position: int = 0


class AuthorizeStore(Message):
    """May this principal use this store? Ask by name (`store_id`) or by uid."""

    workspace_id: int
    principal_type: PrincipalType
    principal: str
    permission: Permission
    store_id: str | None = None
    store_uid: UUID | None = None


class AuthorizeSessionStore(AuthorizeStore):
    subject: ClassVar[str] = "session.store.authorize"


class AuthorizeMemoryStore(AuthorizeStore):
    subject: ClassVar[str] = "memory.store.authorize"


class StoreAuthorization(Message):
    """`store_uid` is absent when no such store exists in the workspace."""

    allowed: bool = False
    store_uid: UUID | None = None
    store_id: str | None = None


class RelatedEntries(Message):
    """The actor's entries at the paths, retired ones too, and the current ones nearest to the texts, without doubles.

    The best for each of the texts first, then the second best: `limit`, or as many as there are texts. One that the
    reply has no room for is clipped.
    """

    subject: ClassVar[str] = "memory.entries.related"

    store_uid: UUID
    actor_id: str
    texts: list[str]
    paths: list[str] = Field(default_factory=list)
    limit: int = 30


class RelatedEntry(Message):
    entry_id: str
    path: str
    version: int
    statement: str
    kind: Kind
    event_date: date | None = None
    retired: bool = False


class Related(Message):
    entries: list[RelatedEntry] = Field(default_factory=list)
    epoch: int = 0
    gone: bool = False


class ReadEntries(Message):
    """The actor's current entries that consolidation may rewrite, by uid, as many as fit in `max_bytes`.

    Left out are those of one session only, those over `REWRITABLE_BYTES`, and those that somebody brought back after
    they had been rewritten.
    """

    subject: ClassVar[str] = "memory.entries.read"

    store_uid: UUID
    actor_id: str
    session_store_uid: UUID
    after: UUID | None = None
    max_bytes: int = 256 * 1024


class StoredEntry(Message):
    """`terms`: what the entry is found by; none for one that is too long to be a statement."""

    entry_id: str
    path: str
    version: int
    statement: str
    description: str = ""
    kind: Kind
    said_by: Speaker
    last_said_at: datetime
    event_date: date | None = None
    terms: list[str] = Field(default_factory=list)


class EntriesRead(Message):
    """`after` continues the reading; the epochs are those before the entries were read."""

    entries: list[StoredEntry] = Field(default_factory=list)
    after: UUID | None = None
    memory_epoch: int = 0
    source_epoch: int = 0
    gone: bool = False


class ApplyBatch(Message):
    """Applies a batch and waits for it; a repeat gets the stored outcome, as over the event."""

    subject: ClassVar[str] = "memory.batch.apply"

    batch: MemoriesDistilled

    @property
    def store_uid(self) -> UUID:
        return self.batch.store_uid


class BatchApplied(Message):
    outcomes: list[AppliedChange]


class FindLacking(Message):
    """Which of these batches a memory store has never applied; none of a store that is gone."""

    subject: ClassVar[str] = "memory.batches.lacking"

    store_uid: UUID
    batch_ids: list[UUID]


class LackingBatches(Message):
    batch_ids: list[UUID] = Field(default_factory=list)


class ShadowStore(Message):
    """Makes a store that nobody sees, in which a replay gathers what it will put into another."""

    subject: ClassVar[str] = "memory.store.shadow"

    workspace_id: int
    store_uid: UUID
    of_store_uid: UUID


class StoreShadowed(Message):
    """`gone`: the store to be shadowed does not exist."""

    gone: bool = False


class SwapMemories(Message):
    """Puts an actor's entries of a shadow store in the place of those that a pipeline wrote, in one transaction.

    `keeps_up`: that pipeline writes to this store itself, so nothing is swapped while the shadow knows less than it.
    `source_epoch`: how often the actor was erased in the session store, as far as the replay knows.
    """

    subject: ClassVar[str] = "memory.actor.swap"

    swap_id: UUID
    store_uid: UUID
    shadow_uid: UUID
    actor_id: str
    pipeline_uid: UUID
    session_store_uid: UUID
    source_epoch: int
    keeps_up: bool


class KnownSession(Message):
    """Up to where a store knows a session."""

    session_uid: UUID
    session_id: str
    position: int


class MemoriesSwapped(Message):
    """`erased`: the actor was, since it was replayed; `gone`: the store, or what the replay had gathered.

    `behind`: the shadow knows less than the store; `ahead` are sessions that the store knows better, not always all.
    `made_ago_s`: how long ago a swap was made that was asked for before.
    """

    outcome: Literal["swapped", "behind", "erased", "gone"]
    ahead: list[KnownSession] = Field(default_factory=list)
    made_ago_s: float = 0.0


class WithdrawSwap(Message):
    """A swap is no more wanted: one that was not made is never made after the answer."""

    subject: ClassVar[str] = "memory.swap.withdraw"

    swap_id: UUID
    store_uid: UUID
    shadow_uid: UUID
    actor_id: str


class SwapWithdrawn(Message):
    """Whether the swap was made after all, before this was asked, and then how long ago."""

    swapped: bool
    made_ago_s: float = 0.0


class HastenLane(Message):
    """Somebody waits for this session to be distilled into this store: make its lanes due at once."""

    subject: ClassVar[str] = "distiller.lane.hasten"

    memory_store_uid: UUID
    actor_id: str
    session_store_id: str
    session_id: str
    workspace_id: int


class LaneHastened(Message):
    reason: Literal["due", "manual", "parked", "none"]


class Refused(Message):
    """The answer when a question cannot be answered now: ask again, or report a fault.

    `undone`: nothing was written. Without it that is not known.
    """

    error: str
    retry: bool = True
    undone: bool = False
