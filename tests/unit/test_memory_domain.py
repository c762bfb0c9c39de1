"""The rules of entries, without a database."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.memory.domain import (
    appended,
    path_problem,
    prefix_end,
    prefix_problem,
)


@pytest.mark.parametrize("path", ["/a", "/a/b.md", "/A/ü.md", "/...", "/a b"])
def test_a_path_within_the_rules_has_no_problem(path: str) -> None:
    assert path_problem(path, 1024) is None


@pytest.mark.parametrize("path", ["", "a", "/", "/a/", "//", "/a//b", "/.", "/a/..", "/\x00", "/\ud800"])
def test_a_path_outside_the_rules_is_named(path: str) -> None:
    assert path_problem(path, 1024)


@pytest.mark.parametrize(
    ("prefix", "is_legal"), [("/", True), ("/a", True), ("/a/", True), ("//", False), ("a", False)]
)
def test_a_prefix_may_end_with_one_slash(prefix: str, is_legal: bool) -> None:
    assert (prefix_problem(prefix, 1024) is None) == is_legal


@given(prefix=st.text(min_size=1), other=st.text())
def test_the_end_of_a_prefix_is_after_all_that_begin_with_it(prefix: str, other: str) -> None:
    end = prefix_end(prefix)

    begins = other.startswith(prefix)
    within = prefix <= other and (end is None or other < end)

    assert begins == within or (end is None and other > prefix)
    if end is not None:
        assert prefix + other < end


def test_what_stands_there_as_whole_lines_is_not_appended_again() -> None:
    assert appended(None, "a") == "a"
    assert appended("", "a") == "a"
    assert appended("a", "") == "a"
    assert appended("a", "b") == "a\nb"
    assert appended("a\nb\nc", "b\nc") == "a\nb\nc"
    assert appended("ab", "b") == "ab\nb"
    assert appended("a\nb", "a\nc") == "a\nb\na\nc"
