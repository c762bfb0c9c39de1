"""What an answer may say: half of it is no answer."""

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from uuid import UUID

from libs.contracts.events import Change, Evidence
from libs.contracts.limits import CHANGES_BYTES, CHANGES_PER_BATCH, DESCRIPTION_CHARS, STATEMENT_CHARS
from libs.contracts.requests import RelatedEntry
from services.distiller.answer import Answer, KnownEntry, ProposedChange
from services.distiller.domain.batches import size_of
from services.distiller.domain.failures import LaneFailure, Truncated
from services.distiller.domain.questions import Numbered

PATH = re.compile(r"(/[a-z0-9][a-z0-9_-]*){2}\.md")
PATH_CHARS = 200


def known_entries(related: Iterable[RelatedEntry]) -> list[KnownEntry]:
    return [
        KnownEntry(path=entry.path, statement=entry.statement, kind=entry.kind)
        for entry in related
        if not entry.retired
    ]


def paths_of(answer: Answer) -> set[str]:
    """Where the changes of an answer may go: what is set also beside what its slot already tells of."""
    return {
        path
        for each in answer.changes
        for path in ((each.path, _path_beside(each.path, each.statement)) if each.op == "set" else (each.path,))
    }


def changes_of(answer: Answer, lines: Sequence[Numbered], related: Iterable[RelatedEntry]) -> list[Change]:
    """The validated changes of an answer, each with the entry and version that it was decided on.

    Raises `LaneFailure` when a change breaks a rule: half an answer is no answer.
    """
    evidence_by_number = {line.asked.number: line for line in lines if not line.asked.context}
    if len(answer.changes) > CHANGES_PER_BATCH and len(evidence_by_number) > 1:
        raise Truncated(f"more than {CHANGES_PER_BATCH} changes", len(evidence_by_number))
    by_path = {entry.path: entry for entry in related}
    changes: list[Change] = []
    for proposed in answer.changes:
        change = _change(proposed, evidence_by_number, by_path)
        if change.op == "set" and _is_taken(change, by_path, changes):
            change = _decided_on(change, _path_beside(change.path, proposed.statement), by_path)
        if change.op != "set" and (change.path not in by_path or by_path[change.path].retired):
            continue
        before = next((n for n in reversed(range(len(changes))) if changes[n].path == change.path), None)
        if before is not None and (changes[before].op, changes[before].statement) == (change.op, change.statement):
            changes[before] = _with_evidence(changes[before], change)
        else:
            changes.append(change)
    if size_of(changes) > CHANGES_BYTES:
        raise Truncated(f"changes of more than {CHANGES_BYTES} bytes", len(evidence_by_number))
    return changes


def _change(proposed: ProposedChange, lines: Mapping[int, Numbered], by_path: Mapping[str, RelatedEntry]) -> Change:
    if len(proposed.path) > PATH_CHARS or not PATH.fullmatch(proposed.path):
        raise LaneFailure("wrong shape: a path must be /<topic>/<slot>.md in a-z 0-9 _ -")
    sources = [lines[number] for number in proposed.evidence if number in lines]
    if not sources or len(sources) != len(proposed.evidence):
        raise LaneFailure("foreign evidence: a change must rest on lines of the batch")
    statement = _in_one_line(proposed.statement)
    if proposed.op == "set" and not 0 < len(statement) <= STATEMENT_CHARS:
        raise LaneFailure(f"wrong shape: a statement must have 1 to {STATEMENT_CHARS} characters")
    positions: dict[UUID, list[int]] = {}
    for source in sources:
        positions.setdefault(source.session_uid, []).append(source.position)
    change = Change(
        op=proposed.op,
        path=proposed.path,
        statement=statement if proposed.op == "set" else None,
        description=proposed.description[:DESCRIPTION_CHARS] if proposed.op == "set" else None,
        kind=proposed.kind,
        said_by="assistant" if all(source.asked.role == "assistant" for source in sources) else "user",
        said_at=max(source.asked.said_at for source in sources),
        event_date=proposed.event_date,
        evidence=[Evidence(session_uid=uid, positions=sorted(set(found))) for uid, found in positions.items()],
    )
    return _decided_on(change, proposed.path, by_path)


def _decided_on(change: Change, path: str, by_path: Mapping[str, RelatedEntry]) -> Change:
    """The change, of the slot at a path as it is."""
    entry = by_path.get(path)
    slot = {"path": path, "entry_id": entry and entry.entry_id, "expected_version": entry and entry.version}
    return change.model_copy(update=slot)


def _is_taken(change: Change, by_path: Mapping[str, RelatedEntry], earlier: Sequence[Change]) -> bool:
    """Whether the slot already tells of something else, of which one is an event: that is never superseded."""
    entry = by_path.get(change.path)
    told = {each.statement: each.kind for each in earlier if each.path == change.path}
    if entry is not None and not entry.retired:
        told[entry.statement] = entry.kind
    return bool(told) and change.statement not in told and "event" in (change.kind, *told.values())


def _path_beside(path: str, statement: str) -> str:
    """Where a change goes whose slot an event has, or where an event goes whose slot is taken."""
    digest = hashlib.sha256(_in_one_line(statement).encode("utf-8", "surrogatepass")).hexdigest()[:6]
    return f"{path.removesuffix('.md')}-{digest}.md"


def _in_one_line(statement: str) -> str:
    return " ".join(statement.split())


def _with_evidence(change: Change, repeated: Change) -> Change:
    """The same statement of the same slot, said twice in one batch, is one change with both pieces of evidence."""
    evidence: dict[UUID, set[int]] = {}
    for piece in (*change.evidence, *repeated.evidence):
        evidence.setdefault(piece.session_uid, set()).update(piece.positions)
    return change.model_copy(
        update={"evidence": [Evidence(session_uid=uid, positions=sorted(found)) for uid, found in evidence.items()]}
    )
