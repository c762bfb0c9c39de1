"""What an answer may say: half of it is no answer."""

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from uuid import UUID

from libs.contracts.events import Change, Evidence
from libs.contracts.limits import CHANGES_PER_BATCH, DESCRIPTION_CHARS, STATEMENT_CHARS
from libs.contracts.requests import RelatedEntry
from services.distiller.answer import Answer, KnownEntry, ProposedChange
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
