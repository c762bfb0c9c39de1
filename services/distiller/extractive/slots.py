"""Statements that have a slot of their own: who somebody is, where, with whom, and what they like."""

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import date, datetime

from libs.contracts.events import Kind
from services.distiller.extractive import english, french
from services.distiller.extractive.dates import event_date
from services.distiller.extractive.places import is_known_place, is_place
from services.distiller.extractive.rules import CONTACT_PREFERENCE, FAVOURITE, MOVED, PREFERRED, Rule
from services.distiller.extractive.text import as_statement
from services.distiller.extractive.voice import Around, is_own, is_plain, is_so
from services.distiller.extractive.words import Language, content_words, slug, stems, strong_words, words

EMPLOYER = "/job/employer.md"
ROLE = "/job/role.md"
HOME = "/home/city.md"

_RULES = {"english": english.RULES, "french": french.RULES}
# Every rule begins with one of these words, or where the clause does. Trying the rules only there is several times as
# fast as searching for each.
_STARTS = {"english": re.compile(english.STARTS, re.I), "french": re.compile(french.STARTS, re.I)}
_LIST = re.compile(r"\s*(?:,|&|\b(?:and|or|et|ou)\b)\s*")
_WITHOUT_DAY = ("/identity/birthday", "/likes", "/hobbies", "/allergies", "/diet", "/contact", PREFERRED, FAVOURITE)
# `You can reach me at …`, `I went with my wife Orla`: said of something else, and true all the same.
_SAID_IN_PASSING = ("/contact/", "/family/partner", "/family/{slug}")
_MAX_OBJECTS = 4
_MAX_OBJECT_WORDS = 8
_MAX_DESCRIPTION = 300


@dataclass(frozen=True)
class Candidate:
    """What one line says about one slot.

    `ends` names what no longer holds, if anything; None where something does. `instead_of` is whose place it takes.
    """

    path: str
    kind: Kind
    statement: str
    description: str
    event_date: date | None
    line: int
    language: Language
    ends: str | None = None
    instead_of: str | None = None

    @property
    def retires(self) -> bool:
        """One of many that is no more leaves nothing in its slot; the end of a state is what the slot says then."""
        return self.ends is not None and self.kind == "item"


def slot_candidates(
    clause: str, around: Around, line: int, said_at: datetime, language: Language, taken: Collection[str]
) -> list[Candidate]:
    """At most one rule of a topic speaks; `taken` are the paths that have a value already."""
    found: list[Candidate] = []
    topics: set[str] = set()
    starts = sorted({0, *(match.start() for match in _STARTS[language].finditer(clause))})
    for rule in _RULES[language]:
        if rule.topic in topics:
            continue
        said = _first_said(rule, clause, around, starts, language, taken)
        if said is None:
            continue
        match, targets = said
        topics.add(rule.topic)
        day = _event_date(rule, clause, said_at, language)
        found.extend(
            Candidate(
                path=path,
                kind=rule.kind,
                statement=as_statement(clause),
                description=description[:_MAX_DESCRIPTION],
                event_date=day,
                line=line,
                language=language,
                ends=_object(match) if rule.ends else None,
                instead_of=match.groupdict().get("left"),
            )
            for path, description in targets
        )
    return found


def _first_said(
    rule: Rule, clause: str, around: Around, starts: list[int], language: Language, taken: Collection[str]
) -> tuple[re.Match[str], list[tuple[str, str]]] | None:
    """What a rule finds first, with the path and the description of each slot that it is about."""
    for pattern in rule.patterns:
        for start in starts:
            match = pattern.match(clause, start)
            if match is None:
                continue
            is_meant = _is_meant(rule, match, clause, around, language, taken)
            if targets := [each for each in _targets(rule, match, clause, language, taken) if is_meant(each[0])]:
                return match, targets
    return None


def _is_meant(
    rule: Rule, match: re.Match[str], clause: str, around: Around, language: Language, taken: Collection[str]
) -> Callable[[str], bool]:
    """Whether what was found may be said of a slot."""
    before, after = clause[: match.start()], clause[match.end() :]
    if is_plain(before, after, around, language, ends=rule.ends):
        return lambda path: True
    if rule.ends or not is_own(before, around, language):
        return lambda path: False
    if rule.path.startswith(_SAID_IN_PASSING):
        return lambda path: True
    may_be_new = rule.kind != "state" or is_so(before, after, around, language)
    return lambda path: may_be_new and path not in taken


def _object(match: re.Match[str]) -> str:
    groups = match.groupdict()
    return " ".join((groups.get("what") or groups.get("some") or "").strip(" ,.;:-").split())


def _event_date(rule: Rule, clause: str, said_at: datetime, language: Language) -> date | None:
    # A birthday comes back every year, and a day in a liking is not when the liking happened.
    if rule.path.startswith(_WITHOUT_DAY):
        return None
    return event_date(clause, said_at, language)


def _targets(
    rule: Rule, match: re.Match[str], clause: str, language: Language, taken: Collection[str]
) -> list[tuple[str, str]]:
    groups = match.groupdict()
    said = _object(match)
    if rule.path == MOVED:
        return [_moved(said, clause, taken)]
    if rule.path == EMPLOYER and is_known_place(said):
        return []
    if rule.path == ROLE and rule.ends and not said and ROLE not in taken:
        return []  # that somebody retired tells no profession
    if rule.path == PREFERRED:
        return _preferred(rule, said, groups.get("than") or "", language)
    if rule.path == FAVOURITE:
        topic = slug([_singular(word) for word in content_words(groups["topic"], language)])
        return [(f"/likes/favourite-{topic}.md", f"{rule.about}: {groups['topic']}, {said}")]
    if rule.path == CONTACT_PREFERENCE:
        return [(rule.path, f"{rule.about}: {', '.join(content_words(said, language))}")]
    if "{slug}" not in rule.path:
        return [(rule.path, f"{rule.about}: {said}" if said else rule.about)]
    whose = f"{groups['whose']} " if groups.get("whose") else ""
    return [
        (rule.path.replace("{slug}", slug(named, most=4 if whose else 3)), f"{rule.about}: {whose}{part}")
        for part in _objects(said, each=rule.each)
        if (named := strong_words(whose + part, language)) and len(part.split()) <= _MAX_OBJECT_WORDS
    ]


def _singular(word: str) -> str:
    return word[:-1] if len(word) > 3 and word.endswith("s") and not word.endswith("ss") else word


def _objects(said: str, *, each: bool) -> list[str]:
    """A list of short things is many; a list with long members is one description."""
    if not each:
        return [said]
    parts = [part for part in _LIST.split(said) if part]
    if len(parts) > 1 and all(len(part.split()) <= 3 for part in parts):
        return parts[:_MAX_OBJECTS]
    return [said]


def _preferred(rule: Rule, said: str, than: str, language: Language) -> list[tuple[str, str]]:
    """Both sides name the slot, in an order that a change of mind does not change; alone, the head noun does."""
    first, second = strong_words(said, language), strong_words(than, language)
    if not first:
        return []
    if second:
        pair = sorted(slug(side, most=2)[:40].strip("-") for side in (first, second))
        return [(f"/preferences/{'-or-'.join(pair)}.md", f"{rule.about}: {said}, {than}")]
    head = first[-1] if language == "english" else first[0]
    return [(f"/preferences/{slug([head])}.md", f"{rule.about}: {said}")]


def _moved(said: str, clause: str, taken: Collection[str]) -> tuple[str, str]:
    """`I moved to Contoso` says the employer where one is known and nothing says that it is a place."""
    if EMPLOYER in taken and not is_place(said, clause):
        return EMPLOYER, f"{english.EMPLOYER_ASKED}: {said}"
    return HOME, f"{english.HOME_ASKED}: {said}"


def names_known_pet(sentence: str, taken: Collection[str]) -> bool:
    """`Biscuit died`: said of the speaker's own, by a name that has a slot."""
    return f"/pets/{slug(words(sentence)[:1])}.md" in taken


def slot_key(path: str, language: Language) -> tuple[str, frozenset[str]]:
    """The same for `/likes/hike.md` and `/likes/hiking.md`: they are one slot."""
    folder, _, name = path.removesuffix(".md").rpartition("/")
    return folder, stems(name.split("-"), language)
