"""A model's rewritings become rewrites that memory can apply, or none: half an answer is no answer."""

import hashlib
from collections.abc import Mapping, Sequence

from libs.chassis.texts import is_storable
from libs.contracts.events import Change, EntryVersion, Rewrite
from libs.contracts.limits import CHANGES_BYTES, CHANGES_PER_BATCH, DESCRIPTION_CHARS, STATEMENT_CHARS
from libs.contracts.requests import RelatedEntry, StoredEntry
from services.distiller.consolidation.answer import Rewriting, Rewritings, Slot
from services.distiller.domain import PATH, PATH_CHARS, LaneFailure, Overlaps, Truncated, size_of


def check(answer: Rewritings, asked: Overlaps) -> None:
    """Raises `LaneFailure` when a rewriting breaks a rule."""
    group_of = {entry.entry_id: number for number, group in enumerate(asked.groups) for entry in group}
    entries = dict(asked.numbered)
    numbers = [number for each in answer.rewrites for number in each.replaces]
    if not all(number in entries for number in numbers) or len(set(numbers)) < len(numbers):
        raise LaneFailure("foreign entries: a rewrite must replace entries that were asked about, each once")
    if sum(len(each.into) for each in answer.rewrites) > CHANGES_PER_BATCH:
        raise LaneFailure(f"wrong shape: more than {CHANGES_PER_BATCH} entries are written")
    for each in answer.rewrites:
        replaced = [entries[number] for number in each.replaces]
        if len({group_of[entry.entry_id] for entry in replaced}) != 1:
            raise LaneFailure("wrong shape: a rewrite must replace entries of one group")
        if len(replaced) > 1:
            _check_merge(each, replaced)
        else:
            _check_split(each, replaced[0])
        if not all(_is_statement(slot) for slot in each.into):
            raise LaneFailure(f"wrong shape: a statement must have 1 to {STATEMENT_CHARS} characters")


def paths_of(answer: Rewritings) -> list[str]:
    """Where the parts of split entries may go."""
    return [path for each in answer.rewrites if len(each.replaces) == 1 for slot in each.into for path in _places(slot)]


def rewrites_of(answer: Rewritings, asked: Overlaps, held: Sequence[RelatedEntry]) -> list[Rewrite]:
    """What memory is to do; `held` are the slots at `paths_of(answer)`, retired ones too.

    Raises `Truncated` when an event does not hold it.
    """
    entries = dict(asked.numbered)
    by_path = {entry.path: entry for entry in held}
    taken: set[str] = set()
    rewrites = []
    for each in answer.rewrites:
        replaced = [entries[number] for number in each.replaces]
        if len(replaced) > 1:
            into = [_merged(each.into[0], replaced)]
        else:
            into = [_part(slot, replaced[0], by_path, taken) for slot in each.into]
        rewrites.append(
            Rewrite(
                replaced=[
                    EntryVersion(entry_id=entry.entry_id, version=entry.version, path=entry.path) for entry in replaced
                ],
                into=into,
            )
        )
    if size_of(rewrites) > CHANGES_BYTES:
        raise Truncated(f"rewrites of more than {CHANGES_BYTES} bytes", len(asked.groups))
    return rewrites


def _check_merge(each: Rewriting, replaced: Sequence[StoredEntry]) -> None:
    if len(each.into) != 1 or each.into[0].path not in {entry.path for entry in replaced}:
        raise LaneFailure("wrong shape: a merge must leave one entry, at the path of one that it replaces")


def _check_split(each: Rewriting, entry: StoredEntry) -> None:
    if len(entry.statement) <= STATEMENT_CHARS or len(each.into) < 2:
        raise LaneFailure("wrong shape: only an entry that is too long is split, and into two at least")
    if not all(len(slot.path) <= PATH_CHARS and PATH.fullmatch(slot.path) for slot in each.into):
        raise LaneFailure("wrong shape: a path must be /<topic>/<slot>.md in a-z 0-9 _ -")
    if len({slot.path for slot in each.into}) < len(each.into):
        raise LaneFailure("wrong shape: each part of an entry must have a path of its own")


def _is_statement(slot: Slot) -> bool:
    return 0 < len(slot.statement.strip()) <= STATEMENT_CHARS and is_storable(
        f"{slot.path}{slot.statement}{slot.description}"
    )


def _merged(slot: Slot, replaced: Sequence[StoredEntry]) -> Change:
    kept = next(entry for entry in replaced if entry.path == slot.path)
    by_user = any(entry.said_by == "user" for entry in replaced)
    return Change(
        op="set",
        path=kept.path,
        entry_id=kept.entry_id,
        expected_version=kept.version,
        statement=" ".join(slot.statement.split()),
        description=slot.description[:DESCRIPTION_CHARS],
        kind=kept.kind,
        said_by="user" if by_user else "assistant",
        said_at=max(entry.last_said_at for entry in replaced),
        event_date=kept.event_date or slot.event_date,
        evidence=[],
    )


def _part(slot: Slot, entry: StoredEntry, held: Mapping[str, RelatedEntry], taken: set[str]) -> Change:
    """A part in a slot of its own: beside one that is taken."""
    first, beside = _places(slot)
    path = beside if first in taken or (first in held and not held[first].retired) else first
    taken.add(path)
    before = held.get(path)
    return Change(
        op="set",
        path=path,
        entry_id=before.entry_id if before else None,
        expected_version=before.version if before else None,
        statement=" ".join(slot.statement.split()),
        description=slot.description[:DESCRIPTION_CHARS],
        kind=slot.kind,
        said_by=entry.said_by,
        said_at=entry.last_said_at,
        event_date=slot.event_date,
        evidence=[],
    )


def _places(slot: Slot) -> tuple[str, str]:
    digest = hashlib.sha256(slot.statement.encode("utf-8", "surrogatepass")).hexdigest()[:6]
    return slot.path, f"{slot.path.removesuffix('.md')}-{digest}.md"
