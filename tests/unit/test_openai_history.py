"""What a limit may leave of a conversation: never a tool's output without its call, never more than asked."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memstream.openai.history import whole


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def said(text: str) -> dict[str, Any]:
    return {"type": "message", "role": "assistant", "content": text}


def call(call_id: str) -> dict[str, Any]:
    return {"type": "function_call", "call_id": call_id, "name": "look", "arguments": "{}"}


def output(call_id: str) -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": call_id, "output": "seen"}


REASONING = {"type": "reasoning", "id": "r", "summary": []}
ASKED, ANSWERED, AGAIN = user("look"), said("seen"), user("and now?")


@pytest.mark.parametrize(
    ("items", "limit", "left"),
    [
        pytest.param([ASKED, ANSWERED, AGAIN], 2, [ANSWERED, AGAIN], id="plain"),
        pytest.param([ASKED, ANSWERED], 5, [ASKED, ANSWERED], id="fewer-than-asked"),
        pytest.param([], 5, [], id="empty"),
        pytest.param([ASKED, call("a"), output("a"), ANSWERED], 2, [ANSWERED], id="through-a-call"),
        pytest.param(
            [ASKED, call("a"), output("a"), ANSWERED], 3, [call("a"), output("a"), ANSWERED], id="before-a-call"
        ),
        pytest.param(
            [ASKED, call("a"), call("b"), output("a"), output("b"), ANSWERED],
            4,
            [ANSWERED],
            id="through-parallel-calls",
        ),
        pytest.param(
            [ASKED, REASONING, call("a"), output("a"), ANSWERED], 3, [ANSWERED], id="call-without-its-reasoning"
        ),
        pytest.param([ASKED, REASONING, ANSWERED, AGAIN], 2, [AGAIN], id="answer-without-its-reasoning"),
        pytest.param([ASKED, call("a"), output("a")], 1, [], id="nothing-can-stand-alone"),
        pytest.param([ASKED, call("a"), output("a"), call("b")], 1, [call("b")], id="a-call-that-waits"),
        pytest.param(["text", 1, None, ASKED], 2, [None, ASKED], id="items-of-any-kind"),
    ],
)
def test_a_limit_leaves_out_the_group_that_it_cuts_through(items: list[Any], limit: int, left: list[Any]) -> None:
    assert whole(items, limit) == left


@given(
    st.lists(
        st.one_of(
            st.just(ASKED),
            st.just(ANSWERED),
            st.just(REASONING),
            st.builds(call, st.sampled_from("abc")),
            st.builds(output, st.sampled_from("abc")),
        ),
        max_size=12,
    ),
    st.integers(1, 12),
)
def test_what_is_left_is_the_end_and_whole(items: list[Any], limit: int) -> None:
    left = whole(items, limit)

    assert len(left) <= limit
    assert left == items[len(items) - len(left) :]
    if len(left) < len(items):
        called: set[str] = set()
        for item in left:
            if item.get("type") == "function_call_output":
                assert item["call_id"] in called
            elif "call_id" in item:
                called.add(item["call_id"])
        assert not left or items[len(items) - len(left) - 1] != REASONING
