"""Which entries are worth showing to a model: those that share much of what they are found by, and those too long.

Two entries overlap when the terms that they share carry enough of the weight of the shorter one's, rare terms weighing
more (idf over the actor's entries). An entry without terms overlaps nothing.

Each entry is compared with the `NEAREST` that share the most of its terms, among the holders of its terms that are
looked at: no more than `REACH`, so n entries cost at most n times that, which is seconds for the fullest memory.
"""

import hashlib
import math
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Sequence
from heapq import nlargest

from libs.contracts.limits import STATEMENT_CHARS
from libs.contracts.requests import StoredEntry

OVERLAP = 0.2
NEAREST = 30
REACH = 1000
GROUP_ENTRIES = 8

Group = list[StoredEntry]


def groups_of(entries: Sequence[StoredEntry]) -> list[Group]:
    """The entries that are too long, each alone, and groups of at most `GROUP_ENTRIES` that overlap."""
    long = [[entry] for entry in entries if len(entry.statement) > STATEMENT_CHARS]
    return _overlapping([entry for entry in entries if len(entry.statement) <= STATEMENT_CHARS]) + long


def fingerprint(group: Group) -> str:
    """Names the entries of a group as they are now; another version of one is another group."""
    said = "\n".join(sorted(f"{entry.entry_id} {entry.version}" for entry in group))
    return hashlib.sha256(said.encode()).hexdigest()[:32]


def looked_at(
    one: int, rarest_first: Sequence[tuple[str, Sequence[int]]], reach: int = REACH
) -> Iterator[tuple[str, Sequence[int]]]:
    """Of each term of an entry, which of its holders it is compared with: no more than `reach` over all terms.

    All of the rarest while they fit; what is left goes evenly to the other terms, for the holders nearest to the entry,
    so that wherever an entry stands, those beside it are seen.
    """
    for number, (term, known) in enumerate(rarest_first):
        share = reach if len(known) <= reach else reach // (len(rarest_first) - number)
        start = max(0, min(bisect_left(known, one) - share // 2, len(known) - share))
        near = known[start : start + share]
        reach -= len(near)
        yield term, near


def _overlapping(entries: Sequence[StoredEntry]) -> list[Group]:
    group_of = list(range(len(entries)))
    members = {number: [number] for number in group_of}
    for _, one, other in sorted(_pairs(entries), reverse=True):
        into, taken = group_of[one], group_of[other]
        if into != taken and len(members[into]) + len(members[taken]) <= GROUP_ENTRIES:
            for number in members[taken]:
                group_of[number] = into
            members[into] += members.pop(taken)
    return [[entries[number] for number in sorted(each)] for each in members.values() if len(each) > 1]


def _pairs(entries: Sequence[StoredEntry]) -> list[tuple[float, int, int]]:
    holders: defaultdict[str, list[int]] = defaultdict(list)
    for number, entry in enumerate(entries):
        for term in set(entry.terms):
            holders[term].append(number)
    weight = {
        term: math.log(1 + (len(entries) - len(known) + 0.5) / (len(known) + 0.5)) for term, known in holders.items()
    }
    terms = [sorted(set(entry.terms), key=lambda term: (len(holders[term]), term)) for entry in entries]
    total = [sum(weight[term] for term in each) for each in terms]
    found = set()
    for one, each in enumerate(terms):
        shared: defaultdict[int, float] = defaultdict(float)
        for term, near in looked_at(one, [(term, holders[term]) for term in each]):
            for other in near:
                shared[other] += weight[term]
        shared.pop(one, None)
        overlaps = ((round(by / min(total[one], total[other]), 9), other) for other, by in shared.items())
        for overlap, other in nlargest(NEAREST, overlaps):
            if overlap >= OVERLAP:
                found.add((overlap, min(one, other), max(one, other)))
    return list(found)
