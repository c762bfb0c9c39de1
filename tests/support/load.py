"""A seeded load: conversations in which some lines state one fact each, of which the built-in model makes a slot."""

import asyncio
import itertools
import json
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime

import httpx
import msgspec

from services.distiller.answer import AskedLine
from services.distiller.extractive import extract
from tests.support.cluster import SESSIONS, Cluster
from tests.support.ledger import Append, Fact, Fault, Ledger, Line, told

SAYINGS = ("I am allergic to {}.", "I like {}.", "I collect {}.", "I can't eat {}.")
ANSWERS = ("Noted.", "Good to know!", "Is there anything else?")
CONSONANTS, VOWELS = "bdfgklmnprtvz", "aiou"
GIVE_UP_S = 120.0


class _Placed(msgspec.Struct):
    position: int


class _Appended(msgspec.Struct):
    session_items: list[_Placed]


class Script:
    """What is said: never the same word twice, so that each fact and each item is unique."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._used: set[str] = set()
        self._number = 0

    def fact(self) -> Line:
        text = self._rng.choice(SAYINGS).format(self._word())
        return Line(self._item("user", text), fact_of(text))

    def answer(self) -> Line:
        return Line(self._item("assistant", self._rng.choice(ANSWERS)))

    def append(self) -> list[Line]:
        """One to four items: facts, and mostly an answer behind them."""
        facts = [self.fact() for _ in range(self._rng.randint(1, 3))]
        return [*facts, self.answer()] if self._rng.random() < 0.7 else facts

    def _item(self, role: str, text: str) -> str:
        # The spaces and the number's form would not survive a JSON column: bytes must come back as they were.
        self._number += 1
        return f'{{"type": "message","role":"{role}",  "content":{json.dumps(text)}, "n":{self._number}.0}}'

    def _word(self) -> str:
        while True:
            syllables = (self._rng.choice(CONSONANTS) + self._rng.choice(VOWELS) for _ in range(3))
            word = "".join(syllables) + "k"
            if word not in self._used:
                self._used.add(word)
                return word


def fact_of(text: str) -> Fact:
    """The one fact that the built-in model finds in a line; raises `ValueError` for any other number."""
    asked = AskedLine(number=1, role="user", text=text, said_at=datetime(2026, 1, 1, tzinfo=UTC))
    (change,) = extract([asked], []).changes
    if change.op != "set":
        raise ValueError(f"no fact of its own: {text}")
    return Fact(change.path, change.statement)


@dataclass
class Load:
    """`actors` × `sessions` clients, each appending to a session of its own, one after the other.

    Every append has an Idempotency-Key and is repeated until it is answered.
    """

    cluster: Cluster
    ledger: Ledger
    seed: int
    actors: int = 3
    sessions: int = 2
    pause_s: float = 0.15
    name: str = "load"
    retried: int = 0
    script: Script = field(init=False)
    _rng: random.Random = field(init=False)
    _keys: "itertools.count[int]" = field(init=False, default_factory=itertools.count)

    def __post_init__(self) -> None:
        self._rng = random.Random(self.seed)
        self.script = Script(self._rng)

    async def run(self, is_over: Callable[[int], bool]) -> None:
        """Until `is_over(appends of this client)`; each client finishes what it has begun."""
        async with asyncio.TaskGroup() as clients:
            for session, actor in self._names():
                clients.create_task(self._client(session, actor, is_over))

    def _names(self) -> Iterator[tuple[str, str]]:
        for actor in range(self.actors):
            for session in range(self.sessions):
                yield f"{self.name}-{actor}-{session}", f"{self.name}-{actor}"

    async def append(self, session: str, actor: str, lines: Sequence[Line], key: str | None = None) -> Append:
        """One append of a session that is there, answered."""
        append = self.ledger.begin(session, actor, lines, key)
        await self.answered(append)
        return append

    async def _client(self, session: str, actor: str, is_over: Callable[[int], bool]) -> None:
        await self.cluster.make_session(session, actor)
        done = 0
        while not is_over(done):
            await self.append(session, actor, self.script.append(), key=f"{session} {next(self._keys)}")
            done += 1
            await asyncio.sleep(self._rng.uniform(0, 2 * self.pause_s))

    async def answered(self, append: Append) -> None:
        """Sends an append until it is answered, and writes down what the client was told."""
        async with asyncio.timeout(GIVE_UP_S):
            while not await self.tried(append):
                self.retried += 1
                await asyncio.sleep(self._rng.uniform(0.05, 0.2))

    async def tried(self, append: Append) -> bool:
        """One try; False when it may be repeated."""
        append.tries += 1
        try:
            answer = await self.cluster.request(
                "POST",
                f"{SESSIONS}/{append.session}/items:append",
                content=body_of(append),
                headers=headers_of(append),
            )
        except httpx.TransportError:
            return False
        if answer.status_code == 200:
            placed = msgspec.json.decode(answer.content, type=_Appended).session_items
            self.ledger.acknowledge(append, [item.position for item in placed])
            return True
        assert answer.status_code == 503 or _is_unknown(answer), answer.text
        return False


def body_of(append: Append) -> bytes:
    return f'{{"items":[{",".join(f"""{{"data":{line.data}}}""" for line in append.lines)}]}}'.encode()


def headers_of(append: Append) -> dict[str, str]:
    key = {"Idempotency-Key": append.key} if append.key else {}
    return {"Content-Type": "application/json", **key}


def _is_unknown(answer: httpx.Response) -> bool:
    with suppress(ValueError, KeyError, TypeError):
        return any(detail.get("reason") == "OUTCOME_UNKNOWN" for detail in answer.json()["details"])
    return False


async def faults_of(cluster: Cluster, ledger: Ledger) -> list[Fault]:
    """Everything that the ledger finds wrong with what the services show now of its sessions and actors."""
    stored = {session: await cluster.items(session) for session in ledger.sessions}
    entries = {actor: await cluster.entries(actor) for actor in ledger.actors}
    return [
        *ledger.items(stored),
        *ledger.facts(stored, entries),
        *ledger.batches(stored, [each for each in await cluster.distilled() if each.session in stored]),
        *ledger.rest(await cluster.left()),
    ]


async def judged(cluster: Cluster, ledger: Ledger) -> None:
    """Waits until everything has come to rest, then fails with every fault that the ledger finds.

    What does not come to rest in time is among the faults.
    """
    await cluster.at_rest()
    faults = await faults_of(cluster, ledger)
    assert not faults, told(faults)
