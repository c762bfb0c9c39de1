"""docker-compose.yml with two replicas of each service, met through its edge. Run by `make test-containers`."""

import itertools
import os
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import httpx
import pytest

from libs.contracts.routes import BASE
from memstream.client import AgentKitClient
from memstream.errors import MemstreamError
from memstream.memories import MemoryStore
from memstream.records import NewItem
from memstream.sessions import Session, SessionStore
from tests.support.compose import SERVICES, Compose, compose, missing

SEARCHABLE_DEADLINE_S = 120.0
BETWEEN_KILLS_S = 4.0
PAUSE_S = 0.05
THINGS = ("peanuts", "shellfish", "pollen", "latex", "penicillin", "wheat", "soy", "eggs", "milk", "mustard", "celery")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif("TEST_CONTAINERS" not in os.environ, reason="needs Docker: `make test-containers` runs it"),
]


@pytest.fixture(scope="module")
def stack() -> Iterator[Compose]:
    if reason := missing():
        pytest.skip(reason)
    with compose() as project:
        project.up(replicas=2)
        yield project


@pytest.fixture(scope="module")
def client(stack: Compose) -> Iterator[AgentKitClient]:
    with AgentKitClient(base_url=stack.url, token=stack.token("ana@example.com")) as client:
        yield client


@pytest.fixture(scope="module")
def stores(client: AgentKitClient) -> tuple[SessionStore, MemoryStore]:
    """With a continuous pipeline between them."""
    sessions, memories = client.session_stores.create("chats"), client.memory_stores.create("facts")
    client.pipelines.create(
        session_store=sessions.name, memory_store=memories.id, trigger="CONTINUOUS", quiet_period_s=0
    )
    return sessions, memories


def test_what_is_said_is_soon_found(stores: tuple[SessionStore, MemoryStore]) -> None:
    sessions, memories = stores
    session = sessions.add(actor_id="nadia")

    session.append_items([said("My sister's name is Petra.")])

    until_found(memories, "nadia", "My sister's name is Petra.")


def test_every_replica_may_be_killed_under_load(stores: tuple[SessionStore, MemoryStore], stack: Compose) -> None:
    sessions, memories = stores
    load = Load(sessions.add(actor_id="otto"))
    thread = threading.Thread(target=load.run)

    thread.start()
    try:
        for service in SERVICES:
            time.sleep(BETWEEN_KILLS_S)
            stack.kill(service)
        time.sleep(BETWEEN_KILLS_S)
    finally:
        load.stop.set()
        thread.join()

    assert [len(stack.containers(service)) for service in SERVICES] == [1, 1, 1]
    assert load.failures == []
    items = load.session.list_items(page_size=100, order_by="create_time asc")
    assert [item.data["content"] for item in items] == load.acknowledged
    for fact in sorted(load.facts):
        until_found(memories, "otto", fact)


def test_the_edge_answers_what_no_service_owns(stack: Compose) -> None:
    for path in ("/metrics", "/readyz", f"{BASE}/nothing"):
        answer = httpx.get(stack.url + path)

        assert (answer.status_code, answer.json()["error_code"]) == (404, "NOT_FOUND"), path


def test_a_caller_without_a_token_is_refused(stack: Compose) -> None:
    answer = httpx.get(f"{stack.url}{BASE}/session-stores")

    assert (answer.status_code, answer.json()["error_code"]) == (401, "UNAUTHENTICATED")


def test_no_service_sees_a_private_key(stack: Compose) -> None:
    for service in SERVICES:
        status, output = stack.inside(service, "sh", "-c", "ls /public-keys /keys; cat /keys/* 2>/dev/null | wc -c")

        assert status == 0
        assert ".public.pem" in output
        assert "private" not in output
        assert output.splitlines()[-1].strip() == "0"


def test_a_services_role_enters_no_other_database(stack: Compose) -> None:
    for service, other in itertools.permutations((*SERVICES, "postgres"), 2):
        if service == "postgres":
            continue
        password = setting(stack, f"DATABASE_PASSWORD_{service.upper()}")

        status, output = stack.inside(
            "postgres", "psql", "-h", "127.0.0.1", "-U", service, "-d", other, "-c", "", env={"PGPASSWORD": password}
        )

        assert status != 0
        assert "permission denied for database" in output


def test_the_services_stay_within_their_rights_at_the_broker(stack: Compose) -> None:
    log = stack.run("logs", "--no-color", "nats")

    assert "Server is ready" in log
    assert [line for line in log.splitlines() if "Violation" in line] == []


def test_a_new_key_is_published_and_a_retired_one_withdrawn(stack: Compose) -> None:
    (old,) = (line.split()[0] for line in stack.keys("keys", "list").splitlines())

    new = stack.keys("keys", "add").strip()
    assert stack.inside("session", "ls", "/public-keys")[1].split() == [f"{old}.public.pem", f"{new}.public.pem"]
    stack.keys("keys", "retire", old)

    assert stack.inside("session", "ls", "/public-keys")[1].split() == [f"{new}.public.pem"]


@dataclass
class Load:
    """Appends one item after another; the client repeats each under its key until it is acknowledged."""

    session: Session
    stop: threading.Event = field(default_factory=threading.Event)
    acknowledged: list[str] = field(default_factory=list)
    facts: set[str] = field(default_factory=set)
    failures: list[str] = field(default_factory=list)

    def run(self) -> None:
        for number in itertools.count():
            if self.stop.is_set():
                return
            is_fact = number % 10 == 0
            text = f"I am allergic to {THINGS[number // 10 % len(THINGS)]}." if is_fact else f"Remark {number}."
            try:
                self.session.append_items([said(text)])
            except MemstreamError as failed:
                self.failures.append(f"append {number}: {failed}")
                return
            self.acknowledged.append(text)
            if is_fact:
                self.facts.add(text)
            time.sleep(PAUSE_S)


def said(text: str) -> NewItem:
    return NewItem({"type": "message", "role": "user", "content": text})


def until_found(store: MemoryStore, actor: str, fact: str) -> None:
    """Waits until a search for the fact finds it."""
    deadline = time.monotonic() + SEARCHABLE_DEADLINE_S
    contents: list[str | None] = []
    while fact not in contents:
        assert time.monotonic() < deadline, f"not found: {fact}; found: {contents}"
        contents = [hit.memory.content for hit in store.search(actor_id=actor, query=fact)]
        time.sleep(0.1)


def setting(stack: Compose, name: str) -> str:
    return dict(line.split("=", 1) for line in stack.env_file.read_text().splitlines() if "=" in line)[name]
