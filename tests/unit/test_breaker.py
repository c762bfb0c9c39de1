"""How long an endpoint asks to be left alone."""

import pytest

from libs.chassis import breaker as module
from libs.chassis.breaker import LONGEST_PAUSE_S, PROBE_INTERVAL_S, Breaker, pause_s


@pytest.mark.parametrize(
    ("retry_after", "pause"),
    [
        ("3", 3.0),
        ("0", 0.0),
        ("1.5", 1.5),
        ("86400", LONGEST_PAUSE_S),
        ("inf", LONGEST_PAUSE_S),
        (None, PROBE_INTERVAL_S),
        ("", PROBE_INTERVAL_S),
        ("-1", PROBE_INTERVAL_S),
        ("nan", PROBE_INTERVAL_S),
        ("²", PROBE_INTERVAL_S),
        ("Sun, 29 Nov 2026 12:00:00 GMT", PROBE_INTERVAL_S),
    ],
    ids=ascii,
)
def test_a_pause_is_what_was_asked_within_reason(retry_after: str | None, pause: float) -> None:
    assert pause_s(retry_after) == pause


async def test_when_a_pause_is_ended_one_caller_is_the_probe() -> None:
    breaker = Breaker()
    breaker.failed(LONGEST_PAUSE_S)
    assert breaker.wait_s() > PROBE_INTERVAL_S

    breaker.end_pause()

    assert not breaker.is_shut
    assert breaker.wait_s() == 0
    assert breaker.wait_s() > 0, "the second waits for what the probe finds"
    assert breaker.passed()
    breaker.end_pause()
    assert not breaker.is_open


async def test_an_endpoint_is_known_to_fail_until_it_answers_or_nobody_has_asked_for_a_while(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    breaker = Breaker()
    assert not breaker.is_failing
    breaker.failed(0.0)
    assert breaker.is_failing, "its pause is over, and a probe may be under way"

    breaker.passed()
    assert not breaker.is_failing
    breaker.failed(0.0)
    monkeypatch.setattr(module, "PROBE_INTERVAL_S", 0.0)
    assert not breaker.is_failing
