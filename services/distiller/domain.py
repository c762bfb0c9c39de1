"""The rules of distillation that need no I/O: what a line may be, what an answer may say, who owns a failure."""

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Literal
from uuid import UUID

from pydantic import BaseModel, ConfigDict

from libs.contracts.events import Change, Evidence, Range
from libs.contracts.limits import CHANGES_PER_BATCH, DESCRIPTION_CHARS, STATEMENT_CHARS
from libs.contracts.requests import Line, PrincipalType, RelatedEntry, StoredEntry, Transcript
from services.distiller.answer import Answer, AskedLine, KnownEntry, ProposedChange

Trigger = Literal["MANUAL_ONLY", "SCHEDULED", "CONTINUOUS"]
TRIGGERS: tuple[Trigger, ...] = ("MANUAL_ONLY", "SCHEDULED", "CONTINUOUS")

PATH = re.compile(r"(/[a-z0-9][a-z0-9_-]*){2}\.md")
PATH_CHARS = 200
LANE_DELAYS_S = (2.0, 8.0, 30.0, 120.0, 300.0)
PARKED_RETRY_S = 3600.0
OURS_DELAY_S = 2.0
AGAIN_LIMIT = 3
HEADER = re.compile(r"(?:^|\s)(?:/[\w-]+){2,}\.md\b")
CHARS_PER_TOKEN = 4
MARKED = re.compile(r"<memory>.*?(?:</memory>|$)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Pipeline:
    """`parent_uid`: of a replay's own pipeline, which nobody sees; it feeds a shadow store, and its parent pays."""

    pipeline_uid: UUID
    workspace_id: int
    display_name: str | None
    session_store_uid: UUID
    session_store_id: str
    memory_store_uid: UUID
    memory_store_id: str
    model: str | None
    instructions: str | None
    trigger: Trigger
    quiet_period_s: float
    max_wait_s: float
    daily_token_budget: int | None
    revision: int
    creator_type: PrincipalType
    creator: str
    create_time: datetime
    update_time: datetime
    parent_uid: UUID | None

    @property
    def name(self) -> str:
        return f"memory-pipelines/{self.pipeline_uid}"

    @property
    def payer_uid(self) -> UUID:
        return self.parent_uid or self.pipeline_uid


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to distil a lane until it expires; `token` fences what is committed, `marks` what came meanwhile.

    `consolidate`: when nothing is left to distil, the actor's memory is to be put in order.
    """

    pipeline: Pipeline
    actor_id: str
    token: int
    marks: int
    attempts: int
    max_lines: int | None
    run_id: int | None  # the run that is active meanwhile
    consolidate: bool

    @property
    def pipeline_uid(self) -> UUID:
        return self.pipeline.pipeline_uid


@dataclass(frozen=True, slots=True)
class Behind:
    """A session of a lane with something to distil: items after `after`, and lines `again` after a conflict."""

    session_uid: UUID
    session_id: str
    after: int
    wanted: int
    oldest_appended_at: datetime | None
    again: tuple[int, ...] = ()


# Who owns a failure decides what happens to the lane.


class LaneFailure(Exception):
    """The lane's: it tries again by itself a few times, then it is parked with this reason."""


class Truncated(LaneFailure):
    """The answer to so many lines was cut at the output limit: they fit in smaller portions."""

    def __init__(self, reason: str, lines: int = 0) -> None:
        super().__init__(reason)
        self.lines = lines


class ProviderFailure(Exception):
    """The provider's: nothing is wrong with the lane; it waits until the endpoint answers again."""

    def __init__(self, reason: str, provider: str, retry_after_s: float = 30.0) -> None:
        super().__init__(reason)
        self.provider = provider
        self.retry_after_s = retry_after_s


class OverBudget(Exception):
    """The pipeline has spent its tokens of the day: the lane waits until the next one, which is no failure."""


class Fenced(Exception):
    """The lease was lost to another worker: nothing of this one's work counts."""


class Numbered(BaseModel):
    """A line in a batch, with where it came from."""

    model_config = ConfigDict(frozen=True)

    asked: AskedLine
    session_uid: UUID
    position: int
    appended_at: datetime


class Question(BaseModel):
    """All that a distillation asks about, which its answer is checked against, also by another worker after a crash."""

    lines: list[Numbered]
    ranges: list[Range]
    again_left: dict[UUID, list[int]]
    complete: bool
    oldest_appended_at: datetime | None
    related: list[RelatedEntry]
    source_epoch: int
    memory_epoch: int

    @property
    def asked(self) -> list[AskedLine]:
        return [line.asked for line in self.lines]

    @property
    def has_evidence(self) -> bool:
        return any(not line.asked.context for line in self.lines)

    @property
    def ranges_with_lines(self) -> list[Range]:
        """The ranges, each with the lines that an answer may rest on."""
        positions: dict[UUID, list[int]] = {}
        for line in self.lines:
            if not line.asked.context:
                positions.setdefault(line.session_uid, []).append(line.position)
        return [reached.model_copy(update={"lines": positions.get(reached.session_uid, [])}) for reached in self.ranges]


class Overlaps(BaseModel):
    """Groups of entries that may say the same; one alone is too long for a statement."""

    groups: list[list[StoredEntry]]
    memory_epoch: int
    source_epoch: int

    @property
    def numbered(self) -> Iterator[tuple[int, StoredEntry]]:
        return enumerate((entry for group in self.groups for entry in group), start=1)


@dataclass
class Portion:
    """The lines of one distillation, being gathered session by session up to the limits."""

    max_lines: int
    max_tokens: int
    context_lines: int
    lines: list[Numbered] = field(default_factory=list)
    ranges: list[Range] = field(default_factory=list)
    tokens: int = 0
    evidence_lines: int = 0
    complete: bool = True
    again_left: dict[UUID, list[int]] = field(default_factory=dict)
    oldest_appended_at: datetime | None = None

    @property
    def full(self) -> bool:
        return self.evidence_lines >= self.max_lines or self.tokens >= self.max_tokens

    def add(self, behind: Behind, transcript: Transcript) -> None:
        """Takes what still fits of a session. A session that is gone counts as distilled."""
        if transcript.gone:
            self.ranges.append(self._range(behind, behind.wanted))
            return
        wanted = min(behind.wanted, transcript.last_position)
        unread = [position for position in behind.again if position > transcript.read_through]
        if unread:
            self.again_left[behind.session_uid] = unread
        fresh = [line for line in transcript.lines if line.position > behind.after or line.position in behind.again]
        before = [line for line in transcript.lines if line.position <= behind.after and line not in fresh]
        through = transcript.read_through
        if not any(not line.copied for line in fresh):
            self.ranges.append(self._range(behind, through))
            self.complete &= through >= wanted and not unread
            return
        for line in before[-self.context_lines :] if self.context_lines else ():
            self._take(behind, line, context=True)
        for line in fresh:
            if self.full:
                through = line.position - 1
                self.again_left[behind.session_uid] = [n for n in behind.again if n >= line.position]
                break
            self._take(behind, line, context=line.copied)
        self.oldest_appended_at = min(
            (time for time in (self.oldest_appended_at, behind.oldest_appended_at) if time is not None), default=None
        )
        self.ranges.append(self._range(behind, max(through, behind.after)))
        self.complete &= through >= wanted and not self.again_left.get(behind.session_uid)

    def _take(self, behind: Behind, line: Line, *, context: bool) -> None:
        text = MARKED.sub(" ", line.text).strip()
        if not text:
            return
        if len(text) > self.max_tokens * CHARS_PER_TOKEN:
            half = self.max_tokens * CHARS_PER_TOKEN // 2
            text = f"{text[:half]} […] {text[-half:]}"
        asked = AskedLine(number=len(self.lines) + 1, role=line.role, text=text, said_at=line.said_at, context=context)
        self.lines.append(
            Numbered(asked=asked, session_uid=behind.session_uid, position=line.position, appended_at=line.appended_at)
        )
        self.tokens += estimated_tokens(text)
        self.evidence_lines += not context

    def _range(self, behind: Behind, through: int) -> Range:
        return Range(session_uid=behind.session_uid, session_id=behind.session_id, after=behind.after, through=through)

    @property
    def asked(self) -> list[AskedLine]:
        return [line.asked for line in self.lines]

    def check_progress(self) -> None:
        """Raises `LaneFailure` when nothing would move: the same empty batch would come for ever."""
        moved = any(reached.through > reached.after for reached in self.ranges)
        if self.ranges and not moved and not self.evidence_lines and not self.complete:
            raise LaneFailure("no progress: the session's next line cannot be read")

    def without_echoes(self, related: Iterable[RelatedEntry]) -> "Portion":
        """What memory itself said is context only: a fact must not become its own evidence."""
        statements = [_plain(entry.statement) for entry in related if not entry.retired and entry.statement]
        lines = [
            line.model_copy(update={"asked": line.asked.model_copy(update={"context": True})})
            if not line.asked.context and _is_echo(line.asked, statements)
            else line
            for line in self.lines
        ]
        return replace(self, lines=lines)


def _is_echo(line: AskedLine, statements: Sequence[str]) -> bool:
    """Whether a line quotes memory. A user who says one known thing again restates it, which is evidence."""
    text = _plain(line.text)
    quoted = sum(statement in text for statement in statements)
    return quoted >= (1 if line.role == "assistant" else 2) or (quoted == 1 and bool(HEADER.search(line.text)))


def _plain(text: str) -> str:
    return " ".join(text.casefold().split())


def estimated_tokens(text: str) -> int:
    """About four characters a token; a bound for batches, not a bill."""
    return len(text) // CHARS_PER_TOKEN + 8


def known_entries(related: Iterable[RelatedEntry]) -> list[KnownEntry]:
    return [
        KnownEntry(path=entry.path, statement=entry.statement, kind=entry.kind)
        for entry in related
        if not entry.retired
    ]


def changes_of(answer: Answer, lines: Sequence[Numbered], related: Iterable[RelatedEntry]) -> list[Change]:
    """The validated changes of an answer, each with the entry and version that it was decided on.

    Raises `LaneFailure` when a change breaks a rule: half an answer is no answer.
    """
    evidence_by_number = {line.asked.number: line for line in lines if not line.asked.context}
    if len(answer.changes) > CHANGES_PER_BATCH:
        raise Truncated(f"more than {CHANGES_PER_BATCH} changes", len(evidence_by_number))
    by_path = {entry.path: entry for entry in related}
    changes: list[Change] = []
    for proposed in answer.changes:
        change = _change(proposed, evidence_by_number, by_path)
        if change.kind == "event" and change.op == "set" and _is_taken(change, by_path, changes):
            change = _beside(change)
        if change.op != "set" and (change.path not in by_path or by_path[change.path].retired):
            continue
        before = next((n for n in reversed(range(len(changes))) if changes[n].path == change.path), None)
        if before is not None and changes[before].statement == change.statement:
            changes[before] = _with_evidence(changes[before], change)
        else:
            changes.append(change)
    return changes


def _change(proposed: ProposedChange, lines: Mapping[int, Numbered], by_path: Mapping[str, RelatedEntry]) -> Change:
    if len(proposed.path) > PATH_CHARS or not PATH.fullmatch(proposed.path):
        raise LaneFailure("wrong shape: a path must be /<topic>/<slot>.md in a-z 0-9 _ -")
    sources = [lines[number] for number in proposed.evidence if number in lines]
    if not sources or len(sources) != len(proposed.evidence):
        raise LaneFailure("foreign evidence: a change must rest on lines of the batch")
    statement = " ".join(proposed.statement.split())
    if proposed.op == "set" and not 0 < len(statement) <= STATEMENT_CHARS:
        raise LaneFailure(f"wrong shape: a statement must have 1 to {STATEMENT_CHARS} characters")
    entry = by_path.get(proposed.path)
    positions: dict[UUID, list[int]] = {}
    for source in sources:
        positions.setdefault(source.session_uid, []).append(source.position)
    return Change(
        op=proposed.op,
        path=proposed.path,
        entry_id=entry.entry_id if entry else None,
        expected_version=entry.version if entry else None,
        statement=statement if proposed.op == "set" else None,
        description=proposed.description[:DESCRIPTION_CHARS] if proposed.op == "set" else None,
        kind=proposed.kind,
        said_by="assistant" if all(source.asked.role == "assistant" for source in sources) else "user",
        said_at=max(source.asked.said_at for source in sources),
        event_date=proposed.event_date,
        evidence=[Evidence(session_uid=uid, positions=sorted(set(found))) for uid, found in positions.items()],
    )


def _is_taken(change: Change, by_path: Mapping[str, RelatedEntry], earlier: Sequence[Change]) -> bool:
    """Whether the slot already tells of another event."""
    entry = by_path.get(change.path)
    told = [entry.statement] if entry is not None and not entry.retired else []
    told += [each.statement or "" for each in earlier if each.path == change.path]
    return bool(told) and change.statement not in told


def _beside(change: Change) -> Change:
    """An event is never superseded: another one that asks for its slot gets one of its own."""
    digest = hashlib.sha256((change.statement or "").encode("utf-8", "surrogatepass")).hexdigest()[:6]
    path = f"{change.path.removesuffix('.md')}-{digest}.md"
    return change.model_copy(update={"path": path, "entry_id": None, "expected_version": None})


def _with_evidence(change: Change, repeated: Change) -> Change:
    """The same statement of the same slot, said twice in one batch, is one change with both pieces of evidence."""
    evidence: dict[UUID, set[int]] = {}
    for piece in (*change.evidence, *repeated.evidence):
        evidence.setdefault(piece.session_uid, set()).update(piece.positions)
    return change.model_copy(
        update={"evidence": [Evidence(session_uid=uid, positions=sorted(found)) for uid, found in evidence.items()]}
    )


def lane_delay_s(attempts: int) -> float:
    """The pause after the n-th failure of a lane in a row; after the last, it is parked and tried again hourly."""
    return LANE_DELAYS_S[attempts - 1] if attempts <= len(LANE_DELAYS_S) else PARKED_RETRY_S
