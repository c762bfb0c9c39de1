"""`builtin.extractive`: keeps what users say about themselves in their own words, by rules for English and French.

Deterministic, offline, and without understanding: it ignores a pipeline's instructions. Lost are: irony, who `he` and
`she` are, a fact spread over lines, an answer that makes sense only with its question, and all that an assistant says.
What has no rule of its own is kept by how many telling words it has, so dull facts go missing and vivid remarks stay;
no later line ends it. Other languages are read as English and mostly give nothing. An employer is told from a place by
a list of places. Two ways of saying a thing share a slot only when their content words share stems. How days are read
stands at the head of `dates.py`.
"""

import asyncio
from collections.abc import Iterator, Sequence
from datetime import date
from itertools import zip_longest

from services.distiller.answer import Answer, AskedLine, KnownEntry
from services.distiller.extractive.dates import event_date
from services.distiller.extractive.happenings import WORTH_KEEPING, WORTH_SAYING, Story, as_candidate, worth
from services.distiller.extractive.merge import changes
from services.distiller.extractive.slots import Candidate, names_known_pet, slot_candidates
from services.distiller.extractive.text import (
    clauses,
    is_first_person,
    is_question,
    is_unreal,
    language_of,
    sentences,
    spoken,
)
from services.distiller.extractive.voice import Around
from services.distiller.extractive.words import Language

__all__ = ["extract", "extracted"]

# Some 5 ms; more would hold up everybody else.
INLINE_CHARS = 400


async def extracted(lines: Sequence[AskedLine], known: Sequence[KnownEntry]) -> Answer:
    """As `extract`, off the event loop when there is much to read."""
    if sum(len(line.text) for line in lines if line.role == "user" and not line.context) <= INLINE_CHARS:
        return extract(lines, known)
    return await asyncio.to_thread(extract, lines, known)


def extract(lines: Sequence[AskedLine], known: Sequence[KnownEntry]) -> Answer:
    """What the user's own lines change in the actor's memory."""
    taken = {entry.path for entry in known}
    found: list[Candidate] = []
    for line in lines:
        if line.role == "user" and not line.context:
            for candidate in _candidates(line, taken):
                taken.add(candidate.path)
                found.append(candidate)
    return Answer(changes=changes(found, known))


def _candidates(line: AskedLine, taken: set[str]) -> Iterator[Candidate]:
    text = spoken(line.text)
    language = language_of(text)
    stories: list[Story] = []
    said_in_turn = sentences(text)
    for sentence, following in zip_longest(said_in_turn, said_in_turn[1:], fillvalue=""):
        if is_question(sentence) or is_unreal(sentence, language):
            continue
        said = is_first_person(sentence, language) or names_known_pet(sentence, taken)
        rest: list[str] = []
        slotted = False
        parts = clauses(sentence, language) if said else []
        for at, clause in enumerate(parts):
            around = Around(tuple(parts[:at]), (*parts[at + 1 :], following))
            slots = slot_candidates(clause, around, line.number, line.said_at, language, taken)
            yield from slots
            if any(each.ends is None for each in slots):
                slotted = True
            else:
                rest.append(clause)  # that something has ended is also a thing that happened
        if said or stories:
            for part in rest if slotted else [sentence]:
                _tell(stories, part, said, event_date(part, line.said_at, language), language)
    for story in stories:
        if story.worth >= WORTH_KEEPING:
            yield as_candidate(story, line.number, language)


def _tell(stories: list[Story], sentence: str, said: bool, day: date | None, language: Language) -> None:
    value = worth(sentence, language, dated=day is not None)
    if value < WORTH_SAYING:
        return
    if stories and stories[-1].takes(sentence, day):
        stories[-1].goes_on(sentence, day, value)
    elif said:
        stories.append(Story.begun_by(sentence, day, value))
