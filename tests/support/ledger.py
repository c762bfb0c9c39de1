"""The independent judge: what clients sent and were told, against what the services show afterwards.

It never reads a counter of a service. Every item's bytes are unique, so that whatever is stored is explained by exactly
one line of one append, or by none, which is a fault.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

FaultKind = Literal[
    "lost", "doubled", "changed", "order", "position", "fact lost", "fact doubled", "fact wrong", "left"
]
Told = Literal["nothing", "acknowledged", "refused"]


@dataclass(frozen=True, slots=True)
class Fact:
    """What a line must become in its actor's memory."""

    path: str
    statement: str


@dataclass(frozen=True, slots=True)
class Line:
    """One item as its JSON was sent, and the fact that it states, if any."""

    data: str
    fact: Fact | None = None


@dataclass(eq=False, slots=True)
class Append:
    """One append of a client, over all its tries. `told` is `nothing` while its outcome is unknown."""

    session: str
    actor: str
    lines: tuple[Line, ...]
    key: str | None
    begun: int
    told: Told = "nothing"
    answers: list[tuple[int, ...]] = field(default_factory=list)
    acknowledged_at: float = math.inf
    tries: int = 0


@dataclass(frozen=True, slots=True)
class StoredItem:
    """An item as the session service lists it: its `data` byte for byte."""

    position: int
    data: str


@dataclass(frozen=True, slots=True)
class StoredEntry:
    """A current entry as the memory service lists it; evidence as (session, positions)."""

    path: str
    statement: str
    version: int
    evidence: tuple[tuple[str, tuple[int, ...]], ...]


@dataclass(frozen=True, slots=True)
class Distilled:
    """A stretch of a session that a settled batch covers: after `after`, up to and with `through`."""

    session: str
    after: int
    through: int


@dataclass(frozen=True, slots=True)
class Fault:
    kind: FaultKind
    what: str


class Ledger:
    """Written by the load as it goes; read once, when everything has come to rest."""

    def __init__(self) -> None:
        self.appends: list[Append] = []
        self._line_of: dict[str, Line] = {}
        self._clock = 0

    def begin(self, session: str, actor: str, lines: Sequence[Line], key: str | None = None) -> Append:
        """Call before the first byte is sent."""
        for line in lines:
            if line.data in self._line_of:
                raise ValueError(f"the ledger needs unique items, and has this one: {line.data}")
            self._line_of[line.data] = line
        append = Append(session, actor, tuple(lines), key, self._tick())
        self.appends.append(append)
        return append

    def acknowledge(self, append: Append, positions: Iterable[int]) -> None:
        """A success that the client has read; a repeat may answer again."""
        append.answers.append(tuple(positions))
        append.told = "acknowledged"
        append.acknowledged_at = min(append.acknowledged_at, self._tick())

    def refuse(self, append: Append) -> None:
        """An answer that promises that nothing was written; it says nothing of an earlier try whose answer was lost."""
        if append.tries <= 1:
            append.told = "refused"

    @property
    def sessions(self) -> set[str]:
        return {append.session for append in self.appends}

    @property
    def actors(self) -> set[str]:
        return {append.actor for append in self.appends}

    @property
    def acknowledged(self) -> int:
        return sum(append.told == "acknowledged" for append in self.appends)

    def items(self, stored: Mapping[str, Sequence[StoredItem]]) -> list[Fault]:
        """What is wrong with the stored items of all sessions, by session id."""
        faults: list[Fault] = []
        for session in sorted(self.sessions | stored.keys()):
            mine = [append for append in self.appends if append.session == session]
            faults += _session_faults(session, mine, stored.get(session, ()))
        return faults

    def facts(
        self, stored: Mapping[str, Sequence[StoredItem]], entries: Mapping[str, Sequence[StoredEntry]]
    ) -> list[Fault]:
        """What is wrong with the memory of all actors, given the items that are stored."""
        faults: list[Fault] = []
        for actor in sorted(self.actors | entries.keys()):
            expected: dict[str, tuple[Fact, str, int]] = {}
            for session in {append.session for append in self.appends if append.actor == actor}:
                for item in stored.get(session, ()):
                    line = self._line_of.get(item.data)
                    if line is not None and line.fact is not None:
                        expected[line.fact.path] = (line.fact, session, item.position)
            faults += _actor_faults(actor, expected, entries.get(actor, ()))
        return faults

    def batches(self, stored: Mapping[str, Sequence[StoredItem]], distilled: Sequence[Distilled]) -> list[Fault]:
        """Every position of every session must be covered by exactly one settled batch."""
        faults: list[Fault] = []
        covered: dict[str, Counter[int]] = defaultdict(Counter)
        for stretch in distilled:
            covered[stretch.session].update(range(stretch.after + 1, stretch.through + 1))
        for session in sorted(stored.keys() | covered.keys()):
            wanted = {item.position for item in stored.get(session, ())}
            times = covered[session]
            if missing := sorted(wanted - times.keys()):
                faults.append(Fault("fact lost", f"{session}: no settled batch covers {missing}"))
            if twice := sorted(position for position, count in times.items() if count > 1):
                faults.append(Fault("fact doubled", f"{session}: more than one batch covers {twice}"))
            if beyond := sorted(times.keys() - wanted):
                faults.append(Fault("fact wrong", f"{session}: a batch covers {beyond}, which is not stored"))
        return faults

    def rest(self, left: Mapping[str, int]) -> list[Fault]:
        """What should be empty at rest: outboxes, parked messages, unsettled lanes."""
        return [Fault("left", f"{what}: {count}") for what, count in left.items() if count]

    def _tick(self) -> int:
        self._clock += 1
        return self._clock


def told(faults: Collection[Fault]) -> str:
    """The faults as lines of text, for a failing assertion."""
    shown = [f"{fault.kind}: {fault.what}" for fault in list(faults)[:40]]
    return "\n".join([f"{len(faults)} faults", *shown])


def _session_faults(session: str, appends: Sequence[Append], stored: Sequence[StoredItem]) -> list[Fault]:
    faults: list[Fault] = []
    positions = [item.position for item in stored]
    if positions != list(range(1, len(positions) + 1)):
        faults.append(Fault("position", f"{session}: positions are not dense from 1: {positions}"))
    places: dict[str, list[int]] = defaultdict(list)
    for item in stored:
        places[item.data].append(item.position)
    placed: list[tuple[int, Append]] = []
    for append in appends:
        found = [places.pop(line.data, []) for line in append.lines]
        faults += _append_faults(session, append, found)
        if found and found[0]:
            placed.append((found[0][0], append))
    for data, where in places.items():
        faults.append(Fault("changed", f"{session} {where}: nobody sent {data}"))
    latest_begin = 0
    for position, append in sorted(placed, key=lambda each: each[0]):
        if append.acknowledged_at < latest_begin:
            faults.append(
                Fault("order", f"{session} {position}: acknowledged before the append began that is stored before it")
            )
        latest_begin = max(latest_begin, append.begun)
    return faults


def _append_faults(session: str, append: Append, found: Sequence[Sequence[int]]) -> list[Fault]:
    faults = [
        Fault("doubled", f"{session} {list(where)}: {line.data}")
        for line, where in zip(append.lines, found, strict=True)
        if len(where) > 1
    ]
    missing = [line.data for line, where in zip(append.lines, found, strict=True) if not where]
    if missing and (append.told == "acknowledged" or len(missing) < len(append.lines)):
        faults += [Fault("lost", f"{session}: {append.told}, and not there: {data}") for data in missing]
    if append.told == "refused" and len(missing) < len(append.lines):
        faults.append(Fault("doubled", f"{session}: refused, and yet stored at {found}"))
    if not missing and not faults:
        positions = tuple(where[0] for where in found)
        if positions != tuple(range(positions[0], positions[0] + len(positions))):
            faults.append(Fault("order", f"{session} {positions}: not in the order in which they were sent"))
        faults += [
            Fault("position", f"{session}: told {answer}, stored at {positions}")
            for answer in append.answers
            if answer != positions
        ]
    return faults


def _actor_faults(
    actor: str, expected: Mapping[str, tuple[Fact, str, int]], entries: Sequence[StoredEntry]
) -> list[Fault]:
    faults: list[Fault] = []
    by_path: dict[str, list[StoredEntry]] = defaultdict(list)
    for entry in entries:
        by_path[entry.path].append(entry)
    for path, (fact, session, position) in expected.items():
        found = by_path.pop(path, [])
        where = f"{actor} {path} of {session} {position}"
        if not found:
            faults.append(Fault("fact lost", where))
        elif len(found) > 1:
            faults.append(Fault("fact doubled", f"{where}: {len(found)} entries"))
        else:
            (entry,) = found
            if entry.statement != fact.statement:
                faults.append(Fault("fact wrong", f"{where}: says {entry.statement!r}"))
            if entry.version != 1 or len(entry.evidence) > 1:
                faults.append(
                    Fault("fact doubled", f"{where}: version {entry.version}, evidence {list(entry.evidence)}")
                )
            if set(entry.evidence) != {(session, (position,))}:
                faults.append(Fault("fact wrong", f"{where}: rests on {list(entry.evidence)}"))
    for path, found in by_path.items():
        faults.append(Fault("fact wrong", f"{actor} {path}: nobody said {[entry.statement for entry in found]}"))
    uses = Counter((session, position) for entry in entries for session, at in entry.evidence for position in at)
    for (session, position), count in uses.items():
        if count > 1:
            faults.append(Fault("fact doubled", f"{actor}: {session} {position} is evidence {count} times"))
    return faults
