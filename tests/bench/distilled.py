"""What distilling makes of real conversations, on data from outside the repository.

The directory holds `conversations.jsonl` (`actor_id`, `session_id`, `turn_id`, `time`, `speaker`, `item`),
`questions.jsonl` (`actor_id`, `question`, `evidence`: the turns that hold the answer, `category`) and `facts.jsonl`
(`actor_id`, `fact`, `evidence`). All goes the way of a user: append, a run, search. recall@10 is the share of a
question's evidence among the turns that the first ten entries rest on, averaged over the questions with an answer.
"""

import asyncio
import json
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import httpx
from starlette.responses import JSONResponse, Response

from libs.contracts.routes import BASE
from services.memory.text import query_terms
from tests.bench.client import BadAnswer
from tests.bench.report import Row, at_least, at_most
from tests.bench.stand import Stand
from tests.support.scripted_model import Behaviour, asked_lines, completion, note, valid
from tests.support.service import until

AT_ONCE = 8
HITS = 10
UNANSWERABLE = "adversarial"
RUN_DEADLINE_S = 240.0
STREAMED_TURNS = 100
TALKS = 25
PERSON_S = 4.0  # longer than the default quiet period of 2 s
BACKLOG = 500

Turn = tuple[str, str]  # actor, turn id
Json = dict[str, Any]


@dataclass(frozen=True)
class Question:
    actor: str
    text: str
    evidence: frozenset[Turn]


@dataclass(frozen=True)
class Fact:
    text: str
    evidence: frozenset[Turn]


@dataclass(frozen=True)
class Entry:
    statement: str
    turns: frozenset[Turn]


class Conversations:
    """The data, and which of it a user said."""

    def __init__(self, directory: Path) -> None:
        self.turns = _lines(directory / "conversations.jsonl")
        self.sessions: defaultdict[tuple[str, str], list[Json]] = defaultdict(list)
        for turn in self.turns:
            self.sessions[turn["actor_id"], turn["session_id"]].append(turn)
        by_user = {(each["actor_id"], each["turn_id"]) for each in self.turns if each["item"]["role"] == "user"}
        self.questions = [
            Question(each["actor_id"], each["question"], _evidence(each))
            for each in _lines(directory / "questions.jsonl")
            if each["evidence"] and each["category"] != UNANSWERABLE
        ]
        self.of_users = [question for question in self.questions if question.evidence <= by_user]
        facts = [Fact(each["fact"], _evidence(each)) for each in _lines(directory / "facts.jsonl")]
        self.facts = [fact for fact in facts if fact.evidence <= by_user]

    def turn_at(self, session_id: str, position: int) -> Turn:
        """Positions begin at 1 and have no holes here."""
        actor = session_id.rpartition("-")[0]
        return actor, self.sessions[actor, session_id][position - 1]["turn_id"]


def _lines(path: Path) -> list[Json]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def _evidence(of: Json) -> frozenset[Turn]:
    return frozenset((of["actor_id"], turn) for turn in of["evidence"])


class Distilling:
    """A pair of stores of its own with a pipeline between them."""

    def __init__(self, stand: Stand, name: str) -> None:
        self._stand = stand
        self._name = name
        self._client = httpx.AsyncClient(headers=stand.headers, timeout=60)

    async def open(self, trigger: str = "MANUAL_ONLY", quiet_period_s: float | None = 0) -> None:
        """Without a quiet period it is the default one."""
        await self._ok("session", "POST", f"/session-stores?session_store_id={self._name}", {})
        await self._ok("memory", "POST", "/memory-stores", {"display_name": self._name})
        policy = {"trigger": trigger, "quiet_period_s": quiet_period_s}
        body = {"session_store": self._name, "memory_store": self._name, "dreamer_policy": policy}
        self.pipeline = (await self._ok("distiller", "POST", "/memory-pipelines", body))["name"]

    async def close(self) -> None:
        await self._client.aclose()

    async def append(self, session: str, actor: str, turns: Sequence[Json]) -> None:
        sessions = f"/session-stores/{self._name}/sessions"
        await self._client.post(
            f"{self._stand.url('session')}{BASE}{sessions}?session_id={session}", json={"actor_id": actor}
        )
        items = [{"data": turn["item"], "occurred_at": turn["time"]} for turn in turns]
        await self._ok("session", "POST", f"{sessions}/{session}/items:append", {"items": items})

    async def run(self) -> None:
        """Distils all that is there."""
        run = (await self._ok("distiller", "POST", f"/{self.pipeline}/run", {}))["name"]

        async def has_succeeded() -> bool:
            state = (await self._ok("distiller", "GET", f"/{run}"))["state"]
            if state in ("FAILED", "CANCELED"):
                raise BadAnswer(f"the run ended {state}")
            return bool(state == "SUCCEEDED")

        await until(has_succeeded, deadline_s=RUN_DEADLINE_S)

    async def settled(self, actor: str, session: str, position: int) -> None:
        """Waits until a session is searchable up to a position."""
        wait_for = {"session_store": self._name, "session_id": session, "position": position}
        body = {"actor_id": actor, "query": "anything", "wait_for": wait_for, "max_wait_ms": 30_000}
        answer = await self._ok("memory", "POST", f"/memory-stores/{self._name}/entries:search", body)
        if not answer["settled"]:
            raise BadAnswer(f"not searchable after 30 s: {answer.get('reason')}")

    async def all_settled(self) -> None:
        """Waits until the pipeline is done with everybody, without hastening anything."""

        async def are_settled() -> bool:
            lanes = (await self._ok("distiller", "GET", f"/{self.pipeline}/lanes?page_size=100"))["lanes"]
            return bool(lanes) and all(lane["state"] == "settled" for lane in lanes)

        await until(are_settled)

    async def entries(self, actor: str, conversations: Conversations) -> list[Entry]:
        found: list[Entry] = []
        token = ""
        while True:
            path = f"/memory-stores/{self._name}/entries?actor_id={actor}&page_size=100&page_token={token}"
            page = await self._ok("memory", "GET", path)
            found += [Entry(each["content"], _turns_of(each, conversations)) for each in page["managed_memory_entries"]]
            token = page.get("next_page_token", "")
            if not token:
                return found

    async def recall(self, questions: Sequence[Question], conversations: Conversations) -> float:
        turns = asyncio.Semaphore(AT_ONCE)

        async def share(question: Question) -> float:
            body = {"actor_id": question.actor, "query": question.text, "page_size": HITS}
            async with turns:
                answer = await self._ok("memory", "POST", f"/memory-stores/{self._name}/entries:search", body)
            hits = [_turns_of(hit["managed_memory_entry"], conversations) for hit in answer["results"]]
            return len(question.evidence & frozenset().union(*hits)) / len(question.evidence)

        return fmean(await asyncio.gather(*(share(question) for question in questions)))

    async def usage(self) -> tuple[int, int]:
        """Calls and tokens."""
        rows = (await self._ok("distiller", "GET", f"/{self.pipeline}/usage"))["usage"]
        tokens = sum(row["prompt_tokens"] + row["completion_tokens"] for row in rows)
        return sum(row["calls"] for row in rows), tokens

    async def _ok(self, service: str, method: str, path: str, body: Any = None) -> Json:
        answer = await self._client.request(method, f"{self._stand.url(service)}{BASE}{path}", json=body)
        if answer.status_code != 200:
            raise BadAnswer(f"{method} {path}: {answer.status_code} {answer.text}")
        found: Json = answer.json()
        return found


def _turns_of(entry: Json, conversations: Conversations) -> frozenset[Turn]:
    return frozenset(
        conversations.turn_at(proof["session_id"], position)
        for proof in entry["evidence"]
        for position in proof["positions"]
    )


async def _distilled(stand: Stand, name: str, conversations: Conversations) -> Distilling:
    distilling = Distilling(stand, name)
    await distilling.open()
    for (actor, session), turns in conversations.sessions.items():
        await distilling.append(session, actor, turns)
    await distilling.run()
    return distilling


async def builtin_rows(stand: Stand, conversations: Conversations) -> list[Row]:
    """The built-in model on whole conversations."""
    distilling = await _distilled(stand, "builtin", conversations)
    actors = sorted({turn["actor_id"] for turn in conversations.turns})
    entries = [entry for actor in actors for entry in await distilling.entries(actor, conversations)]
    recall = await distilling.recall(conversations.of_users, conversations)
    await distilling.close()
    per_100 = 100 * len(entries) / len(conversations.turns)
    note_ = (
        f"{len(conversations.turns)} turns, {len(conversations.of_users)} questions with evidence in user turns only"
    )
    return [
        Row("built-in model, recall@10 over its entries", "share", recall, None, at_least(0.55), note_),
        Row("built-in model, entries per 100 turns", "", per_100, None, at_most(25), note_),
        Row(
            "built-in model, content-word F1 against reference facts",
            "share",
            _f1(entries, conversations.facts),
            None,
            None,
            f"over user turns that have one of {len(conversations.facts)} facts; no entry counts 0",
        ),
    ]


def _f1(entries: Sequence[Entry], facts: Sequence[Fact]) -> float:
    """By turn: the words of all statements that rest on it against the words of all facts that do."""
    said, wanted = _words_by_turn(entries), _words_by_turn([Entry(fact.text, fact.evidence) for fact in facts])
    scores = []
    for turn, words in wanted.items():
        common = (words & said[turn]).total()
        scores.append(2 * common / (words.total() + said[turn].total()))
    return fmean(scores)


def _words_by_turn(entries: Sequence[Entry]) -> defaultdict[Turn, "Counter[str]"]:
    words: defaultdict[Turn, Counter[str]] = defaultdict(Counter)
    for entry in entries:
        for turn in entry.turns:
            words[turn] |= Counter(query_terms(entry.statement, "english"))
    return words


class ReferenceFacts:
    """A model that answers what the reference facts say of the lines that it is shown."""

    def __init__(self, conversations: Conversations) -> None:
        facts: defaultdict[Turn, list[tuple[int, str]]] = defaultdict(list)
        for number, fact in enumerate(conversations.facts):
            for turn in fact.evidence:
                facts[turn].append((number, fact.text))
        self._of_text: Mapping[str, list[tuple[int, str]]] = {
            " ".join(turn["item"]["content"].split()): facts[turn["actor_id"], turn["turn_id"]]
            for turn in conversations.turns
        }

    async def answer(self, body: Json) -> Response:
        """The evidence of a fact is whatever of it is among the lines; a fact that is told again is the same slot."""
        evidence: defaultdict[tuple[int, str], list[int]] = defaultdict(list)
        for line, text in asked_lines(body):
            for fact in self._of_text.get(" ".join(text.split()), ()):
                evidence[fact].append(line)
        changes = [
            note(0, text) | {"path": f"/facts/{number}.md", "evidence": lines}
            for (number, text), lines in evidence.items()
        ]
        return completion(json.dumps({"changes": changes}))


async def reference_rows(stand: Stand, conversations: Conversations) -> list[Row]:
    """Good facts, on a stand whose model is `ReferenceFacts`: what they do to recall."""
    distilling = await _distilled(stand, "reference", conversations)
    of_users = await distilling.recall(conversations.of_users, conversations)
    of_all = await distilling.recall(conversations.questions, conversations)
    await distilling.close()
    note_ = f"{len(conversations.facts)} facts with user evidence as a scripted model's answers"
    return [
        Row("reference facts, recall@10, evidence in user turns only", "share", of_users, None, None, note_),
        Row("reference facts, recall@10, all questions", "share", of_all, None, None, note_),
    ]


async def cost_rows(stand: Stand) -> list[Row]:
    """Calls and tokens of a model on a stand with a scripted one: a conversation append by append, against once a day.

    And the calls for people who speak, with the default quiet period.
    """
    words = [f"Number {number} of the things that I would like you to remember" for number in range(STREAMED_TURNS)]
    time = "2026-01-01T10:00:00Z"
    turns = [
        {"item": {"type": "message", "role": role, "content": text}, "time": time}
        for pair in zip(words[::2], words[1::2], strict=True)
        for role, text in zip(("user", "assistant"), pair, strict=True)
    ]
    streaming, daily = Distilling(stand, "streaming"), Distilling(stand, "daily")
    await streaming.open("CONTINUOUS")
    for at in range(0, len(turns), 2):
        await streaming.append("s1", "ana", turns[at : at + 2])
        await streaming.settled("ana", "s1", at + 2)
    await daily.open()
    await daily.append("s1", "ana", turns)
    await daily.run()
    talking = Distilling(stand, "talking")
    await talking.open("CONTINUOUS", quiet_period_s=None)
    half = len(turns) // TALKS // 2

    async def talk(number: int) -> None:
        await talking.append(f"s{number}", f"a{number}", turns[:half])
        await asyncio.sleep(PERSON_S)
        await talking.append(f"s{number}", f"a{number}", turns[half : 2 * half])

    await asyncio.gather(*(talk(number) for number in range(TALKS)))
    await talking.all_settled()
    (calls, tokens), (daily_calls, daily_tokens) = await streaming.usage(), await daily.usage()
    spoken, _ = await talking.usage()
    for each in (streaming, daily, talking):
        await each.close()
    note_ = (
        f"{STREAMED_TURNS} turns of one conversation, two an append, quiet period 0, each append waited for before the"
        " next; the reference is one daily batch of them"
    )
    of_talks = (
        f"{TALKS} conversations of {2 * half} turns, two an append, the next after {PERSON_S:g} s; nothing hastens"
    )
    return [
        Row("model calls per 100 turns, streaming", "", calls, daily_calls, None, note_),
        Row("model calls per 100 turns, default quiet period", "", spoken, None, None, of_talks),
        Row("model tokens per 100 turns, streaming", "", tokens, daily_tokens, None, f"{note_}; 4 characters a token"),
    ]


async def backlog_rows(stand: Stand) -> list[Row]:
    """Many lanes that are all due at once, from the pipeline's being made until all is searchable."""
    backlog = Distilling(stand, "backlog")
    await backlog.open()
    turn = {"item": {"type": "message", "role": "user", "content": "I like tea."}, "time": "2026-01-01T10:00:00Z"}
    turns = asyncio.Semaphore(AT_ONCE)

    async def append(number: int) -> None:
        async with turns:
            await backlog.append(f"s{number}", f"a{number}", [turn])

    await asyncio.gather(*(append(number) for number in range(BACKLOG)))
    begun = asyncio.get_running_loop().time()
    await backlog.run()
    took = asyncio.get_running_loop().time() - begun
    await backlog.close()
    return [Row("lanes settled", "/s", BACKLOG / took, None, None, f"a run over {BACKLOG} actors with a line each")]


async def by_size(body: Json) -> Response:
    """A valid answer with a bill of 4 characters a token."""
    said = json.loads(bytes((await valid(body)).body))
    prompt = sum(len(message["content"]) for message in body["messages"]) // 4
    written = len(said["choices"][0]["message"]["content"]) // 4
    return JSONResponse(said | {"usage": {"prompt_tokens": prompt, "completion_tokens": written}})


def after(seconds: float) -> Behaviour:
    """A valid answer, after so long."""

    async def behave(body: Json) -> Response:
        await asyncio.sleep(seconds)
        return await valid(body)

    return behave
