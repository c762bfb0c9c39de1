"""Splitting, names, filters and readable messages."""

import json
from uuid import uuid4

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from libs.chassis.errors import InvalidParameter, TooLarge
from libs.contracts.limits import Limits
from services.session.domain.ids import check_session_id, decode_item_id, item_id
from services.session.domain.messages import cut_to, json_size, role_of, text_of
from services.session.domain.queries import (
    Order,
    Term,
    items_are_ascending,
    parse_filter,
    parse_positions,
    sessions_order,
)
from services.session.domain.splitting import is_deeper, split, split_fast, split_tolerantly

LIMITS = Limits()


def body(*data: str, tail: str = "") -> bytes:
    items = ",".join('{"data":' + value + "}" for value in data)
    return f'{{"items":[{items}]{tail}}}'.encode()


def values(sent: bytes) -> list[str]:
    return [item.data for item in split(sent, LIMITS).items]


@pytest.mark.parametrize(
    "value",
    [
        '{"a": 1.0,  "b":"\\u0000"}',
        '"\\ud800"',
        '{"é": "\\uDC00 \\ud83d\\ude00", "n": [1e400, -0, 1.50, 12345678901234567890]}',
        "null",
        "0",
        '""',
        "{}",
        "1" * 5000,
        '{"a":1,"a":2}',
    ],
)
def test_data_is_kept_byte_for_byte(value: str) -> None:
    assert values(body(value)) == [value]


def test_space_around_data_is_not_part_of_it() -> None:
    assert values(b' {"items" : [ { "x": [1], "data" :  [1, 2]  , "y": 0 } ] } \n') == ["[1, 2]"]


def test_of_double_keys_the_last_counts_in_both_splitters() -> None:
    sent = '{"items":[{"data":1,"data":2}]}'

    assert split_fast(sent.encode())[0] == split_tolerantly(sent)[0] == [(b"2", None)]


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"nonsense",
        b"[]",
        b"{}",
        b'{"items":{}}',
        b'{"items":[1]}',
        b'{"items":[]}',
        body("1") + b" x",
        body("NaN"),
        body("Infinity"),
        body("-Infinity"),
        body('"\\ud800"', "NaN"),
        body("01"),
        body("1."),
        body('"\\ud800"') + b"}",
        b'{"items":[{"data":"\\ud800"},5]}',
        b'{"items":"\\ud800"}',
        b'{"\\ud800":[]}',
        body('"\xff"').replace("\xff".encode(), b"\xff"),
        b"\xef\xbb\xbf" + body("1"),
        body("1", tail=',"expected_position":-1'),
        body("1", tail=',"expected_position":1.5'),
        body("1", tail=',"expected_position":true'),
        body("1", tail=',"expected_position":99999999999999999999'),
        body('"\\ud800"', tail=',"expected_position":true'),
        b'{"items":[{"data":1,"occurred_at":"yesterday"}]}',
        b'{"items":[{"data":1,"occurred_at":"2026-05-01T10:00:00"}]}',
        b'{"items":[{"data":1,"occurred_at":"2026-13-01T10:00:00Z"}]}',
        b'{"items":[{"data":1,"occurred_at":"0001-01-01T00:00:00+10:00"}]}',
        b'{"items":[{"data":1,"occurred_at":5}]}',
        b'{"items":[{"data":"\\ud800","occurred_at":5}]}',
        body("[" * 600 + "]" * 600),
        body("[" * 100_000),
        body('{"a":' * 600 + "1" + "}" * 600),
    ],
)
def test_what_is_not_an_append_is_refused(sent: bytes) -> None:
    with pytest.raises(InvalidParameter):
        split(sent, LIMITS)


def test_the_item_that_is_wrong_is_named() -> None:
    with pytest.raises(InvalidParameter, match=r"items\[1\] has no 'data'"):
        split(b'{"items":[{"data":1},{}]}', LIMITS)
    with pytest.raises(TooLarge, match=r"items\[2\] has 12 bytes of data; an item may have at most 10"):
        split(body("1", "2", '"1234567890"'), Limits(item_bytes=10))
    with pytest.raises(InvalidParameter, match=r"items\[0\].occurred_at"):
        split(b'{"items":[{"data":1,"occurred_at":"x"}]}', LIMITS)


def test_more_items_than_allowed_are_refused() -> None:
    with pytest.raises(InvalidParameter, match="1 to 2 items, not 3"):
        split(body("1", "2", "3"), Limits(items_per_append=2))


def test_brackets_inside_strings_are_not_depth() -> None:
    assert not is_deeper(json.dumps({"a": '[[[["\\"[[[[' * 100}).encode(), 5)
    assert not is_deeper(b'["' + b"\\\\" * 3 + b'",' + b"[]," * 600 + b"[]]", 500)
    assert is_deeper(b'["\\\\",' + b"[" * 5 + b"]" * 5 + b"]", 5)


def test_an_odd_body_may_carry_occurred_at_and_expected_position() -> None:
    sent = b'{"items":[{"data":"\\ud800","occurred_at":"2026-05-01T10:00:00.5+02:00"}],"expected_position": 7 }'

    append = split(sent, LIMITS)

    assert append.expected_position == 7
    assert append.items[0].occurred_at == "2026-05-01T10:00:00.5+02:00"


TEXT = st.text(alphabet=st.characters(exclude_categories=()))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=20,
)


@given(
    st.lists(st.tuples(JSON, st.sampled_from([None, "2026-05-01T10:00:00Z"])), max_size=5),
    st.sampled_from([None, 0, 12]),
    st.sampled_from([None, 1, "\t"]),
    st.booleans(),
)
def test_both_splitters_give_the_same(
    items: list[tuple[object, str | None]], expected: int | None, indent: int | str | None, is_ascii: bool
) -> None:
    text = json.dumps(
        {
            "items": [{"occurred_at": at, "data": data, "x": [data]} for data, at in items],
            "expected_position": expected,
        },
        indent=indent,
        ensure_ascii=is_ascii,
    )
    try:
        encoded = text.encode()
    except UnicodeEncodeError:
        return

    try:
        fast = split_fast(encoded)
    except msgspec.DecodeError:  # half a surrogate pair
        fast = split_tolerantly(text)

    raw, position = split_tolerantly(text)
    assert fast == (raw, position)
    assert position == expected
    assert [json.loads(data) for data, _ in raw] == [data for data, _ in items]


@pytest.mark.parametrize(
    ("item", "role"),
    [
        ({"type": "message", "role": "user", "content": "hi"}, "user"),
        ({"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "hi"}]}, "assistant"),
        ({"role": "user", "content": "hi"}, "user"),
        ({"type": "message", "role": "system", "content": "hi"}, None),
        ({"type": "function_call", "role": "user", "content": "hi"}, None),
        ({"type": "message", "role": "assistant", "content": None}, None),
        ({"type": "message", "role": "assistant"}, None),
        ({"type": 5, "role": "user", "content": "hi"}, None),
        ({"type": "message", "role": "user", "content": "half \ud800"}, "user"),
        ({"type": "message", "role": "tool", "content": "half \ud800"}, None),
        ("hello", None),
        (["user"], None),
    ],
)
def test_only_the_message_shapes_have_a_role(item: object, role: str | None) -> None:
    assert role_of(json.dumps(item).encode()) == role


def test_a_message_says_its_text_parts() -> None:
    parts = [{"type": "input_text", "text": "a"}, {"type": "image"}, {"type": "output_text", "text": "b\x00\ud800"}]

    assert text_of(json.dumps({"role": "user", "content": parts})) == "a\nb\ufffd"
    assert text_of(json.dumps({"role": "user", "content": "x" * 10})) == "x" * 10
    assert text_of("[]") == ""


@given(st.text(alphabet=st.characters(codec="utf-8"), min_size=1), st.integers(30, 200))
def test_a_cut_is_visible_and_fits(text: str, limit: int) -> None:
    shortened = cut_to(text, limit)

    assert json_size(shortened) <= limit
    assert shortened == text or " […cut…] " in shortened


def test_an_item_id_leads_back_to_its_place() -> None:
    uid = uuid4()

    assert decode_item_id(item_id(uid, 77)) == (uid, 77)
    assert decode_item_id("x") is None
    assert decode_item_id("f" * 48) is None


@pytest.mark.parametrize("name", ["a", "A.b_c~d:e@f+g-h", "ana@example.com", "0" * 64, "x" * 255])
def test_ordinary_session_ids_pass(name: str) -> None:
    assert check_session_id(name) == name


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a b", "é", "x" * 256, "a?", "a#", "a%", "a\n"])
def test_session_ids_that_break_urls_are_refused(name: str) -> None:
    with pytest.raises(InvalidParameter):
        check_session_id(name)


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        (None, []),
        ("  ", []),
        ('actor_id = "a\\"b\\u00e9"', [Term("actor_id", None, 'a"bé')]),
        ('actor_id="a" AND metadata.k-1 = "v"', [Term("actor_id", None, "a"), Term(None, "k-1", "v")]),
        ('metadata["a key"] = "v AND w"', [Term(None, "a key", "v AND w")]),
        (
            'root_session_id = "r" AND parent_session_id = "p"',
            [
                Term("root_session_id", None, "r"),
                Term("parent_session_id", None, "p"),
            ],
        ),
    ],
)
def test_filters_of_the_grammar_are_understood(text: str | None, terms: list[Term]) -> None:
    assert parse_filter(text) == terms


@pytest.mark.parametrize(
    "text",
    [
        "actor_id",
        "actor_id = a",
        "actor_id = 'a'",
        'actor_id = "a',
        'actor_id != "a"',
        'actor_id = "a" OR actor_id = "b"',
        'actor_id = "a" and actor_id = "b"',
        'actor_id = "a" AND',
        'actor_id = "a"AND actor_id = "b"',
        'session_id = "a"',
        'metadata = "a"',
        'metadata[1] = "a"',
        'metadata["a" = "b"',
        'actor_id = "\\ud800"',
        'actor_id = "\\u0000"',
        'actor_id = ["a"]',
        "actor_id = " + "[" * 100_000,
    ],
)
def test_other_filters_are_refused_with_what_is_allowed(text: str) -> None:
    with pytest.raises(InvalidParameter, match="filter"):
        parse_filter(text)


def test_orders_are_read_and_others_refused() -> None:
    assert sessions_order(None) == Order("last_activity_time", False)
    assert sessions_order("create_time") == Order("create_time", True)
    assert sessions_order(" last_activity_time  asc ") == Order("last_activity_time", True)
    assert items_are_ascending("create_time asc")
    assert not items_are_ascending(None)
    for wrong in ("position", "create_time up", "create_time desc, x", "update_time desc"):
        with pytest.raises(InvalidParameter):
            sessions_order(wrong)
        with pytest.raises(InvalidParameter):
            items_are_ascending(wrong)


def test_positions_are_numbers_with_commas() -> None:
    assert parse_positions("1,5,9", 100) == [1, 5, 9]
    for wrong in ("", "1,", "a", "-1", "1;2", "9" * 19, ",".join(["1"] * 101)):
        with pytest.raises(InvalidParameter):
            parse_positions(wrong, 100)
