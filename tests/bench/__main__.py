"""`make bench`: measures, prints the table and writes `build/bench.json`. Names of groups measure these alone."""

import argparse
import asyncio
import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import uvloop
from rich.console import Console

from tests.bench import peer
from tests.bench.appends import append_rows
from tests.bench.conversations import recall_rows
from tests.bench.distilled import (
    Conversations,
    ReferenceFacts,
    after,
    backlog_rows,
    builtin_rows,
    by_size,
    cost_rows,
    reference_rows,
)
from tests.bench.fairness import fairness_rows
from tests.bench.freshness import freshness_rows
from tests.bench.growth import crowd_rows, growth_rows
from tests.bench.kills import kill_rows
from tests.bench.lanes import lane_rows
from tests.bench.langgraph_turns import langgraph_rows
from tests.bench.large import large_rows
from tests.bench.peers.corpus import DIMENSIONS
from tests.bench.reloads import reload_rows
from tests.bench.report import Machine, Row, show, write
from tests.bench.resting import resting_rows
from tests.bench.searches import search_rows
from tests.bench.session_peers import Peers, session_peers
from tests.bench.stand import BUILD, SERVICES, Stand, stand
from tests.bench.starts import start_rows
from tests.bench.turns import turn_rows
from tests.bench.windows import WINDOW_S
from tests.support.scripted_model import ScriptedModel, scripted_model

GROUPS = (
    "start",
    "append",
    "reload",
    "growth",
    "turn",
    "langgraph",
    "freshness",
    "distilling",
    "recall",
    "search",
)
MODEL_LATENCY_S = 0.2
DATA = "MEMSTREAM_BENCH_DATA"
EMBEDDER = "minilm"
DEADLINE_S = 900.0
FULL_DEADLINE_S = 1800.0


def asking(model: ScriptedModel) -> dict[str, str]:
    """The settings of services that ask this model."""
    return {"OPENAI_BASE_URL": model.url, "MODEL": "scripted"}


class Bench:
    def __init__(self, groups: Sequence[str], window_s: float, *, full: bool) -> None:
        self._groups = groups
        self._window_s = window_s
        self._full = full
        self._console = Console(width=None if sys.stdout.isatty() else 120)
        self._begun = time.monotonic()
        self.rows: list[Row] = []
        self.machine: Machine | None = None

    async def run(self) -> None:
        if "start" in self._groups:
            self._say("starting the client and the command line")
            self._add(await asyncio.to_thread(start_rows))
        if set(self._groups) & {"append", "reload", "growth", "turn", "langgraph"}:
            self._say("starting Postgres, NATS and the session service")
            async with stand("session") as one:
                await self._session(one)
        if "freshness" in self._groups:
            self._say("starting Postgres, NATS and the three services")
            async with stand(*SERVICES) as whole:
                self.machine = self.machine or await Machine.of(whole.postgres_dsn)
                self._say("append → searchable")
                self._add(await freshness_rows(whole))
                self._say("memory at rest")
                self._add(await resting_rows(whole, "distilling"))
            if self._full:
                for per_s, replicas in ((10, 1), (300, 1), (10, 2), (100, 2), (300, 2)):
                    self._say(f"append → searchable at {per_s}/s with {replicas} distillers")
                    async with stand(*SERVICES, distillers=replicas) as whole:
                        self._add(await freshness_rows(whole, per_s, replicas=replicas))
                self._say("one of two distillers is killed")
                async with scripted_model() as model, stand(*SERVICES, variables=asking(model), distillers=2) as two:
                    model.behave(after(MODEL_LATENCY_S))
                    self._add(await kill_rows(two, MODEL_LATENCY_S * 1e3))
        if "distilling" in self._groups:
            await self._distilling()
        if "recall" in self._groups:
            await self._recall()
        if "search" in self._groups:
            await self._search()

    async def _recall(self) -> None:
        directory = os.environ.get(DATA)
        if not directory:
            self._say(f"{DATA} names no directory: without the recall on real conversations")
            return
        self._say("starting Postgres, NATS, the memory service and a small embedding model")
        async with peer.serving("embedder") as url:
            variables = {
                "OPENAI_BASE_URL": url,
                "EMBEDDING_MODEL": EMBEDDER,
                "EMBEDDING_DIMENSIONS": str(DIMENSIONS),
                "EMBEDDING_QUERY_TIMEOUT_S": "10",  # eight at once wait for one core; here no search may do without
            }
            async with stand("memory", variables=variables) as one:
                self.machine = self.machine or await Machine.of(one.postgres_dsn)
                self._say("recall on conversations")
                self._add(await recall_rows(one, Path(directory), EMBEDDER))

    async def _search(self) -> None:
        self._say("starting Postgres, NATS and the memory service")
        async with stand("memory") as one:
            self.machine = self.machine or await Machine.of(one.postgres_dsn)
            self._say("search and writes, then the peers")
            self._add(await search_rows(one, self._window_s, full=self._full))
            self._add(await resting_rows(one, "searches"))
        if self._full:
            self._say("search in a store of a million entries and among thousands of stores")
            async with stand("memory") as one:
                self._add(await large_rows(one, self._window_s))

    async def _distilling(self) -> None:
        directory = os.environ.get(DATA)
        conversations = Conversations(Path(directory)) if directory else None
        if conversations is None:
            self._say(f"{DATA} names no directory: without the rows over real conversations")
        self._say("lanes, and the built-in model on conversations")
        async with stand(*SERVICES) as whole:
            self.machine = self.machine or await Machine.of(whole.postgres_dsn)
            self._add(await lane_rows(whole))
            self._add(await backlog_rows(whole))
            if conversations is not None:
                self._add(await builtin_rows(whole, conversations))
        if self._full:
            self._say("one workspace beside another's 10,000 lanes")
            async with stand(*SERVICES) as whole:
                self._add(await fairness_rows(whole))
        self._say("with a scripted model")
        async with scripted_model() as model, stand(*SERVICES, variables=asking(model)) as whole:
            model.behave(by_size)
            self._add(await cost_rows(whole))
            model.behave(after(MODEL_LATENCY_S))
            self._add(await freshness_rows(whole, 10, model="a scripted model", latency_ms=MODEL_LATENCY_S * 1e3))
            if conversations is not None:
                model.behave(ReferenceFacts(conversations).answer)
                self._add(await reference_rows(whole, conversations))

    async def _session(self, one: Stand) -> None:
        self.machine = await Machine.of(one.postgres_dsn)
        peers: Peers = {}
        if set(self._groups) & {"append", "reload"}:
            self._say("the peers of sessions")
            peers = await session_peers(one, self._window_s / 2)
        if "append" in self._groups:
            self._say("append, in turns with the limit")
            self._add(await append_rows(one, self._window_s, peers))
        if "reload" in self._groups:
            self._say("reload, in turns with the limit")
            self._add(await reload_rows(one, self._window_s, peers))
        if "growth" in self._groups:
            self._say("a turn as the session grows")
            self._add(await growth_rows(one, full=self._full))
        if "growth" in self._groups and self._full:
            self._say("a million sessions")
            self._add(await crowd_rows(one))
        if "turn" in self._groups:
            self._say("a turn of an agent")
            self._add(await turn_rows(one, self._window_s / 2))
        if "langgraph" in self._groups:
            self._say("LangGraph turns")
            self._add(await langgraph_rows(one, self._window_s / 2))
        self._say("memory at rest")
        self._add(await resting_rows(one, "this load"))

    def report(self) -> None:
        if self.machine is not None and self.rows:
            write(BUILD / "bench.json", self.machine, self.rows)
            show(self._console, self.machine, self.rows)
            self._console.print(f"{BUILD / 'bench.json'}, after {time.monotonic() - self._begun:.0f} s")

    def _add(self, rows: Sequence[Row]) -> None:
        self.rows += rows
        for row in rows:
            ratio = "" if row.ratio is None else f", ratio {row.ratio:.2f}"
            self._console.print(f"        {row.name}: {row.ours:,.4g} {row.unit}{ratio}", highlight=False)

    def _say(self, what: str) -> None:
        self._console.print(f"{time.monotonic() - self._begun:5.0f} s {what} …", highlight=False)


async def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("groups", nargs="*", metavar="group", help=f"of {', '.join(GROUPS)}; all by default")
    parser.add_argument("--window-s", type=float, default=WINDOW_S, help="the length of a window (%(default)s)")
    arguments = parser.parse_args()
    if unknown := set(arguments.groups) - set(GROUPS):
        parser.error(f"no such group: {', '.join(sorted(unknown))}")
    full = bool(os.environ.get("FULL"))
    bench = Bench(arguments.groups or GROUPS, arguments.window_s, full=full)
    task = asyncio.current_task()
    assert task is not None
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    try:
        async with asyncio.timeout(FULL_DEADLINE_S if full else DEADLINE_S):
            await bench.run()
    except asyncio.CancelledError:
        return 130
    finally:
        bench.report()
    return 0


if __name__ == "__main__":
    raise SystemExit(uvloop.run(main()))
