"""What both clients send, repeat and never repeat, and what they refuse before any call."""

import json
import subprocess
import sys
import warnings
from datetime import UTC, date, datetime
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from memstream.aio.client import AsyncAgentKitClient
from memstream.aio.sessions import Session as AwaitedSession
from memstream.errors import AlreadyExists, InternalError, MemstreamError, PermissionDenied, Unavailable, Unreachable
from memstream.records import NewItem, Usage
from memstream.sessions import Session
from tests.support.sdk import Face, both_clients, everything, face, public_methods
from tests.support.standalone import ROOT

Answer = httpx.Response | Exception

ITEM = {"item_id": "i", "data": 1, "position": 1}
RAW = {
    "session_id": "s",
    "actor_id": "ines",
    "path": "/tea.md",
    "erasure_id": "e",
    "state": "PENDING",
    "session_items": [ITEM],
    "item": ITEM,
    "session_store": "session-stores/talks",
    "memory_store": "memory-stores/facts",
    "session_store_id": "talks",
    "display_name": "facts",
}
STORE, MEMORIES, PIPELINE = "session-stores/talks", "memory-stores/facts", "memory-pipelines/p"
ENTRY = f"{MEMORIES}/entries/tea"


class Script:
    """Answers as told, and keeps what was asked."""

    def __init__(self, *answers: Answer) -> None:
        self.answers = list(answers)
        self.asked: list[httpx.Request] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.asked.append(request)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    @property
    def keys(self) -> list[str | None]:
        return [request.headers.get("Idempotency-Key") for request in self.asked]

    def body(self, index: int = 0) -> Any:
        return json.loads(self.asked[index].content)


@pytest.fixture
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    monkeypatch.setattr("memstream.transport.sleep", slept.append)
    monkeypatch.setattr("memstream.aio.transport.sleep", sleep)
    return slept


def client(kind: str, script: Script, **named: Any) -> Face:
    named = {"base_url": "http://server", "token": "secret"} | named
    return face(kind, http_transport=httpx.MockTransport(script), **named)


async def session(kind: str, script: Script) -> Face:
    """One whose making the script does not see."""
    made = client(kind, script)
    cls = Session if kind == "blocking" else AwaitedSession
    return Face(cls.of(RAW, "talks", made.session_stores.target._transport), set())


async def store(kind: str, script: Script, name: str) -> Face:
    made = client(kind, script)
    script.answers.insert(0, ok(name=name))
    collection = made.session_stores if name == STORE else made.pipelines if name == PIPELINE else made.memory_stores
    found: Face = await collection.get(name)
    script.asked.clear()
    return found


def ok(**fields: Any) -> httpx.Response:
    return httpx.Response(200, json={**RAW, **fields})


def refused(status: int, code: str, retry_after: str | None = None, reason: str | None = None) -> httpx.Response:
    headers = {"Retry-After": retry_after} if retry_after else {}
    details = [{"@type": "x", "reason": reason}] if reason else []
    return httpx.Response(status, json={"error_code": code, "message": "no", "details": details}, headers=headers)


@both_clients
async def test_an_append_whose_answer_was_lost_is_repeated_under_the_same_key(kind: str, slept: list[float]) -> None:
    script = Script(httpx.ReadError("cut"), ok())

    await (await session(kind, script)).append_items([1])

    assert len(script.keys) == 2
    assert len(set(script.keys)) == 1
    assert script.keys[0]


@both_clients
async def test_two_appends_have_two_keys(kind: str) -> None:
    script = Script(ok(), ok())
    written = await session(kind, script)

    for _ in range(2):
        await written.append_items([1])

    assert len(set(script.keys)) == 2


CREATES: dict[str, Any] = {
    "a session store": lambda c, s: c.session_stores.create("talks"),
    "a session": lambda c, s: s[STORE].add(actor_id="ines"),
    "a fork": lambda c, s: s["session"].fork(actor_id="ines"),
    "items": lambda c, s: s["session"].append_items([1]),
    "a pop": lambda c, s: s["session"].pop_item(),
    "an erasure": lambda c, s: s[STORE].erase_actor("ines"),
    "a memory store": lambda c, s: c.memory_stores.create("facts"),
    "an entry": lambda c, s: s[MEMORIES].add(actor_id="ines", path="/tea.md", content="tea"),
    "a put": lambda c, s: s[MEMORIES].put(actor_id="ines", path="/tea.md", content="tea"),
    "a pipeline": lambda c, s: c.pipelines.create(session_store="talks", memory_store="facts"),
    "a run": lambda c, s: s[PIPELINE].run(),
}


@both_clients
@pytest.mark.parametrize("made", sorted(CREATES))
async def test_every_create_and_append_has_a_key_that_its_repeat_keeps(
    kind: str, made: str, slept: list[float]
) -> None:
    script = Script()
    scene: dict[str, Any] = {name: await store(kind, script, name) for name in (STORE, MEMORIES, PIPELINE)}
    scene["session"] = await session(kind, script)
    script.answers = [httpx.ReadTimeout("slow"), ok(name=ENTRY)]

    await CREATES[made](client(kind, script), scene)

    assert len(script.keys) == 2
    assert script.keys[0] == script.keys[1] is not None


@both_clients
async def test_a_clear_whose_answer_was_lost_is_not_repeated(kind: str, slept: list[float]) -> None:
    script = Script(httpx.ReadError("cut"))

    with pytest.raises(Unreachable):
        await (await session(kind, script)).clear_items()

    assert len(script.asked) == 1


@both_clients
@pytest.mark.parametrize("status", [429, 503])
async def test_what_was_refused_before_it_began_waits_as_told(kind: str, status: int, slept: list[float]) -> None:
    script = Script(refused(status, "RESOURCE_EXHAUSTED", "3"), ok())

    await (await session(kind, script)).clear_items()

    assert len(slept) == 1
    assert 3 <= slept[0] < 4


@both_clients
async def test_untold_waits_double_up_to_a_bound(
    kind: str, slept: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("memstream.retries.random.random", lambda: 0.0)
    script = Script(*[refused(503, "UNAVAILABLE") for _ in range(7)], ok())

    await (await session(kind, script)).clear_items()

    assert slept == [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 20.0]


@both_clients
@pytest.mark.parametrize(
    ("retry_afters", "waits"),
    [
        pytest.param([None], [], id="untold"),
        pytest.param(["0", "0", "1"], [0, 0], id="told"),
        pytest.param([httpx.ConnectError("refused")] * 2, [0.2], id="no-connection"),
    ],
)
async def test_waiting_ends_with_the_clients_patience(
    kind: str, retry_afters: list[str | Exception | None], waits: list[float], slept: list[float]
) -> None:
    refusals = [each if isinstance(each, Exception) else refused(503, "UNAVAILABLE", each) for each in retry_afters]
    impatient = client(kind, Script(*refusals), patience_s=0.3)

    with pytest.raises((Unavailable, Unreachable)):
        await impatient.session_stores.get("talks")

    assert slept == waits


@both_clients
async def test_a_server_that_is_not_there_is_given_four_chances(kind: str, slept: list[float]) -> None:
    script = Script(*[httpx.ConnectError("refused") for _ in range(4)])

    with pytest.raises(Unreachable, match="http://server cannot be reached: refused"):
        await (await session(kind, script)).clear_items()

    assert slept == [0.2, 0.4, 0.8]


@both_clients
@pytest.mark.parametrize("status", [500, 502, 504])
async def test_an_unknown_outcome_is_repeated_only_under_a_key(kind: str, status: int, slept: list[float]) -> None:
    unknown = refused(status, "INTERNAL_ERROR", reason="OUTCOME_UNKNOWN" if status == 500 else None)
    keyed, plain = Script(unknown, ok()), Script(unknown)

    await (await session(kind, keyed)).append_items([1])
    with pytest.raises(InternalError):
        await (await session(kind, plain)).clear_items()

    assert len(keyed.asked) == 2
    assert len(plain.asked) == 1


@both_clients
async def test_any_other_fault_of_the_server_is_not_repeated(kind: str, slept: list[float]) -> None:
    script = Script(refused(500, "INTERNAL_ERROR"))

    with pytest.raises(InternalError):
        await (await session(kind, script)).append_items([1])

    assert len(script.asked) == 1


@both_clients
async def test_an_error_keeps_what_the_server_said(kind: str) -> None:
    details = [{"@type": "x", "request_id": "r-1"}, {"@type": "x", "reason": "OUTCOME_UNKNOWN", "metadata": {"a": "b"}}]
    body = {"error_code": "INTERNAL_ERROR", "message": "perhaps", "details": details}

    with pytest.raises(InternalError) as raised:
        await (await session(kind, Script(httpx.Response(500, json=body)))).clear_items()

    error = raised.value
    assert (error.message, error.reason, error.metadata, error.request_id) == (
        "perhaps",
        "OUTCOME_UNKNOWN",
        {"a": "b"},
        "r-1",
    )


@both_clients
async def test_the_code_wins_over_the_status(kind: str) -> None:
    with pytest.raises(AlreadyExists):
        await client(kind, Script(refused(400, "RESOURCE_ALREADY_EXISTS"))).session_stores.create("abc")


@both_clients
async def test_lists_go_on_to_the_last_page(kind: str) -> None:
    pages: list[Answer] = [
        httpx.Response(200, json={"session_stores": [{"name": "session-stores/a"}], "next_page_token": "t"}),
        httpx.Response(200, json={"session_stores": [{"name": "session-stores/b"}]}),
    ]
    script = Script(*pages)

    assert [store.name async for store in client(kind, script).session_stores.list()] == ["a", "b"]
    assert script.asked[1].url.params["page_token"] == "t"


@both_clients
@pytest.mark.parametrize("size", [0, 101, True])
async def test_a_page_size_out_of_range_is_refused_before_any_call(kind: str, size: int) -> None:
    script = Script()

    with pytest.raises(ValueError, match="page_size must be a whole number from 1 to 100"):
        await everything(client(kind, script).session_stores.list(page_size=size))

    assert script.asked == []


REFUSED: dict[str, Any] = {
    "nothing to append": lambda s: s["session"].append_items([]),
    "an item instead of a list": lambda s: s["session"].append_items({"role": "user"}),
    "a time without a zone": lambda s: s["session"].append_items([NewItem(1, datetime(2026, 1, 1))]),
    "not JSON": lambda s: s["session"].append_items([float("nan")]),
    "nothing to update in a session store": lambda s: s[STORE].update(),
    "nothing to update in a memory store": lambda s: s[MEMORIES].update(),
    "nothing to update in a pipeline": lambda s: s[PIPELINE].update(),
    "clearing what cannot be cleared": lambda s: s[STORE].update(clear=["name"]),
    "a slash in a session id": lambda s: s[STORE].get("a/b"),
    "a slash in a new session id": lambda s: s[STORE].add(actor_id="ines", session_id="a/b"),
    "a slash in an entry id": lambda s: s[MEMORIES].get("a/b"),
    "a session id that URLs lose": lambda s: s[STORE].get(".."),
    "a slash in a run id": lambda s: s[PIPELINE].get_run("1/2"),
    "a search limit out of range": lambda s: s[MEMORIES].search(actor_id="ines", query="tea", limit=101),
    "an unknown permission": lambda s: s[STORE].grant_permission("x", permission="ALL"),
    "an unknown kind of principal": lambda s: s[STORE].grant_permission("x", principal_type="GROUP"),
    "an unknown trigger": lambda s: s[PIPELINE].update(trigger="NEVER"),
    "positions and after": lambda s: everything(s["session"].list_items(positions=[1], after=1)),
}


@both_clients
@pytest.mark.parametrize("what", sorted(REFUSED))
async def test_what_cannot_be_right_is_refused_before_any_call(kind: str, what: str) -> None:
    script = Script()
    scene: dict[str, Any] = {name: await store(kind, script, name) for name in (STORE, MEMORIES, PIPELINE)}
    scene["session"] = await session(kind, script)

    with pytest.raises(ValueError, match=r"\w"):
        await REFUSED[what](scene)

    assert script.asked == []


@both_clients
async def test_a_memory_without_a_change_and_an_unknown_write_mode_are_refused(kind: str) -> None:
    script = Script(ok(name=ENTRY))
    entries = await store(kind, script, MEMORIES)
    entry = await entries.get("tea")

    with pytest.raises(ValueError, match="content or description"):
        await entry.update()
    with pytest.warns(DeprecationWarning, match="use put"), pytest.raises(ValueError, match="write_mode must be"):
        await entries.add(actor_id="ines", path="/tea.md", content="tea", write_mode="SOMEHOW")

    assert len(script.asked) == 1


@both_clients
@pytest.mark.parametrize(
    ("mode", "path", "append"),
    [
        ("EXCLUSIVE", "/entries", None),
        ("OVERWRITE", "/entries:put", None),
        ("MANAGED_MEMORY_ENTRY_WRITE_MODE_APPEND", "/entries:put", True),
    ],
)
async def test_the_old_write_modes_become_calls(kind: str, mode: str, path: str, append: bool | None) -> None:
    script = Script(ok(name=ENTRY))
    entries = await store(kind, script, MEMORIES)
    script.answers = [ok(name=ENTRY)]

    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        await entries.add(actor_id="ines", path="/tea.md", content="tea", write_mode=mode)

    assert [each.category for each in warned] == [DeprecationWarning]
    assert script.asked[0].url.path.endswith(path)
    assert script.body().get("append") == append


@both_clients
async def test_what_is_cleared_is_in_the_mask_alone(kind: str) -> None:
    script = Script()
    changed = await store(kind, script, STORE)
    script.answers = [ok(name=STORE)]

    await changed.update(description="new", clear=["metadata", "retention_days"])

    assert script.asked[0].url.params["update_mask"] == "description,metadata,retention_days"
    assert script.body() == {"description": "new"}


@both_clients
async def test_many_positions_are_asked_a_hundred_at_a_time_in_order(kind: str) -> None:
    script = Script(ok(), ok())

    await everything((await session(kind, script)).list_items(positions=range(150, 0, -1), order_by="create_time asc"))

    asked = [request.url.params["positions"].split(",") for request in script.asked]
    assert asked == [[str(n) for n in range(1, 101)], [str(n) for n in range(101, 151)]]


@both_clients
async def test_a_replay_names_its_actor_and_its_store(kind: str) -> None:
    script = Script()
    pipeline = await store(kind, script, PIPELINE)
    told = {"name": f"{PIPELINE}/replays/r", "memory_store": "memory-stores/other"}
    script.answers = [ok(**told, state="RUNNING"), ok(**told, state="CANCELED"), ok()]

    begun = await pipeline.replay(actor_id="ines", memory_store="other")
    ended = await pipeline.get_replay(begun.name)
    await pipeline.cancel_replay(begun.id)

    assert (begun.has_ended, ended.has_ended) == (False, True)
    assert script.body() == {"actor_id": "ines", "memory_store": "memory-stores/other"}
    paths = [request.url.path.partition("memory-pipelines/")[2] for request in script.asked]
    assert paths == ["p:replay", "p/replays/r", "p/replays/r"]


@both_clients
async def test_usage_is_asked_and_told_by_day(kind: str) -> None:
    row = {"day": "2026-03-01", "model": "m", "outcome": "ok", "calls": 2, "prompt_tokens": 30, "completion_tokens": 4}
    script = Script()
    pipeline = await store(kind, script, PIPELINE)
    script.answers = [httpx.Response(200, json={"usage": [row]})]

    found = await pipeline.usage(since=date(2026, 3, 1))

    assert found == [Usage(date(2026, 3, 1), "m", "ok", calls=2, prompt_tokens=30, completion_tokens=4)]
    assert dict(script.asked[0].url.params) == {"from": "2026-03-01"}


@both_clients
async def test_a_token_may_be_a_function_that_is_asked_each_time(kind: str, slept: list[float]) -> None:
    tokens = iter(["one", "two"])
    script = Script(httpx.ConnectError("not yet"), ok(name=STORE))

    await client(kind, script, token=lambda: next(tokens)).session_stores.get("talks")

    assert [request.headers["Authorization"] for request in script.asked] == ["Bearer one", "Bearer two"]


async def test_the_awaited_client_awaits_a_token() -> None:
    script = Script(ok(name=STORE))

    async def token() -> str:
        return "awaited"

    async with AsyncAgentKitClient(
        base_url="http://server", token=token, http_transport=httpx.MockTransport(script)
    ) as asking:
        await asking.session_stores.get("talks")

    assert script.asked[0].headers["Authorization"] == "Bearer awaited"


@both_clients
async def test_a_workspace_client_says_where_and_who(kind: str) -> None:
    config = SimpleNamespace(host="http://workspace/", authenticate=lambda: {"Authorization": "Bearer theirs"})
    script = Script(ok(name=STORE))

    asking = face(kind, SimpleNamespace(config=config), http_transport=httpx.MockTransport(script))
    await asking.session_stores.get("talks")

    assert asking.base_url == "http://workspace"
    assert script.asked[0].url.host == "workspace"
    assert script.asked[0].headers["Authorization"] == "Bearer theirs"


@both_clients
async def test_the_environment_says_where_and_who_when_nobody_else_does(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MEMSTREAM_URL", "http://environment")
    monkeypatch.setenv("MEMSTREAM_TOKEN", "theirs")
    script = Script(ok(name=STORE))

    await face(kind, http_transport=httpx.MockTransport(script)).session_stores.get("talks")

    assert script.asked[0].url.host == "environment"
    assert script.asked[0].headers["Authorization"] == "Bearer theirs"


@both_clients
@pytest.mark.parametrize("named", [{"token": ""}, {"token": "t", "base_url": "server:8080"}], ids=["token", "url"])
async def test_a_client_that_could_never_ask_is_not_made(
    kind: str, named: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MEMSTREAM_TOKEN", "somebody else's")

    with pytest.raises(MemstreamError) as raised:
        face(kind, **named)

    assert raised.value.hint


@both_clients
async def test_a_deadline_is_as_told_and_longer_by_what_the_server_is_asked_to_wait(kind: str) -> None:
    script = Script(ok(name=MEMORIES), ok())
    asking = client(kind, script, timeout_s=7.0)
    facts = await asking.memory_stores.get("facts")

    await facts.search(actor_id="ines", query="tea", max_wait_ms=20_000)

    timeouts = [request.extensions["timeout"] for request in script.asked]
    assert [each["read"] for each in timeouts] == [7.0, 27.0]
    assert {each["connect"] for each in timeouts} == {5.0}


@both_clients
async def test_a_watch_goes_on_after_the_last_event_when_it_is_cut(kind: str, slept: list[float]) -> None:
    first = (
        b"id: 1-0\nevent: ready\ndata: {}\n\n: still here\n\n"
        b'id: 1-1\nevent: set\ndata: {"path": "/tea.md", "version": 1}\n\nid: 1-2\nevent: s'
    )
    second = b'id: 1-1\nevent: ready\ndata: {}\n\nid: 1-2\nevent: set\ndata: {"path": "/tea.md", "version": 2}\n\n'
    script = Script()
    facts = await store(kind, script, MEMORIES)
    script.answers = [
        httpx.Response(200, content=first),
        httpx.ReadError("cut"),
        *[httpx.ConnectError("down") for _ in range(4)],
        httpx.Response(200, content=second),
        refused(403, "PERMISSION_DENIED"),
    ]

    seen = []

    async def watch() -> None:
        async for change in facts.watch(actor_id="ines"):
            seen.append((change.id, change.change, change.version))

    with pytest.raises(PermissionDenied):
        await watch()
    assert seen == [("1-0", "ready", None), ("1-1", "set", 1), ("1-2", "set", 2)]
    assert [request.headers.get("Last-Event-ID") for request in script.asked] == [None, *["1-1"] * 6, "1-2"]


@both_clients
async def test_a_watch_without_a_server_to_begin_with_fails(kind: str, slept: list[float]) -> None:
    script = Script()
    facts = await store(kind, script, MEMORIES)
    script.answers = [httpx.ConnectError("down") for _ in range(4)]

    with pytest.raises(Unreachable):
        await anext(facts.watch(last_event_id="1-1"))


@both_clients
async def test_a_search_without_scores_is_read_from_the_older_list(kind: str) -> None:
    script = Script()
    facts = await store(kind, script, MEMORIES)
    script.answers = [httpx.Response(200, json={"managed_memory_entries": [{**RAW, "name": ENTRY}], "settled": False})]

    found = await facts.search(actor_id="ines", query="tea")

    assert [(hit.memory.id, hit.score) for hit in found] == [("tea", None)]
    assert found.settled is False
    assert script.body()["page_size"] == 100


@both_clients
async def test_what_a_newer_server_says_besides_is_no_problem(kind: str) -> None:
    script = Script(ok(name=STORE, create_time="yesterday", update_time="2026-03-01T10:00:00.500Z", new_field={"a": 1}))

    found = await client(kind, script).session_stores.get("talks")

    assert found.create_time is None
    assert found.update_time == datetime(2026, 3, 1, 10, 0, 0, 500_000, UTC)


@both_clients
async def test_snapshots_cannot_be_changed(kind: str) -> None:
    found = await store(kind, Script(), STORE)

    with pytest.raises(AttributeError):
        found.target.description = "other"


@both_clients
async def test_text_that_utf_8_cannot_hold_stays_escaped(kind: str) -> None:
    script = Script(ok())

    await (await session(kind, script)).append_items(["\ud800", "é"])

    assert script.body() == {"items": [{"data": "\ud800"}, {"data": "é"}]}


def test_both_clients_have_the_same_methods() -> None:
    assert public_methods("blocking") == public_methods("awaited")
    assert len(public_methods("blocking")) > 50


def test_the_blocking_client_is_made_from_the_awaited_one() -> None:
    made = subprocess.run(
        [sys.executable, ROOT / "libs/sdk/generate.py", "--check"], capture_output=True, text=True, timeout=60
    )

    assert made.returncode == 0, made.stderr


@pytest.mark.parametrize(
    ("code", "unwanted"),
    [
        ("import memstream", ("httpx", "pydantic", "rich", "typer", "asyncio")),
        ("from memstream import AgentKitClient", ("pydantic", "typer", "anyio", "memstream.aio.client")),
        ("from memstream import AsyncAgentKitClient", ("pydantic", "typer")),
    ],
)
def test_importing_loads_only_what_is_used(code: str, unwanted: tuple[str, ...]) -> None:
    script = f"{code}\nimport sys\nprint([name for name in {unwanted!r} if name in sys.modules])"

    answer = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)

    assert answer.stdout.strip() == "[]", answer.stderr
