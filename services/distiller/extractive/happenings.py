"""Statements without a slot of their own: what happened, what is planned, and what else is worth keeping of a line.

Worth is counted, not understood: names, numbers, days and other words that identify something speak for a sentence,
talking to the other person speaks against it. Sentences that go on about the one before stay with it.
"""

import re
from dataclasses import dataclass, field
from datetime import date, datetime

from services.distiller.extractive import english, french
from services.distiller.extractive.dates import event_date
from services.distiller.extractive.slots import Candidate
from services.distiller.extractive.text import MAX_STATEMENT, as_statement
from services.distiller.extractive.words import Language, slug, strong_words

WORTH_KEEPING = 5.0
WORTH_ADDING = 2.0

_DECISION = {"english": re.compile(english.DECISION, re.I), "french": re.compile(french.DECISION, re.I)}
_PLAN = {"english": re.compile(english.PLAN, re.I), "french": re.compile(french.PLAN, re.I)}
_HAPPENED = {"english": re.compile(english.HAPPENED, re.I), "french": re.compile(french.HAPPENED, re.I)}
_SECOND_PERSON = re.compile(
    r"\b(?:you|your|yours|you['’](?:re|ve|ll|d)|tu|toi|ton|ta|tes|vous|votre|vos)\b|\bt['’](?=\w)", re.IGNORECASE
)
_PROPER_NAME = re.compile(r"(?<=[a-zà-ÿ0-9,] )[\"“«]?[A-ZÀ-Þ][\w'’-]+")
_TITLE = re.compile(r"[\"“«][^\"”»]{3,60}[\"”»]")
_NUMBER = re.compile(r"\b\d+\b")


@dataclass
class Story:
    """A sentence worth keeping and those after it that go on about it."""

    sentences: list[str] = field(default_factory=list)
    day: date | None = None
    worth: float = 0.0

    def takes(self, sentence: str, day: date | None) -> bool:
        fits = sum(len(part) + 1 for part in self.sentences) + len(sentence) <= MAX_STATEMENT
        return fits and (day is None or self.day in (None, day))


def worth(sentence: str, language: Language, *, dated: bool) -> float:
    """How much a sentence tells that could be asked for later."""
    names = len(_PROPER_NAME.findall(sentence.replace(" I ", " i ").replace(" I'", " i'").replace(" I’", " i’")))
    return (
        min(len(set(strong_words(sentence, language))), 8)
        + min(names, 2)
        + min(len(_NUMBER.findall(sentence)), 1)
        + 1.5 * bool(_TITLE.search(sentence))
        + 1.5 * dated
        + 1.0 * bool(_HAPPENED[language].search(sentence))
        - 1.5 * len(_SECOND_PERSON.findall(sentence))
    )


def as_candidate(story: Story, line: int, said_at: datetime, language: Language) -> Candidate:
    text = " ".join(story.sentences)
    lead = story.sentences[0]
    named = [word for word in strong_words(lead, language) if not _is_calendar(word)] or strong_words(text, language)
    name = slug(named)
    if story.day is not None:
        kind, folder, about = "event", "/events", "event" if language == "english" else "événement"
        name = f"{story.day.isoformat()}-{name}"
    elif _DECISION[language].search(lead):
        kind, folder, about = "item", "/decisions", "decision" if language == "english" else "décision"
    elif _PLAN[language].search(lead):
        kind, folder, about = "item", "/plans", "plan, goal, wish" if language == "english" else "projet, but, souhait"
    elif _HAPPENED[language].search(lead):
        kind, folder, about = "event", "/events", "event" if language == "english" else "événement"
    else:
        kind, folder, about = "item", "/notes", "about"
    return Candidate(
        path=f"{folder}/{name}.md",
        kind=kind,  # type: ignore[arg-type]
        statement=as_statement(text),
        description=f"{about}: {' '.join(dict.fromkeys(named))}"[:300],
        event_date=story.day,
        line=line,
        language=language,
    )


def _is_calendar(word: str) -> bool:
    return bool(_CALENDAR.fullmatch(word))


_CALENDAR = re.compile(
    r"mon|tues|wednes|thurs|fri|satur|sun|\w+day|weekend|lundi|mardi|mercredi|jeudi|vendredi|samedi|dimanche|\d{1,4}(?:st|nd|rd|th)?|"
    r"january|february|march|april|june|july|august|september|october|november|december|janvier|février|mars|avril|juin|"
    r"juillet|août|septembre|octobre|novembre|décembre|dernière?|prochaine?|passée?|next|avant-hier|demain|tomorrow|two|three|deux|trois"
)
