"""Statements that have a slot of their own: who somebody is, where, with whom, and what they like."""

import re
from collections.abc import Collection
from dataclasses import dataclass
from datetime import date, datetime

from libs.contracts.events import Kind
from services.distiller.extractive import english, french
from services.distiller.extractive.dates import event_date
from services.distiller.extractive.places import is_known_place, is_place
from services.distiller.extractive.rules import Rule
from services.distiller.extractive.text import as_statement
from services.distiller.extractive.words import Language, content_words, slug, stems, strong_words

EMPLOYER = "/job/employer.md"
HOME = "/home/city.md"

_RULES = {"english": english.RULES, "french": french.RULES}
_LIST = re.compile(r"\s*(?:,|&|\b(?:and|or|et|ou)\b)\s*")
_WITHOUT_DAY = ("/identity/birthday", "/likes", "/hobbies", "/allergies", "/diet", "/contact", "preferred", "favourite")
_MAX_OBJECTS = 4
_MAX_OBJECT_WORDS = 8
_MAX_DESCRIPTION = 300


@dataclass(frozen=True)
class Candidate:
    """What one line says about one slot."""

    path: str
    kind: Kind
    statement: str
    description: str
    event_date: date | None
    line: int
    language: Language


def slot_candidates(
    clause: str, line: int, said_at: datetime, language: Language, taken: Collection[str]
) -> list[Candidate]:
    """At most one rule of a topic speaks; `taken` are the paths that have a value already."""
    found: list[Candidate] = []
    topics: set[str] = set()
    for rule in _RULES[language]:
        topic = _topic(rule.path)
        if topic in topics:
            continue
        for match in rule.matches(clause):
            targets = _targets(rule, match, clause, language, taken)
            if targets:
                topics.add(topic)
                day = _event_date(rule, clause, said_at, language)
                found.extend(
                    Candidate(
                        path=path,
                        kind=rule.kind,
                        statement=as_statement(clause),
                        description=f"{rule.about}: {about}"[:_MAX_DESCRIPTION],
                        event_date=day,
                        line=line,
                        language=language,
                    )
                    for path, about in targets
                )
                break
    return found


def _topic(path: str) -> str:
    if path == "preferred":
        return "/contact/preference.md"
    return path.rsplit("/", 1)[0] if path.startswith(("/likes", "/allergies", "/pets")) else path


def _event_date(rule: Rule, clause: str, said_at: datetime, language: Language) -> date | None:
    # A birthday comes back every year, and a day in a liking is not when the liking happened.
    if rule.path.startswith(_WITHOUT_DAY):
        return None
    return event_date(clause, said_at, language)


def _targets(
    rule: Rule, match: re.Match[str], clause: str, language: Language, taken: Collection[str]
) -> list[tuple[str, str]]:
    groups = match.groupdict()
    said = (groups["what"] or groups.get("some") or "").strip(" ,.;:-")
    if rule.path == "moved":
        return [(_moved(said, clause, taken), said)]
    if rule.path == EMPLOYER and is_known_place(said):
        return []
    if rule.path == "preferred":
        return _preferred(said, groups.get("than") or "", language)
    if rule.path == "favourite":
        topic = groups["topic"]
        return [
            (
                f"/likes/favourite-{slug([stem_of_plural(word) for word in content_words(topic, language)])}.md",
                f"{topic}, {said}",
            )
        ]
    if rule.path == "/contact/preference.md":
        return [(rule.path, ", ".join(content_words(said, language)))]
    if "{slug}" not in rule.path:
        return [(rule.path, " ".join(said.split()))]
    return [
        (rule.path.replace("{slug}", slug(named, most=3)), " ".join(part.split()))
        for part in _objects(said, each=rule.each)
        if (named := strong_words(part, language)) and len(part.split()) <= _MAX_OBJECT_WORDS
    ]


def stem_of_plural(word: str) -> str:
    return word[:-1] if len(word) > 3 and word.endswith("s") and not word.endswith("ss") else word


def _objects(said: str, *, each: bool) -> list[str]:
    """A list of short things is many; a list with long members is one description."""
    if not each:
        return [said]
    parts = [part for part in _LIST.split(said) if part]
    if len(parts) > 1 and all(len(part.split()) <= 3 for part in parts):
        return parts[:_MAX_OBJECTS]
    return [said]


def _preferred(said: str, than: str, language: Language) -> list[tuple[str, str]]:
    """Both sides name the slot, in an order that a change of mind does not change; alone, the head noun does."""
    first, second = strong_words(said, language), strong_words(than, language)
    if not first:
        return []
    if second:
        pair = sorted((slug(first, most=2), slug(second, most=2)))
        return [(f"/preferences/{'-or-'.join(pair)}.md", f"{said}, {than}")]
    head = first[-1] if language == "english" else first[0]
    return [(f"/preferences/{slug([head])}.md", said)]


def _moved(said: str, clause: str, taken: Collection[str]) -> str:
    """`I moved to Contoso` says the employer where one is known and nothing says that it is a place."""
    if is_place(said, clause):
        return HOME
    return EMPLOYER if EMPLOYER in taken else HOME


def slot_key(path: str, language: Language) -> tuple[str, frozenset[str]]:
    """The same for `/likes/hike.md` and `/likes/hiking.md`: they are one slot."""
    folder, _, name = path.removesuffix(".md").rpartition("/")
    return folder, stems(name.split("-"), language)
