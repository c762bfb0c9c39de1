"""What is stored and asked for in every search that is measured: invented words, as frequent as in speech.

Imports nothing, so that the peers' programs can read it in their own environment.
"""

import hashlib
import json
import math
import random
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

ACTORS = 100
ENTRIES = 10_000
CLIENTS = 8
HITS = 10
DIMENSIONS = 384
QUERIES = 500
SYLLABLES = [a + b for a in "bdgklmnprst" for b in ("a", "ek", "i", "ol", "u", "am")]
WORDS = [a + b for a in SYLLABLES for b in SYLLABLES]
# As frequent as words are in speech, without the fifty most frequent ones: those are no part of a query.
WEIGHTS = [1 / (rank + 50) for rank in range(len(WORDS))]


def statements(count: int, seed: int = 1) -> list[str]:
    """Of twelve words."""
    chance = random.Random(seed)
    return [" ".join(chance.choices(WORDS, WEIGHTS, k=12)) for _ in range(count)]


def queries(count: int = QUERIES, seed: int = 2) -> list[str]:
    """Of four words."""
    chance = random.Random(seed)
    return [" ".join(chance.choices(WORDS, WEIGHTS, k=4)) for _ in range(count)]


def actor(number: int) -> str:
    return f"a{number % ACTORS}"


def vector(text: str) -> list[float]:
    """Of length 1; made in no time, so that only the search is measured and no model."""
    found = [0.0] * DIMENSIONS
    for word in text.split():
        found[int.from_bytes(hashlib.sha256(word.encode()).digest()[:4], "big") % DIMENSIONS] += 1.0
    length = math.sqrt(sum(number * number for number in found))
    return [number / length for number in found]


def report(took: list[float], elapsed: float) -> None:
    """The one line that a peer prints."""
    ordered = sorted(took)
    figures = {"per_s": len(took) / elapsed}
    figures |= {f"p{share}_ms": ordered[len(took) * share // 100] * 1e3 for share in (50, 95)}
    print(json.dumps(figures), flush=True)


def measure_threads(search: Callable[[str, str], object], seconds: float) -> None:
    """`CLIENTS` threads, each searching for one query after the other as one actor or another."""
    asked = queries()

    def client(number: int) -> list[float]:
        took = []
        end = time.perf_counter() + seconds
        while (begun := time.perf_counter()) < end:
            number += CLIENTS
            search(actor(number), asked[number % QUERIES])
            took.append(time.perf_counter() - begun)
        return took

    begun = time.perf_counter()
    with ThreadPoolExecutor(CLIENTS) as clients:
        took = [each for found in clients.map(client, range(CLIENTS)) for each in found]
    report(took, time.perf_counter() - begun)
