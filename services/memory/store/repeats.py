"""Distilled words in what an agent wrote: a description or date that a write left as it was, lines of the content.

An agent's version rests on no lines, so what it repeats is found by comparison with the entry's other versions.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date
from uuid import UUID

import asyncpg

from libs.chassis.unit_of_work import Tx
from services.memory.domain import Value
from services.memory.store.proofs import OF_VERSION
from services.memory.store.records import VERSION_COLUMNS, value_from

Words = str | date
# Does the agent's version `c` repeat words of the distilled version `w`?
REPEATS = (
    "w.entry_uid = c.entry_uid and w.is_derived and not c.is_derived and w.version < c.version"
    " and (w.description = c.description or w.event_date = c.event_date"
    " or strpos(E'\\n' || c.content || E'\\n', E'\\n' || w.content || E'\\n') > 0)"
)
# What an erasure has to know of a version `v`.
ERASED_COLUMNS = f"v.entry_uid, v.is_derived, {VERSION_COLUMNS}"


@dataclass(frozen=True, slots=True)
class _Rest:
    entry_uid: UUID
    version: int
    value: Value | None


async def strip_repeats(tx: Tx, store_uid: UUID, actor_id: str, gone: Sequence[asyncpg.Record]) -> int:
    """Takes the words of erased versions, rows of `ERASED_COLUMNS`, out of the agents' later versions.

    Words that something left says too stay. Returns how many versions went since nothing of theirs was left.
    """
    rows = await tx.fetch(
        f"select {ERASED_COLUMNS}, exists (select from {OF_VERSION}) as supported from entry_versions v"
        " where v.store_uid = $1 and v.actor_id = $2 and v.entry_uid = any($3::uuid[])",
        store_uid,
        actor_id,
        list({row["entry_uid"] for row in gone}),
    )
    versions: dict[UUID, list[tuple[asyncpg.Record, bool]]] = {}
    for row in gone:
        versions.setdefault(row["entry_uid"], []).append((row, True))
    for row in rows:
        versions[row["entry_uid"]].append((row, False))
    rests = [rest for history in versions.values() for rest in _rests(history)]
    kept = [(rest, rest.value) for rest in rests if rest.value is not None]
    await tx.execute(
        "update entry_versions v set content = r.content, description = r.description, event_date = r.event_date"
        " from unnest($3::uuid[], $4::int[], $5::text[], $6::text[], $7::date[])"
        " r (entry_uid, version, content, description, event_date)"
        " where v.store_uid = $1 and v.actor_id = $2 and v.entry_uid = r.entry_uid and v.version = r.version",
        store_uid,
        actor_id,
        [rest.entry_uid for rest, _ in kept],
        [rest.version for rest, _ in kept],
        [value.content for _, value in kept],
        [value.description for _, value in kept],
        [value.event_date for _, value in kept],
    )
    return await tx.execute(
        "delete from entry_versions v using unnest($3::uuid[], $4::int[]) r (entry_uid, version)"
        " where v.store_uid = $1 and v.actor_id = $2 and v.entry_uid = r.entry_uid and v.version = r.version",
        store_uid,
        actor_id,
        [rest.entry_uid for rest in rests if rest.value is None],
        [rest.version for rest in rests if rest.value is None],
    )


def _rests(history: list[tuple[asyncpg.Record, bool]]) -> list[_Rest]:
    """What is left of the versions of one entry that repeat erased words; None where that is nothing."""
    said: set[Words] = set().union(
        *(_words(value_from(row)) for row, erased in history if not erased and row["is_derived"])
    )
    said |= {row["content"] for row, erased in history if not erased and row["supported"]}
    erased_words: set[Words] = set()
    rests = []
    for row, erased in sorted(history, key=lambda each: each[0]["version"]):
        value = value_from(row)
        if erased:
            erased_words |= _words(value) - said
        elif not row["is_derived"]:
            rest = _without(value, erased_words, keeps_content=row["supported"])
            if rest != value:
                rests.append(_Rest(row["entry_uid"], row["version"], rest))
            if rest is not None:
                said |= _words(rest)
    return rests


def _words(value: Value) -> set[Words]:
    return {each for each in (value.content, value.description, value.event_date) if each is not None}


def _without(value: Value, erased: set[Words], *, keeps_content: bool) -> Value | None:
    content = value.content
    # The shortest first: a longer one may be the same with an agent's lines after it.
    texts = () if keeps_content else sorted((each for each in erased if isinstance(each, str)), key=len)
    for text in texts:
        content = _without_lines(content, text)
    if value.content and not content:
        return None
    return replace(
        value,
        content=content,
        description=None if value.description in erased else value.description,
        event_date=None if value.event_date in erased else value.event_date,
    )


def _without_lines(text: str | None, lines: str) -> str | None:
    if not text or not lines:
        return text
    fenced = f"\n{text}\n"
    while f"\n{lines}\n" in fenced:
        fenced = fenced.replace(f"\n{lines}\n", "\n", 1)
    return fenced[1:-1]
