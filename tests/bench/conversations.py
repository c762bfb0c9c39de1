"""How well a search finds the turn that answers a question, on conversations from outside the repository.

The directory that `MEMSTREAM_BENCH_DATA` names holds `conversations.jsonl` (`actor_id`, `turn_id`, `speaker`, `item`)
and `questions.jsonl` (`actor_id`, `question`, `evidence`: the turns that hold the answer, `category`). Each turn is put
as one entry, each question is a search of its actor. recall@k is the share of a question's evidence among the first
k hits, a mean over questions; MRR is one over the place of the first. Questions without an answer count for no target.
"""

import asyncio
import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import httpx

from libs.contracts.routes import BASE
from tests.bench.report import Row, Target, at_least
from tests.bench.stand import Stand

HITS = 10
AT_ONCE = 8
UNANSWERABLE = "adversarial"
EMBEDDED_DEADLINE_S = 240.0


@dataclass(frozen=True)
class Question:
    actor: str
    text: str
    category: str
    evidence: frozenset[str]


@dataclass(frozen=True)
class Figures:
    at_5: float
    at_10: float
    mrr: float

    @classmethod
    def of(cls, answered: Sequence[tuple[Question, Sequence[str]]]) -> "Figures":
        """Averages over questions with what each found, best first."""
        return cls(
            fmean(len(each.evidence & set(found[:5])) / len(each.evidence) for each, found in answered),
            fmean(len(each.evidence & set(found[:10])) / len(each.evidence) for each, found in answered),
            fmean(_reciprocal(each.evidence, found) for each, found in answered),
        )


def _reciprocal(evidence: frozenset[str], found: Sequence[str]) -> float:
    return next((1 / place for place, turn in enumerate(found, 1) if turn in evidence), 0.0)


def read(directory: Path) -> tuple[list[dict[str, Any]], list[Question]]:
    """The turns and the questions that have evidence."""
    turns = [json.loads(line) for line in (directory / "conversations.jsonl").open(encoding="utf-8")]
    asked = [json.loads(line) for line in (directory / "questions.jsonl").open(encoding="utf-8")]
    questions = [
        Question(each["actor_id"], each["question"], each["category"], frozenset(each["evidence"]))
        for each in asked
        if each["evidence"]
    ]
    return turns, questions


async def recall_rows(stand: Stand, directory: Path, model: str) -> list[Row]:
    """By words alone, then with vectors of `model`."""
    turns, questions = await asyncio.to_thread(read, directory)
    async with httpx.AsyncClient(base_url=f"{stand.url('memory')}{BASE}", headers=stand.headers, timeout=60) as client:
        store = "conversations"
        await _ok(client, "POST", "/memory-stores", {"display_name": store})
        await _each([_put(client, store, turn) for turn in turns])
        rows = _rows("words", await _ask(client, store, questions), at_least(0.62), len(turns))
        url = f"/memory-stores/{store}"
        await _ok(client, "PATCH", f"{url}?update_mask=embedding_model", {"embedding_model": model})
        await _embedded(client, url)
        rows += _rows("words and vectors", await _ask(client, store, questions), at_least(0.67), len(turns))
    return rows


def _rows(how: str, found: Sequence[tuple[Question, list[str]]], target: Target, turns: int) -> list[Row]:
    by_category: defaultdict[str, list[tuple[Question, list[str]]]] = defaultdict(list)
    for each in found:
        by_category[each[0].category].append(each)
    counted = [each for each in found if each[0].category != UNANSWERABLE]
    note = f"{turns} turns as entries, {len(counted)} questions with an answer"
    whole = Figures.of(counted)
    rows = [
        Row(f"recall@10, {how}", "share", whole.at_10, None, target, note),
        Row(f"recall@5, {how}", "share", whole.at_5, None, None, note),
        Row(f"MRR, {how}", "share", whole.mrr, None, None, note),
    ]
    for category, answered in sorted(by_category.items()):
        part = Figures.of(answered)
        said = f"{len(answered)} questions; recall@5 {part.at_5:.3f}, MRR {part.mrr:.3f}"
        rows.append(Row(f"recall@10, {how}, {category}", "share", part.at_10, None, None, said))
    return rows


async def _put(client: httpx.AsyncClient, store: str, turn: Mapping[str, Any]) -> None:
    body = {
        "actor_id": turn["actor_id"],
        "path": f"/{turn['turn_id'].replace(':', '/')}.md",
        "content": f"{turn['speaker']}: {turn['item']['content']}",
    }
    await _ok(client, "POST", f"/memory-stores/{store}/entries", body)


async def _ask(
    client: httpx.AsyncClient, store: str, questions: Iterable[Question]
) -> list[tuple[Question, list[str]]]:
    async def ask(question: Question) -> tuple[Question, list[str]]:
        body = {"actor_id": question.actor, "query": question.text, "page_size": HITS, "read_mask": "path"}
        hits = (await _ok(client, "POST", f"/memory-stores/{store}/entries:search", body))["results"]
        paths = [hit["managed_memory_entry"]["path"] for hit in hits]
        return question, [path.removesuffix(".md").removeprefix("/").replace("/", ":") for path in paths]

    return await _each([ask(question) for question in questions])


async def _each(work: Sequence[Any]) -> list[Any]:
    turns = asyncio.Semaphore(AT_ONCE)

    async def one(each: Any) -> Any:
        async with turns:
            return await each

    return await asyncio.gather(*(one(each) for each in work))


async def _embedded(client: httpx.AsyncClient, url: str) -> None:
    async with asyncio.timeout(EMBEDDED_DEADLINE_S):
        while True:
            progress = (await _ok(client, "GET", url))["embedding"]
            if progress["done"] == progress["total"]:
                return
            await asyncio.sleep(0.5)


async def _ok(client: httpx.AsyncClient, method: str, url: str, body: Any = None) -> dict[str, Any]:
    answer = await client.request(method, url, json=body)
    answer.raise_for_status()
    found: dict[str, Any] = answer.json()
    return found
