"""Which entries are worth showing to a model: those that share much of what they are found by, and those too long.

Two entries overlap when the terms that they share carry enough of the weight of the shorter one's, rare terms weighing
more (idf over the actor's entries). Only pairs that share a term few entries have are compared, the rarest terms first
and no more than `PAIRS`, so that a crowded memory costs seconds.
"""

import hashlib
import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from itertools import chain, combinations, islice

from libs.contracts.limits import STATEMENT_CHARS
from libs.contracts.requests import StoredEntry

OVERLAP = 0.2
FEW_ENTRIES = 30
PAIRS = 100_000
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
    terms = [frozenset(entry.terms) for entry in entries]
    known_in = Counter(term for each in terms for term in each)
    weight = {term: math.log(1 + (len(entries) - known + 0.5) / (known + 0.5)) for term, known in known_in.items()}
    total = [sum(weight[term] for term in each) for each in terms]
    holders: defaultdict[str, list[int]] = defaultdict(list)
    for number, each in enumerate(terms):
        for term in each:
            if 1 < known_in[term] <= FEW_ENTRIES:
                holders[term].append(number)
    rarest = sorted(holders, key=lambda term: (known_in[term], term))
    pairs = set(islice(chain.from_iterable(combinations(holders[term], 2) for term in rarest), PAIRS))
    found = []
    for one, other in pairs:
        shared = sum(weight[term] for term in terms[one] & terms[other])
        overlap = shared / min(total[one], total[other])
        if overlap >= OVERLAP:
            found.append((overlap, one, other))
    return found
