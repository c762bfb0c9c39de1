"""What the client repeats and what it never repeats."""

import json
from collections.abc import Callable

import httpx
import pytest

from memstream import transport
from memstream.client import AgentKitClient
from memstream.errors import AlreadyExists, InternalError, Unavailable, Unreachable
from memstream.sessions import Session

Answer = httpx.Response | Exception


class Script(httpx.BaseTransport):
    """Answers as told, and keeps what was asked."""

    def __init__(self, *answers: Answer) -> None:
        self.answers = list(answers)
        self.asked: list[httpx.Request] = []

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        self.asked.append(request)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


@pytest.fixture
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    slept: list[float] = []
    monkeypatch.setattr("memstream.transport.time.sleep", slept.append)
    return slept


def client(script: Script) -> AgentKitClient:
    return AgentKitClient(base_url="http://server", token="secret", http_transport=script)


def session(script: Script) -> Session:
    raw = {"session_id": "s", "actor_id": "ines"}
    return Session.of(raw, "store", client(script).session_stores._transport)


def ok(body: object = None) -> httpx.Response:
    return httpx.Response(200, json=body or {"session_items": [{"item_id": "i", "data": 1, "position": 1}]})


def refused(status: int, code: str, retry_after: str | None = None) -> httpx.Response:
    headers = {"Retry-After": retry_after} if retry_after else {}
    return httpx.Response(status, json={"error_code": code, "message": "no"}, headers=headers)


def test_an_append_whose_answer_was_lost_is_repeated_under_the_same_key(slept: list[float]) -> None:
    script = Script(httpx.ReadError("cut"), ok())

    session(script).append_items([1])

    keys = [request.headers["Idempotency-Key"] for request in script.asked]
    assert len(keys) == 2
    assert len(set(keys)) == 1


def test_two_appends_have_two_keys(slept: list[float]) -> None:
    script = Script(ok(), ok())

    for _ in range(2):
        session(script).append_items([1])

    assert len({request.headers["Idempotency-Key"] for request in script.asked}) == 2


def test_a_clear_whose_answer_was_lost_is_not_repeated(slept: list[float]) -> None:
    script = Script(httpx.ReadError("cut"))

    with pytest.raises(Unreachable):
        session(script).clear_items()

    assert len(script.asked) == 1


@pytest.mark.parametrize("status", [429, 503])
def test_what_was_refused_before_it_began_waits_as_told(slept: list[float], status: int) -> None:
    script = Script(refused(status, "RESOURCE_EXHAUSTED", "3"), ok({}))

    session(script).clear_items()

    assert len(slept) == 1
    assert 3 <= slept[0] < 4


def test_waiting_has_an_end(slept: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "WAITING_BUDGET_S", 0.5)

    with pytest.raises(Unavailable):
        session(Script(refused(503, "TEMPORARILY_UNAVAILABLE"))).clear_items()


def test_a_server_that_is_not_there_is_given_four_chances(slept: list[float]) -> None:
    script = Script(*[httpx.ConnectError("refused") for _ in range(4)])

    with pytest.raises(Unreachable, match="http://server cannot be reached: refused"):
        session(script).clear_items()

    assert slept == [0.2, 0.4, 0.8]


def test_an_error_keeps_what_the_server_said() -> None:
    details = [{"@type": "x", "request_id": "r-1"}, {"@type": "x", "reason": "OUTCOME_UNKNOWN", "metadata": {"a": "b"}}]
    body = {"error_code": "INTERNAL_ERROR", "message": "perhaps", "details": details}

    with pytest.raises(InternalError) as raised:
        session(Script(httpx.Response(500, json=body))).clear_items()

    error = raised.value
    assert (error.message, error.reason, error.metadata, error.request_id) == (
        "perhaps",
        "OUTCOME_UNKNOWN",
        {"a": "b"},
        "r-1",
    )


def test_the_code_wins_over_the_status() -> None:
    with pytest.raises(AlreadyExists):
        client(Script(refused(400, "RESOURCE_ALREADY_EXISTS"))).session_stores.create("abc")


def test_lists_go_on_to_the_last_page() -> None:
    pages: list[Answer] = [
        httpx.Response(200, json={"session_stores": [{"name": "session-stores/a"}], "next_page_token": "t"}),
        httpx.Response(200, json={"session_stores": [{"name": "session-stores/b"}]}),
    ]
    script = Script(*pages)

    assert [store.name for store in client(script).session_stores.list()] == ["a", "b"]
    assert script.asked[1].url.params["page_token"] == "t"


@pytest.mark.parametrize("size", [0, 101, True])
def test_a_page_size_out_of_range_is_refused_before_any_call(size: int) -> None:
    script = Script()

    with pytest.raises(ValueError, match="page_size must be a whole number from 1 to 100"):
        next(client(script).session_stores.list(page_size=size))

    assert script.asked == []


def test_a_token_may_be_a_function_that_is_asked_each_time() -> None:
    tokens = iter(["one", "two"])
    provider: Callable[[], str] = lambda: next(tokens)  # noqa: E731
    script = Script(ok({"name": "session-stores/a"}), ok({"name": "session-stores/a"}))
    asking = AgentKitClient(base_url="http://server", token=provider, http_transport=script)

    for _ in range(2):
        asking.session_stores.get("a")

    assert [request.headers["Authorization"] for request in script.asked] == ["Bearer one", "Bearer two"]


def test_text_that_utf_8_cannot_hold_stays_escaped() -> None:
    script = Script(ok())

    session(script).append_items(["\ud800", "é"])

    assert json.loads(script.asked[0].content) == {"items": [{"data": "\ud800"}, {"data": "é"}]}
