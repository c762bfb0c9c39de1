"""`make demo`: a conversation file is played through the HTTP API, and the terminal tells what became of it.

Nothing here knows the sample: whatever the file says is played, and what its users ask is what is searched.
"""

import asyncio
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console
from rich.table import Table

from memstream.client import AgentKitClient
from memstream.conversations import Conversation, ConversationFile, check_file
from memstream.distilling import wait_until_distilled
from memstream.errors import MemstreamError
from memstream.memories import Memory, MemoryStore
from memstream.pipelines import Pipeline
from memstream.records import NewItem
from memstream.sessions import SessionStore
from services.standalone.__main__ import failed, run
from services.standalone.app import running
from services.standalone.settings import Settings
from services.standalone.welcome import PRINCIPAL

SAMPLE = Path(__file__).parent / "samples" / "demo.jsonl"
QUIET_PERIOD_S, MAX_WAIT_S = 0.2, 2.0
DISTIL_DEADLINE_S = 120.0
NOTICE_S, POLL_S = 2.0, 0.02
SEARCHES_PER_ACTOR = 3
HITS = 2


@dataclass
class Account:
    """What the demo has seen."""

    played: list[tuple[str, str, int, float]] = field(default_factory=list)
    changes: list[tuple[str, str, str, str]] = field(default_factory=list)
    memories: dict[str, list[Memory]] = field(default_factory=dict)
    answers: list[tuple[str, str, str]] = field(default_factory=list)


async def demo(environment: Settings) -> int:
    """Everything on free ports and in a directory of its own, which is gone at the end."""
    file = Path(sys.argv[1]) if len(sys.argv) > 1 else SAMPLE
    directory = _directory()
    try:
        checked = check_file(file)
        async with running(environment.model_copy(update={"port": 0, "data_dir": directory})) as standalone:
            token = standalone.token(PRINCIPAL, ttl_s=3600)
            account = await asyncio.to_thread(play, standalone.url, token, checked)
    except MemstreamError as error:
        return failed(error)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    tell(account, file, environment.model)
    return 0


def _directory() -> Path:
    directory = Path(tempfile.mkdtemp(prefix="memstream-demo-")).resolve()
    directory.chmod(0o755)  # the account of Postgres must enter it when root runs the demo
    return directory


def play(url: str, token: str, file: ConversationFile) -> Account:
    account = Account()
    with AgentKitClient(base_url=url, token=token) as client:
        sessions = client.session_stores.create("conversations", description="Played by the demo")
        memories = client.memory_stores.create("memories", description="What was distilled from it")
        pipeline = client.pipelines.create(
            session_store=sessions.name,
            memory_store=memories.id,
            trigger="CONTINUOUS",
            quiet_period_s=QUIET_PERIOD_S,
            max_wait_s=MAX_WAIT_S,
        )
        for conversation in file.conversations:
            _play(account, pipeline, sessions, memories, file, conversation)
        for actor, questions in _questions(file).items():
            for question in questions or [memory.description or memory.path for memory in account.memories[actor]][:2]:
                found = memories.search(actor_id=actor, query=question, limit=HITS)
                answer = "\n".join(f"{hit.memory.content}  ({hit.score or 0:.2f})" for hit in found)
                account.answers.append((actor, question, answer or "nothing"))
    return account


def _play(
    account: Account,
    pipeline: Pipeline,
    sessions: SessionStore,
    memories: MemoryStore,
    file: ConversationFile,
    conversation: Conversation,
) -> None:
    actor = conversation.actor_id
    before = {memory.path: memory for memory in account.memories.get(actor, [])}
    session = sessions.add(actor_id=actor, session_id=conversation.session_id)
    for turn in file.turns_of(conversation):
        session.append_items([NewItem(turn.item, turn.time)])
    seconds = _until_distilled(pipeline, actor)
    account.played.append((actor, session.session_id, len(conversation), seconds))
    account.memories[actor] = list(memories.list(actor_id=actor, page_size=100))
    for memory in account.memories[actor]:
        old = before.get(memory.path)
        if old is not None and old.content != memory.content:
            account.changes.append((actor, memory.path, old.content or "", memory.content or ""))


def _until_distilled(pipeline: Pipeline, actor: str) -> float:
    """Seconds until the lane has settled by itself; a run then makes sure that nothing was still under way."""
    appended, is_noticed, seconds = time.monotonic(), False, 0.0
    while time.monotonic() - appended < (DISTIL_DEADLINE_S if is_noticed else NOTICE_S):
        is_settled = all(lane.state == "settled" for lane in pipeline.lanes(actor_id=actor))
        seconds = time.monotonic() - appended
        if is_noticed and is_settled:
            break
        is_noticed = is_noticed or not is_settled
        time.sleep(POLL_S)
    parked = wait_until_distilled(pipeline, DISTIL_DEADLINE_S, lambda *_: None)
    if parked:
        reasons = {lane.reason for lane in pipeline.lanes(state="parked")}
        raise MemstreamError(f"the model's answer could not be used: {', '.join(filter(None, reasons))}")
    return seconds


def _questions(file: ConversationFile) -> dict[str, list[str]]:
    """What each actor asks in the file, the latest first, as an agent would search for it."""
    asked: dict[str, list[str]] = {}
    for conversation in file.conversations:
        questions = asked.setdefault(conversation.actor_id, [])
        for turn in file.turns_of(conversation):
            questions[:0] = [*_asked(turn.item)]
    return {actor: list(dict.fromkeys(questions))[:SEARCHES_PER_ACTOR] for actor, questions in asked.items()}


def _asked(item: object) -> Iterator[str]:
    if not isinstance(item, dict) or item.get("role") != "user" or not isinstance(item.get("content"), str):
        return
    for sentence in item["content"].replace("!", ".").replace("?", "?.").split("."):
        if sentence.strip().endswith("?"):
            yield sentence.strip()


def tell(account: Account, file: Path, model: str) -> None:
    wide = None if sys.stdout.isatty() else int(os.environ.get("COLUMNS", "120"))
    console = Console(width=wide, highlight=False)
    items = sum(count for _, _, count, _ in account.played)
    stored = f"{items} items stored in {len(account.played)} sessions"
    console.print(f"\n[bold]Played {file.name}: {stored}[/bold], distilled by {model}")
    console.print(
        _table(
            ("actor", "session", "items", "last append to searchable"),
            [(actor, session, str(count), f"{seconds:.2f} s") for actor, session, count, seconds in account.played],
        )
    )
    memories = [memory for found in account.memories.values() for memory in found]
    console.print(f"\n[bold]{len(memories)} memories[/bold]")
    rows = [(memory.actor_id, memory.path, memory.content or "", _day(memory)) for memory in memories]
    console.print(_table(("actor", "path", "statement", "said on"), rows))
    console.print(f"\n[bold]Changes of mind resolved: {len(account.changes)}[/bold]")
    if account.changes:
        console.print(_table(("actor", "path", "was", "is"), account.changes))
    console.print("\n[bold]Searches in the users' own words[/bold]")
    console.print(_table(("actor", "question", "answer (score)"), account.answers))


def _day(memory: Memory) -> str:
    return memory.valid_from.date().isoformat() if memory.valid_from else ""


def _table(headings: tuple[str, ...], rows: Sequence[Sequence[str]]) -> Table:
    table = Table(*headings, header_style="dim", expand=False)
    for row in rows:
        table.add_row(*row)
    return table


if __name__ == "__main__":
    sys.exit(run(demo))
