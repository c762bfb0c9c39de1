"""The rules of entries: what a path is, which version is current, what a change does to its slot.

A slot's history is the sequence of what was said of it, by (valid_from, recorded_at, version); neighbours that say the
same are one. So the order in which conversations are imported changes nothing. Of what one session says in one moment
the last line holds, whenever it is told, and a line that is told again says nothing new.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from typing import Literal, NamedTuple
from uuid import UUID

from libs.contracts.events import AppliedChange, Change, Kind, Outcome, Speaker
from libs.contracts.ids import uuid7
from libs.contracts.limits import DESCRIPTION_CHARS, STATEMENT_CHARS

AGENT = "MANAGED_MEMORY_ENTRY_SOURCE_TYPE_AGENT"
DREAMER = "MANAGED_MEMORY_ENTRY_SOURCE_TYPE_DREAMER"
INT64 = 2**63 - 1
NAME_CHARS = 256

ChangeKind = Literal["set", "retired"]


@dataclass(frozen=True, slots=True)
class Value:
    """What a version says. A `retired` one says that nothing holds any more."""

    content: str | None
    description: str | None
    kind: Kind
    said_by: Speaker
    event_date: date | None = None
    retired: bool = False

    def says_the_same(self, other: "Value") -> bool:
        return self.retired == other.retired and (self.retired or self.content == other.content)


@dataclass(frozen=True, slots=True)
class Version:
    version: int
    value: Value
    valid_from: datetime
    recorded_at: datetime

    @property
    def in_order(self) -> tuple[datetime, datetime, int]:
        """What orders the versions of a slot."""
        return self.valid_from, self.recorded_at, self.version


@dataclass(frozen=True, slots=True)
class Entry:
    """A slot with its current version; a retired one is seen by nobody.

    `valid_from`: since when it says this without interruption. `last_version` and `last_recorded_at` count history too.
    """

    entry_uid: UUID
    entry_id: str
    actor_id: str
    session_id: str | None
    path: str
    version: int
    value: Value
    valid_from: datetime
    last_version: int
    last_recorded_at: datetime
    source_type: str
    create_time: datetime
    update_time: datetime


class Source(NamedTuple):
    """A line that something rests on."""

    session_uid: UUID
    position: int


@dataclass(frozen=True, slots=True)
class Held:
    """A version that held at a moment in which a line was said.

    `has_line`: it rests on that very line. `has_later`: it rests on a later line that this session said in the same
    moment. `restated_at`: when it was first said again after the moment.
    """

    version: Version
    has_line: bool = False
    has_later: bool = False
    restated_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Around:
    """The neighbours of a moment in a slot's history.

    `held`, in order: what held as it came, and what is valid from it. Nothing else rests on what was said then.
    """

    held: Sequence[Held] = ()
    after: Version | None = None

    @property
    def before(self) -> Version | None:
        return self.held[-1].version if self.held else None

    @property
    def is_past(self) -> bool:
        """Whether the session went on to say something else in the same moment, or the same again."""
        return any(each.has_later for each in self.held)

    def restated_at(self, at: datetime) -> datetime | None:
        """When `before` was said again after the line, said at `at`: in the same moment where the line is past."""
        if self.is_past:
            return at
        return self.held[-1].restated_at if self.held else None


@dataclass(frozen=True, slots=True)
class Addition:
    """A version to add; `is_current` when it comes last in the history of its slot."""

    value: Value
    at: datetime
    is_current: bool


@dataclass(frozen=True, slots=True)
class Plan:
    """What a change comes to: versions to add, the change's own first, or the version that its evidence supports.

    `holds_since`: from when on the slot then says what it says. The evidence of `splits` that was said after the change
    belongs to the last addition. `is_repeat`: the slot knew that this line says so.
    """

    outcome: Outcome
    add: Sequence[Addition] = ()
    holds_since: datetime | None = None
    supports: int | None = None
    splits: int | None = None
    is_repeat: bool = False
    reason: str | None = None


def path_problem(path: str, max_bytes: int) -> str | None:
    """Why this is no entry's path, or None."""
    if not path.startswith("/"):
        return "path must begin with '/'"
    if len(path.encode("utf-8", "surrogatepass")) > max_bytes:
        return f"path may have at most {max_bytes} bytes"
    if any(segment in ("", ".", "..") for segment in path[1:].split("/")):
        return "path must have no empty, '.' or '..' segment"
    if not is_storable(path):
        return "path must not contain NUL or half of a surrogate pair"
    return None


def prefix_problem(prefix: str, max_bytes: int) -> str | None:
    """As for a path, but one '/' may end it, and '/' alone means everything."""
    return None if prefix == "/" else path_problem(prefix.removesuffix("/") if prefix != "//" else prefix, max_bytes)


def prefix_end(prefix: str) -> str | None:
    """The least string after all that begin with `prefix`, in the order of code points; None when there is none."""
    while prefix:
        last = ord(prefix[-1])
        if last < 0x10FFFF:
            return prefix[:-1] + chr(0xE000 if last == 0xD7FF else last + 1)
        prefix = prefix[:-1]
    return None


def appended(existing: str | None, text: str) -> str:
    """`text` after `existing`, on lines of its own; unchanged when it stands there already as whole lines."""
    if not existing:
        return text
    if not text or f"\n{text}\n" in f"\n{existing}\n":
        return existing
    return f"{existing}\n{text}"


def first_version(
    actor_id: str,
    path: str,
    session_id: str | None,
    value: Value,
    at: datetime,
    *,
    recorded_at: datetime,
    source_type: str,
    entry_id: str | None = None,
) -> Entry:
    """A slot that was never there."""
    entry_uid = uuid7()
    return Entry(
        entry_uid=entry_uid,
        entry_id=entry_id or str(entry_uid),
        actor_id=actor_id,
        session_id=session_id,
        path=path,
        version=1,
        value=value,
        valid_from=at,
        last_version=1,
        last_recorded_at=recorded_at,
        source_type=source_type,
        create_time=recorded_at,
        update_time=recorded_at,
    )


def with_version(slot: Entry, recorded_at: datetime, holds_since: datetime) -> Entry:
    """A slot with one version more, which need not be the current one."""
    return replace(slot, valid_from=holds_since, last_version=slot.last_version + 1, last_recorded_at=recorded_at)


def made_current(slot: Entry, value: Value) -> Entry:
    """A slot whose last version is the current one."""
    is_revived = slot.value.retired and not value.retired
    return replace(
        slot,
        version=slot.last_version,
        value=value,
        create_time=slot.last_recorded_at if is_revived else slot.create_time,
        update_time=slot.last_recorded_at,
    )


def next_moment(now: datetime, slot: Entry | None) -> datetime:
    """When a write becomes known: now, but after all that the slot knows, whatever the clocks of replicas say."""
    return now if slot is None else max(now, slot.last_recorded_at + timedelta(microseconds=1))


def change_problem(change: Change, max_path_bytes: int) -> str | None:
    """Why a distiller's change is refused whatever the slot holds, or None."""
    problem = path_problem(change.path, max_path_bytes)
    texts = (change.statement, change.description, change.entry_id)
    if problem is None and not all(is_storable(text) for text in texts if text is not None):
        problem = "text must not contain NUL or half of a surrogate pair"
    elif problem is None and change.op == "set":
        problem = _statement_problem(change)
    elif problem is None and (change.entry_id is None or change.expected_version is None):
        problem = f"{change.op} must name the entry and the version that it was decided on"
    if problem is None and not _is_moment(change.said_at):
        problem = "said_at must be a time with an offset"
    if problem is None and not all(0 < at <= INT64 for each in change.evidence for at in each.positions):
        problem = "positions must be greater than 0"
    return problem


def _statement_problem(change: Change) -> str | None:
    if not change.statement or not change.statement.strip():
        return "set must have a statement"
    if len(change.statement) > STATEMENT_CHARS:
        return f"a statement may have at most {STATEMENT_CHARS} characters"
    if change.description is not None and len(change.description) > DESCRIPTION_CHARS:
        return f"a description may have at most {DESCRIPTION_CHARS} characters"
    return None


def value_of(change: Change, slot: Entry | None) -> Value:
    """What a change says: its statement, the statement that it confirms, or that nothing holds."""
    if change.op == "set":
        return Value(change.statement, change.description, change.kind, change.said_by, change.event_date)
    if slot is None:
        raise ValueError(f"{change.op} needs a slot")
    if change.op == "confirm":
        return slot.value
    return replace(slot.value, content=None, description=None, said_by=change.said_by, retired=True)


def last_line(change: Change) -> Source | None:
    """Of the lines that a change rests on the last, which it was said with."""
    lines = [Source(each.session_uid, max(each.positions)) for each in change.evidence if each.positions]
    return max(lines, default=None)


def plan(change: Change, slot: Entry | None, around: Around, at: datetime, *, goes_on: bool = False) -> Plan:
    """What a change does to its slot, given what was held around `at`, the time it was said.

    `goes_on`: the same batch has told something new of the slot by the same line before, which it follows.
    """
    if slot is None:
        if change.op == "retire":
            return Plan("gone", reason="the entry does not exist")
        if change.op == "confirm" or change.expected_version is not None:
            return Plan("conflict", reason="the entry does not exist")
        return Plan("applied", [Addition(value_of(change, None), at, is_current=True)], at)
    if change.op == "retire" and slot.value.retired:
        return Plan("gone", reason="the entry is retired")
    if change.op == "confirm" and slot.value.retired:
        return Plan("conflict", reason="the entry is retired")  # what was said again is still to be remembered
    is_as_decided = change.entry_id in (None, slot.entry_id) and change.expected_version == slot.version
    value = value_of(change, slot)
    same = [each for each in around.held if each.version.value.says_the_same(value)]
    known = [each for each in same if each.has_line and not goes_on]
    # What has given way within the moment holds for no time, so it is said once.
    is_there = same and (around.is_past or same[-1].version is around.before)
    # Whoever confirms says again what the entry said then, not what it says by now.
    if (known or is_there) and (change.op != "confirm" or is_as_decided):
        return Plan("confirmed", supports=(known or same)[-1].version.version, is_repeat=bool(known))
    if not is_as_decided:
        return Plan("conflict", reason=f"the entry is '{slot.entry_id}' at version {slot.version}")
    if change.op == "set" and slot.value.kind == "event" and not slot.value.retired:
        return Plan("refused", reason="an event is never superseded")
    return _insert(value, slot, around, at)


def _insert(value: Value, slot: Entry, around: Around, at: datetime) -> Plan:
    before, after, restated_at = around.before, around.after, around.restated_at(at)
    # What was said again and gave way in the same moment need not come back for it.
    if before is not None and restated_at is not None and (after is None or restated_at < after.valid_from):
        # What is said now held only until the one before was said again.
        again = Addition(before.value, restated_at, is_current=after is None)
        since = restated_at if at >= slot.valid_from else slot.valid_from
        return Plan("history", [Addition(value, at, is_current=False), again], since, splits=before.version)
    if after is None:
        return Plan("applied", [Addition(value, at, is_current=True)], at)
    since = slot.valid_from
    if at >= slot.valid_from:
        since = after.valid_from
    elif after.valid_from == slot.valid_from and all(each.says_the_same(value) for each in (after.value, slot.value)):
        since = at
    return Plan("history", [Addition(value, at, is_current=False)], since)


def holds_since(history: Sequence[Version]) -> datetime:
    """Since when a slot says without interruption what its last version says; `history` is in order."""
    last = history[-1]
    since = last.valid_from
    for version in reversed(history):
        if not version.value.says_the_same(last.value):
            break
        since = version.valid_from
    return since


def outcome(planned: Plan, entry: Entry | None, version: int | None) -> AppliedChange:
    return AppliedChange(
        outcome=planned.outcome,
        entry_id=None if entry is None else entry.entry_id,
        version=version if version is not None or entry is None else entry.version,
        reason=planned.reason,
    )


def all_of(changes: Sequence[Change], result: Outcome, reason: str) -> list[AppliedChange]:
    """The same outcome for every change of a batch that is not applied as a whole."""
    return [AppliedChange(outcome=result, entry_id=change.entry_id, reason=reason) for change in changes]


def in_utc(time: datetime) -> datetime:
    return time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)


def _is_moment(time: datetime) -> bool:
    try:
        return in_utc(time).year >= 1
    except (OverflowError, ValueError):
        return False


def is_name(text: str) -> bool:
    """Whether this can be an id that another service lets in; an index holds no longer ones."""
    return len(text) <= NAME_CHARS and is_storable(text)


def is_storable(text: str) -> bool:
    try:
        return "\x00" not in text and bool(text.encode() or True)
    except UnicodeEncodeError:
        return False
