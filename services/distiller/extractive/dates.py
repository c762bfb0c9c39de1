"""Words that name a day, counted from the day on which they were said where they were said.

A weekday, or a day of a month, without a year is the next one, and in a past tense the last.
Not read: a week, a month or a year without a day, months or years ago, `a few weeks ago`, days that recur, and numbers
such as 3/9, which are two different days in two countries.
"""

import re
from collections.abc import Callable
from contextlib import suppress
from datetime import date, datetime, timedelta

from services.distiller.extractive.tenses import is_ahead
from services.distiller.extractive.words import Language

_WEEKDAYS = {
    "english": ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"),
    "french": ("lundi", "mardi", "mercredi", "jeudi", "vendredi", "samedi", "dimanche"),
}
_MONTHS = {
    "english": (
        "january",
        "february",
        "march",
        "april",
        "may",
        "june",
        "july",
        "august",
        "september",
        "october",
        "november",
        "december",
    ),
    "french": (
        "janvier",
        "février",
        "mars",
        "avril",
        "mai",
        "juin",
        "juillet",
        "août",
        "septembre",
        "octobre",
        "novembre",
        "décembre",
    ),
}
_NUMBERS = {
    **{
        word: number
        for number, word in enumerate(
            ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"), 1
        )
    },
    **{
        word: number
        for number, word in enumerate(
            ("un", "deux", "trois", "quatre", "cinq", "six", "sept", "huit", "neuf", "dix"), 1
        )
    },
    "a": 1,
    "an": 1,
    "une": 1,
    "a couple of": 2,
    "couple of": 2,
    "quinze": 15,
}
_COUNT = r"(?P<count>\d{1,3}|" + "|".join(sorted(_NUMBERS, key=len, reverse=True)) + ")"
_UNITS = {"day": 1, "night": 1, "jour": 1, "week": 7, "semaine": 7}

_LEAP_YEARS_APART = 9
_HINTS = re.compile(
    r"\d|day|week|month|night|morning|evening|\b(?:last|next|past) [a-z]{3,5}\b|hier|demain|jour|soir|matin|midi|"
    r"semaine|mois|prochain|di\b|dimanche",
    re.IGNORECASE,
)

Resolve = Callable[[re.Match[str], date, bool], date | None]


def event_date(text: str, said_at: datetime, language: Language) -> date | None:
    """The day that the text names first, seen from the speaker's own clock; None when it names none."""
    if not _HINTS.search(text):
        return None
    named: list[tuple[re.Match[str], Resolve]] = []
    for pattern, resolve in _PATTERNS[language]:
        for match in pattern.finditer(text):
            if not any(match.start() < other.end() and other.start() < match.end() for other, _ in named):
                named.append((match, resolve))
    for match, resolve in sorted(named, key=lambda each: each[0].start()):
        with suppress(ValueError, OverflowError):
            day = resolve(match, said_at.date(), is_ahead(text, match.start(), language))
            if day is not None:
                return day
    return None


def _shifted(days: int) -> Resolve:
    return lambda match, said_on, future: said_on + timedelta(days=days)


def _no_day(match: re.Match[str], said_on: date, future: bool) -> None:
    return None


def _units_away(sign: int) -> Resolve:
    def resolve(match: re.Match[str], said_on: date, future: bool) -> date:
        said = match["count"].lower()
        count = int(said) if said.isdecimal() else _NUMBERS[said]
        return said_on + sign * timedelta(days=count * _UNITS[match["unit"].lower().removesuffix("s")])

    return resolve


def _weekday(language: Language, direction: int) -> Resolve:
    """The nearest such day before (-1) or after (1) the day it was said; 0 leaves that to the tense."""

    def resolve(match: re.Match[str], said_on: date, future: bool) -> date:
        name = match["weekday"].lower()
        number = next(number for number, full in enumerate(_WEEKDAYS[language]) if full.startswith(name))
        ahead = (number - said_on.weekday()) % 7
        if direction > 0 or (direction == 0 and future):
            return said_on + timedelta(days=ahead or 7)
        return said_on - timedelta(days=7 - ahead)

    return resolve


def _weekend(direction: int) -> Resolve:
    def resolve(match: re.Match[str], said_on: date, future: bool) -> date:
        saturday = said_on + timedelta(days=5 - said_on.weekday())
        if direction > 0:
            return saturday + timedelta(days=7) if said_on.weekday() >= 5 else saturday
        if direction < 0 or (not future and said_on.weekday() < 5):
            return saturday - timedelta(days=7)
        return min(saturday, said_on) if said_on.weekday() >= 5 else saturday

    return resolve


def _calendar(language: Language) -> Resolve:
    def resolve(match: re.Match[str], said_on: date, future: bool) -> date | None:
        name = match["month"].lower().rstrip(".")
        month = next(number for number, full in enumerate(_MONTHS[language], 1) if full.startswith(name))
        day = int(match["day"])
        if match["year"]:
            return date(int(match["year"]), month, day)
        step = 1 if future else -1
        days = (_valid(said_on.year + step * years, month, day) for years in range(_LEAP_YEARS_APART))
        return next((found for found in days if found and (found - said_on).days * step >= 0), None)

    return resolve


def _valid(year: int, month: int, day: int) -> date | None:
    try:
        return date(year, month, day)
    except ValueError:
        return None


def _iso(match: re.Match[str], said_on: date, future: bool) -> date:
    return date.fromisoformat(match[0])


def _compiled(pairs: list[tuple[str, Resolve]]) -> list[tuple[re.Pattern[str], Resolve]]:
    return [(re.compile(pattern, re.IGNORECASE), resolve) for pattern, resolve in pairs]


_EN_DAY = r"(?P<weekday>" + "|".join(_WEEKDAYS["english"]) + r")\b"
_EN_SHORT = _EN_DAY.replace(r")\b", r"|mon|tue|tues|wed|weds|thu|thur|thurs|fri|sat|sun)\b")
_EN_MONTH = (
    r"(?P<month>" + "|".join(_MONTHS["english"]) + r"|(?:jan|feb|mar|apr|jun|jul|aug|sep|sept|oct|nov|dec)\b\.?)"
)
_EN_DAY_NUMBER = r"(?P<day>\d{1,2})(?:st|nd|rd|th)?"
_EN_UNTIL = r"(?: ?(?:to|and|until|-|–) ?\d{1,2}(?:st|nd|rd|th)?)?"
_FR_DAY = r"(?P<weekday>" + "|".join(_WEEKDAYS["french"]) + r")\b"
_FR_MONTH = r"(?P<month>" + "|".join(_MONTHS["french"]) + r")\b"
_YEAR = r"(?:,?\s+(?P<year>(?:19|20)\d\d)\b)?"

_PATTERNS = {
    "english": _compiled([
        (r"\b(?:19|20)\d\d-\d\d-\d\d\b", _iso),
        (r"\b(?:every|each|most)\s+" + _EN_DAY + "|" + _EN_DAY.replace("weekday", "plural")[:-2] + r"s\b", _no_day),
        (r"\bday before yesterday\b", _shifted(-2)),
        (r"\bday after tomorrow\b", _shifted(2)),
        (r"\byesterday\b|\blast (?:night|evening)\b", _shifted(-1)),
        (r"\btomorrow\b", _shifted(1)),
        (r"\btoday\b|\btonight\b|\bthis (?:morning|afternoon|evening)\b|\bearlier today\b", _shifted(0)),
        (r"\b" + _COUNT + r" (?P<unit>days?|nights?|weeks?) (?:ago|back|earlier)\b", _units_away(-1)),
        (r"\bin " + _COUNT + r" (?P<unit>days?|weeks?)\b", _units_away(1)),
        (r"\b" + _COUNT + r" (?P<unit>days?|weeks?) from now\b", _units_away(1)),
        (r"\b(?:last|this past|the past) weekend\b", _weekend(-1)),
        (r"\bnext weekend\b", _weekend(1)),
        (r"\b(?:this|the) weekend\b", _weekend(0)),
        (r"\b(?:last|this past|past) " + _EN_SHORT, _weekday("english", -1)),
        (r"\b(?:next|this coming|coming) " + _EN_SHORT, _weekday("english", 1)),
        (r"\b" + _EN_DAY_NUMBER + _EN_UNTIL + "(?: of)? " + _EN_MONTH + r"\b" + _YEAR, _calendar("english")),
        (r"\b" + _EN_MONTH + r" (?:the )?" + _EN_DAY_NUMBER + r"\b" + _YEAR, _calendar("english")),
        (r"\b" + _EN_DAY, _weekday("english", 0)),
    ]),
    "french": _compiled([
        (r"\b(?:19|20)\d\d-\d\d-\d\d\b", _iso),
        (r"\b(?:tous les|chaque|le) " + _FR_DAY.replace(r"\b", r"s?\b") + r"(?! (?:\d|dernier|prochain))", _no_day),
        (r"\bavant-hier\b", _shifted(-2)),
        (r"\baprès-demain\b", _shifted(2)),
        (r"\bhier\b", _shifted(-1)),
        (r"\bdemain\b", _shifted(1)),
        (r"\baujourd['’]hui\b|\bce (?:matin|soir)\b|\bcet(?:te)? après-midi\b", _shifted(0)),
        (r"\bil y a " + _COUNT + r" (?P<unit>jours?|semaines?)\b", _units_away(-1)),
        (r"\bdans " + _COUNT + r" (?P<unit>jours?|semaines?)\b", _units_away(1)),
        (r"\b(?:le )?week-?end (?:dernier|passé)\b", _weekend(-1)),
        (r"\b(?:le )?week-?end prochain\b", _weekend(1)),
        (r"\bce week-?end\b", _weekend(0)),
        (r"\b" + _FR_DAY + r" (?:dernier|passé)\b", _weekday("french", -1)),
        (r"\b" + _FR_DAY + r" prochain\b", _weekday("french", 1)),
        (r"\b(?P<day>\d{1,2})(?:er)?(?: ?(?:au|et|-|–) ?\d{1,2})? " + _FR_MONTH + _YEAR, _calendar("french")),
        (r"\b" + _FR_DAY, _weekday("french", 0)),
    ]),
}  # fmt: skip
