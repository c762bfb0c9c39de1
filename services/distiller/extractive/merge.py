"""Candidates meet each other and what is known: one change per slot, and none that says nothing new."""

import re
from collections.abc import Iterable, Sequence

from services.distiller.answer import KnownEntry, ProposedChange
from services.distiller.extractive.slots import Candidate, slot_key
from services.distiller.extractive.words import Language, content_words, stems

_NEGATION = re.compile(
    r"\b(?:not|never|no longer|can['’]?t|cannot|\w+n['’]t|hate|dislike|stopped|quit|ne|n['’]\w+|plus|jamais|déteste)\b",
    re.IGNORECASE,
)
_NEW_WORDS = 2


def changes(candidates: Sequence[Candidate], known: Sequence[KnownEntry]) -> list[ProposedChange]:
    current = {entry.path: entry.statement for entry in known}
    decided: list[ProposedChange] = []
    latest: dict[str, int] = {}
    slots = _Slots(current)
    for candidate in candidates:
        path = slots.path(candidate)
        before = latest.get(path)
        if before is not None and not _adds(candidate, decided[before].statement or current[path]):
            evidence = sorted({*decided[before].evidence, candidate.line})
            decided[before] = decided[before].model_copy(update={"evidence": evidence})
        elif before is not None and candidate.kind != "state":
            decided[before] = _against_known(candidate, path, current.get(path))
        else:
            # Each value that a state had stays: the earlier ones are its history.
            latest[path] = len(decided)
            decided.append(_against_known(candidate, path, current.get(path) if before is None else None))
    return decided


class _Slots:
    """The slots in use, found again by a restatement in other forms of the same words."""

    def __init__(self, paths: Iterable[str]) -> None:
        self._known = list(paths)
        self._by_key: dict[Language, dict[tuple[str, frozenset[str]], str]] = {}

    def path(self, candidate: Candidate) -> str:
        if candidate.kind == "state":
            return candidate.path
        language = candidate.language
        if language not in self._by_key:
            self._by_key[language] = {slot_key(path, language): path for path in reversed(self._known)}
        return self._by_key[language].setdefault(slot_key(candidate.path, language), candidate.path)


def _against_known(candidate: Candidate, path: str, known: str | None) -> ProposedChange:
    confirms = known is not None and not _adds(candidate, known)
    return ProposedChange(
        op="confirm" if confirms else "set",
        path=path,
        kind=candidate.kind,
        statement="" if confirms else candidate.statement,
        description="" if confirms else candidate.description,
        said_by="user",
        event_date=None if confirms else candidate.event_date,
        evidence=[candidate.line],
    )


def _adds(candidate: Candidate, statement: str) -> bool:
    """A state is another value as soon as it reads otherwise; the others must say more, or the opposite."""
    if _plain(candidate.statement) == _plain(statement):
        return False
    if candidate.kind == "state":
        return True
    opposite = bool(_NEGATION.search(candidate.statement)) != bool(_NEGATION.search(statement))
    new = _meaning(candidate.statement, candidate.language) - _meaning(statement, candidate.language)
    return opposite or len(new) >= _NEW_WORDS


def _meaning(statement: str, language: Language) -> frozenset[str]:
    return stems(content_words(statement, language), language)


def _plain(statement: str) -> str:
    return " ".join(re.findall(r"\w+", statement.lower()))
