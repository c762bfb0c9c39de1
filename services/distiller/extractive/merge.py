"""Candidates meet each other and what is known: one change per slot, and none that says nothing new."""

import re
from collections.abc import Iterable, Sequence
from typing import Literal

from services.distiller.answer import KnownEntry, ProposedChange
from services.distiller.extractive.slots import Candidate, slot_key
from services.distiller.extractive.words import Language, content_words, stems

_NEGATION = re.compile(
    r"\b(?:not|never|no longer|can['’]?t|cannot|\w+n['’]t|hate|dislike|stopped|quit|(?:gone|went) off|"
    r"ne|n['’]\w+|plus|jamais|déteste)\b",
    re.IGNORECASE,
)
_NEW_WORDS = 2


def changes(candidates: Sequence[Candidate], known: Sequence[KnownEntry]) -> list[ProposedChange]:
    """What the candidates change, in order.

    What is retired need not be known: then it is only a slot to look up, of which a retirement makes nothing.
    """
    current = {entry.path: entry.statement for entry in known}
    decided: list[ProposedChange] = []
    latest: dict[str, int] = {}
    slots = _Slots(current)
    for candidate in candidates:
        path = slots.path(candidate)
        before = latest.get(path)
        earlier = None if before is None else decided[before]
        holds = current.get(path) if earlier is None or earlier.op == "confirm" else earlier.statement
        if _ends_another(candidate, holds):
            continue
        if before is not None and earlier is not None and _repeats(candidate, earlier, holds):
            evidence = sorted({*earlier.evidence, candidate.line})
            decided[before] = earlier.model_copy(update={"evidence": evidence})
        elif before is not None and candidate.kind != "state":
            decided[before] = _against_known(candidate, path, current.get(path))
        else:
            # Each value that a state had stays: the earlier ones are its history.
            latest[path] = len(decided)
            decided.append(_against_known(candidate, path, current.get(path) if before is None else None))
    return decided


def _ends_another(candidate: Candidate, holds: str | None) -> bool:
    """`I no longer live in Lisbon` ends nothing where Berlin is what the slot says by now."""
    over = candidate.instead_of if candidate.ends is None else candidate.ends
    if over is None or candidate.kind != "state" or holds is None:
        return False
    return not _meaning(over, candidate.language) <= _meaning(holds, candidate.language)


def _repeats(candidate: Candidate, earlier: ProposedChange, holds: str | None) -> bool:
    if candidate.retires or earlier.op == "retire":
        return candidate.retires and earlier.op == "retire"
    return holds is not None and not _adds(candidate, holds)


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
    op: Literal["set", "confirm", "retire"] = "set"
    if candidate.retires:
        op = "retire"
    elif known is not None and not _adds(candidate, known):
        op = "confirm"
    says = op == "set"
    return ProposedChange(
        op=op,
        path=path,
        kind=candidate.kind,
        statement=candidate.statement if says else "",
        description=candidate.description if says else "",
        said_by="user",
        event_date=candidate.event_date if says else None,
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
