"""Statements without a slot of their own: what happened, what is planned, and what else is worth keeping of a line.

Worth is counted, not understood: names, numbers, days and other words that identify something speak for a sentence,
talking to the other person speaks against it. Sentences that go on about the one before stay with it.
"""

import re
from dataclasses import dataclass
from datetime import date

from services.distiller.extractive.slots import Candidate
from services.distiller.extractive.tenses import DECIDED, HAPPENED, PLANNED
from services.distiller.extractive.text import MAX_STATEMENT, as_statement
from services.distiller.extractive.words import Language, slug, strong_words

WORTH_KEEPING = 5.0
WORTH_SAYING = 2.0
MAX_SENTENCES = 3

_ABOUT = {
    "english": {"events": "event", "decisions": "decision", "plans": "plan, goal, wish", "notes": "about"},
    "french": {"events": "événement", "decisions": "décision", "plans": "projet, but, souhait", "notes": "à propos de"},
}
_SECOND_PERSON = re.compile(
    r"\b(?:you|your|yours|you['’](?:re|ve|ll|d)|tu|toi|ton|ta|tes|(?<!-)vous|votre|vos)\b|\bt['’](?=\w)", re.IGNORECASE
)
_PROPER_NAME = re.compile(r"(?<=[a-zà-ÿ0-9,] )[\"“«]?(?!I['’])[A-ZÀ-Þ][\w'’-]+")
_TITLE = re.compile(r"[\"“«][^\"”»]{3,60}[\"”»]")
_CALENDAR = re.compile(
    r"\w+day|weekend|\d{1,4}(?:st|nd|rd|th)?|days?|weeks?|months?|next|tomorrow|two|three|january|february|march|april|"
    r"may|june|july|august|september|october|november|december|lundi|mardi|mercredi|jeudi|vendredi|samedi|dimanche|"
    r"jours?|semaines?|mois|dernière?|prochaine?|passée?|avant-hier|demain|deux|trois|janvier|février|mars|avril|mai|juin|"
    r"juillet|août|septembre|octobre|novembre|décembre"
)
# Of no day, and yet of a time that can be asked for.
_SPAN = re.compile(
    r"\b(?:last|next|past) (?:week|month|year)\b|\b(?:semaine|mois|année|an) (?:derni|pass|proch)\w+", re.IGNORECASE
)
_NUMBER = re.compile(r"\b\d+\b")


@dataclass
class Story:
    """Sentences that go together. The one that names the day, or else the one that tells most, names the story."""

    sentences: list[str]
    lead: str
    day: date | None
    worth: float
    _most: float = 0.0

    @classmethod
    def begun_by(cls, sentence: str, day: date | None, value: float) -> "Story":
        return cls([sentence], sentence, day, value, value)

    def takes(self, sentence: str, day: date | None) -> bool:
        length = sum(len(part) + 1 for part in self.sentences) + len(sentence)
        same_day = day is None or self.day in (None, day)
        return len(self.sentences) < MAX_SENTENCES and length <= MAX_STATEMENT and same_day

    def goes_on(self, sentence: str, day: date | None, value: float) -> None:
        self.sentences.append(sentence)
        self.worth += value / 2
        if (day is not None and self.day is None) or (self.day is None and value > self._most):
            self.lead, self.day, self._most = sentence, day, value


def worth(sentence: str, language: Language, *, dated: bool) -> float:
    """How much a sentence tells that could be asked for later."""
    return (
        min(len(set(strong_words(sentence, language))), 8)
        + min(len(_PROPER_NAME.findall(sentence)), 2)
        + min(len(_NUMBER.findall(sentence)), 1)
        + 1.5 * bool(_TITLE.search(sentence))
        + 1.5 * (dated or bool(_SPAN.search(sentence)))
        + 3.0 * any(shape[language].search(sentence) for shape in (HAPPENED, PLANNED, DECIDED))
        - 1.5 * len(_SECOND_PERSON.findall(sentence))
    )


def as_candidate(story: Story, line: int, language: Language) -> Candidate:
    text = " ".join(story.sentences)
    named = [word for word in strong_words(story.lead, language) if not _CALENDAR.fullmatch(word)]
    named = named or strong_words(text, language)
    topic = _topic(story, language)
    dated = f"{story.day.isoformat()}-" if story.day else ""
    return Candidate(
        path=f"/{topic}/{dated}{slug(named)}.md",
        kind="event" if topic == "events" else "item",
        statement=as_statement(text),
        description=f"{_ABOUT[language][topic]}: {' '.join(dict.fromkeys(named))}"[:300],
        event_date=story.day,
        line=line,
        language=language,
    )


def _topic(story: Story, language: Language) -> str:
    if story.day is not None:
        return "events"
    shapes = (("decisions", DECIDED), ("plans", PLANNED), ("events", HAPPENED))
    return next((topic for topic, shape in shapes if shape[language].search(story.lead)), "notes")
