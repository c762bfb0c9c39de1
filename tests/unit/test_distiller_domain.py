"""What a portion takes, and what an answer may say."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from libs.contracts.ids import uuid7
from libs.contracts.requests import Line, RelatedEntry, StoredEntry, Transcript
from services.distiller.answer import Answer, ProposedChange
from services.distiller.consolidation.answer import Rewriting, Rewritings, Slot
from services.distiller.consolidation.rewrites import check, rewrites_of
from services.distiller.domain import (
    LANE_DELAYS_S,
    PARKED_RETRY_S,
    Behind,
    LaneFailure,
    Numbered,
    Overlaps,
    Portion,
    Truncated,
    changes_of,
    estimated_tokens,
    lane_delay_s,
    paths_of,
)
from services.distiller.llm import Useless, shaped

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
SESSION = uuid7()


def line(position: int, text: str = "", role: Any = "user", *, copied: bool = False) -> Line:
    at = NOON + timedelta(minutes=position)
    text = text or f"fact {position}"
    return Line(position=position, role=role, text=text, said_at=at, appended_at=at, copied=copied)


def transcript(*lines: Line, through: int | None = None) -> Transcript:
    last = max((each.position for each in lines), default=0)
    return Transcript(lines=list(lines), last_position=last, read_through=last if through is None else through)


def behind(after: int = 0, wanted: int = 10, again: tuple[int, ...] = ()) -> Behind:
    return Behind(SESSION, "s1", after, wanted, NOON, again)


def portion(max_lines: int = 40, max_tokens: int = 6000) -> Portion:
    return Portion(max_lines, max_tokens, context_lines=2)


def shown(taken: Portion) -> list[tuple[int, bool]]:
    return [(each.position, each.asked.context) for each in taken.lines]


def test_lines_before_the_watermark_are_context_and_only_the_nearest() -> None:
    taken = portion()

    taken.add(behind(after=4, wanted=6), transcript(*(line(n) for n in range(1, 7))))

    assert shown(taken) == [(3, True), (4, True), (5, False), (6, False)]
    assert (taken.ranges[0].after, taken.ranges[0].through, taken.complete) == (4, 6, True)


@pytest.mark.parametrize("lengths", [[30_000], [5000] * 5, [24_000, 24_000, 100]], ids=str)
@pytest.mark.parametrize("copied", [False, True], ids=["said", "copied"])
def test_however_long_the_lines_before_are_the_next_one_is_taken(lengths: list[int], copied: bool) -> None:
    taken = Portion(max_lines=40, max_tokens=6000, context_lines=5)
    before = [line(n, "y" * length, copied=copied) for n, length in enumerate(lengths, start=1)]
    after = len(before)

    taken.add(behind(after, after + 1), transcript(*before, line(after + 1, "x" * 20_000)))

    assert [position for position, context in shown(taken) if not context] == [after + 1]
    assert (taken.ranges[0].through, taken.complete) == (after + 1, True)
    context = [each.asked for each in taken.lines if each.asked.context]
    assert context[-1].text.startswith("y" * min(lengths[-1], 2000)), "the nearest line is the last to be cut"
    assert 1 <= sum(estimated_tokens(each.text) for each in context) <= 6000 // 4 + 1


def test_what_is_left_of_a_portion_is_no_room_for_context_alone() -> None:
    taken = portion(max_tokens=100)
    taken.add(behind(wanted=1), transcript(line(1, "a" * 240)))
    assert not taken.full

    taken.add(behind(after=1, wanted=2), transcript(line(1, "b" * 400), line(2, "c" * 400)))

    assert shown(taken) == [(1, False), (2, False)]


def test_a_full_portion_ends_where_it_stopped_and_says_that_there_is_more() -> None:
    taken = portion(max_lines=2)

    taken.add(behind(wanted=5), transcript(*(line(n) for n in (1, 3, 5))))

    assert shown(taken) == [(1, False), (3, False)]
    assert (taken.ranges[0].through, taken.complete) == (4, False)


def test_the_watermark_moves_over_what_cannot_be_read() -> None:
    taken = portion()

    taken.add(behind(wanted=9), transcript(line(2), through=9))

    assert (taken.ranges[0].through, taken.complete) == (9, True)


def test_a_session_that_is_gone_counts_as_distilled() -> None:
    taken = portion()

    taken.add(behind(wanted=9), Transcript(gone=True))

    assert (taken.lines, taken.ranges[0].through, taken.complete) == ([], 9, True)


def test_copied_lines_are_context_never_evidence() -> None:
    taken = portion()

    taken.add(behind(wanted=2), transcript(line(1, copied=True), line(2)))

    assert shown(taken) == [(1, True), (2, False)]


def test_what_stands_between_memory_marks_is_not_shown() -> None:
    taken = portion()

    said = "I like <memory>\n/likes/coffee.md:\n  coffee\n</memory> tea"
    taken.add(behind(wanted=2), transcript(line(1, "<memory>all of it"), line(2, said)))

    assert [each.asked.text for each in taken.lines] == ["I like   tea"]


def test_lines_of_a_conflict_are_asked_again_before_the_new_ones() -> None:
    taken = portion()

    taken.add(behind(after=4, wanted=5, again=(2,)), transcript(*(line(n) for n in range(1, 6))))

    assert [position for position, context in shown(taken) if not context] == [2, 5]


def test_a_conflict_that_did_not_fit_is_kept_for_the_next_portion() -> None:
    taken = portion(max_lines=1)

    taken.add(behind(after=4, wanted=5, again=(2, 3)), transcript(*(line(n) for n in range(1, 6))))

    assert taken.again_taken == {SESSION: [2]}
    assert (taken.ranges[0].through, taken.complete) == (4, False)


def test_a_conflict_beyond_what_was_read_is_kept_for_the_next_portion() -> None:
    taken = portion(max_lines=1)

    taken.add(behind(after=40, wanted=40, again=(5, 40)), transcript(line(5), through=22))

    assert taken.again_taken == {SESSION: [5]}
    assert not taken.complete


def test_a_line_of_a_conflict_that_is_gone_is_asked_for_no_more() -> None:
    taken = portion()

    taken.add(behind(after=40, wanted=40, again=(5,)), transcript(line(6), through=22))

    taken.check_progress()
    assert (taken.again_taken, taken.ranges[0].through) == ({SESSION: [5]}, 40)


def test_a_portion_that_would_move_nothing_is_a_failure_of_the_lane() -> None:
    taken = portion()
    taken.add(
        behind(after=4, wanted=6), transcript(line(2), line(3), through=3).model_copy(update={"last_position": 6})
    )

    with pytest.raises(LaneFailure, match="no progress"):
        taken.check_progress()


def test_a_line_beyond_what_a_model_takes_is_cut_visibly_in_the_middle() -> None:
    taken = portion(max_tokens=100)

    taken.add(behind(wanted=1), transcript(line(1, "a" * 1000 + "b" * 1000)))

    assert taken.lines[0].asked.text == "a" * 200 + " […] " + "b" * 200


def numbered(*positions: int, role: Any = "user") -> list[Numbered]:
    taken = portion()
    taken.add(behind(wanted=99), transcript(*(line(n, role=role) for n in positions)))
    return taken.lines


def proposed(**fields: Any) -> ProposedChange:
    values: dict[str, Any] = {
        "op": "set",
        "path": "/job/employer.md",
        "kind": "state",
        "statement": "I work at Northwind.",
        "description": "employer",
        "said_by": "user",
        "event_date": None,
        "evidence": [1],
    }
    return ProposedChange(**values | fields)


def related(**fields: Any) -> RelatedEntry:
    values: dict[str, Any] = {
        "entry_id": "e1",
        "path": "/job/employer.md",
        "version": 3,
        "statement": "I work at Contoso.",
        "kind": "state",
    }
    return RelatedEntry(**values | fields)


def test_a_change_names_the_entry_and_version_that_it_was_decided_on() -> None:
    [change] = changes_of(Answer(changes=[proposed()]), numbered(7), [related()])

    assert (change.entry_id, change.expected_version) == ("e1", 3)
    assert [(piece.session_uid, piece.positions) for piece in change.evidence] == [(SESSION, [7])]
    assert change.said_at == NOON + timedelta(minutes=7)


def test_a_change_of_a_new_slot_expects_none() -> None:
    [change] = changes_of(Answer(changes=[proposed()]), numbered(1), [])

    assert (change.entry_id, change.expected_version) == (None, None)


def test_the_same_statement_twice_is_one_change_with_both_lines() -> None:
    answer = Answer(changes=[proposed(evidence=[1]), proposed(evidence=[2])])

    [change] = changes_of(answer, numbered(4, 9), [])

    assert change.evidence[0].positions == [4, 9]


def test_two_values_of_a_state_in_one_batch_are_both_kept_in_order() -> None:
    answer = Answer(changes=[proposed(), proposed(statement="I work at Contoso.", evidence=[2])])

    found = changes_of(answer, numbered(1, 2), [])

    assert [change.statement for change in found] == ["I work at Northwind.", "I work at Contoso."]


def test_what_is_confirmed_and_then_ends_within_a_batch_is_retired() -> None:
    answer = Answer(
        changes=[proposed(op="confirm", statement=""), proposed(op="retire", statement="", evidence=[2])],
    )

    found = changes_of(answer, numbered(1, 2), [related()])

    assert [(change.op, change.evidence[0].positions) for change in found] == [("confirm", [1]), ("retire", [2])]


def test_another_event_never_takes_the_slot_of_an_event() -> None:
    walk = {"kind": "event", "path": "/events/2026-03-01-walk.md"}
    known = related(path=walk["path"], kind="event", statement="We walked to the lake.")

    [change] = changes_of(Answer(changes=[proposed(**walk, statement="We walked home.")]), numbered(1), [known])

    assert change.path.startswith("/events/2026-03-01-walk-")
    assert (change.entry_id, change.expected_version) == (None, None)


def test_an_event_that_stands_beside_another_is_decided_on_as_it_is() -> None:
    walk = {"kind": "event", "path": "/events/2026-03-01-walk.md"}
    answer = Answer(changes=[proposed(**walk, statement="We walked  home.")])
    known = related(path=walk["path"], kind="event", statement="We walked to the lake.")
    [first] = changes_of(answer, numbered(1), [known])
    beside = related(path=first.path, kind="event", statement="We walked home.", entry_id="e2", version=4)

    [change] = changes_of(answer, numbered(1), [known, beside])

    assert paths_of(answer) == {known.path, beside.path}
    assert (change.path, change.entry_id, change.expected_version) == (beside.path, "e2", 4)


@pytest.mark.parametrize("kind", ["state", "item"])
def test_nothing_else_takes_the_slot_of_an_event(kind: str) -> None:
    known = related(kind="event", statement="I left Contoso.")

    [change] = changes_of(Answer(changes=[proposed(kind=kind)]), numbered(1), [known])

    assert change.path.startswith("/job/employer-")
    assert (change.entry_id, change.expected_version) == (None, None)


@pytest.mark.parametrize("kind", ["state", "item", "event"])
def test_what_moves_beside_an_event_to_a_retired_slot_is_decided_on_that_slot(kind: str) -> None:
    answer = Answer(changes=[proposed(kind=kind)])
    known = related(kind="event", statement="I left Contoso.")
    [first] = changes_of(answer, numbered(1), [known])
    beside = related(path=first.path, retired=True, entry_id="e2", version=4)

    [change] = changes_of(answer, numbered(1), [known, beside])

    assert paths_of(answer) == {known.path, beside.path}
    assert (change.path, change.entry_id, change.expected_version) == (beside.path, "e2", 4)


@pytest.mark.parametrize("op", ["confirm", "retire"])
def test_what_is_confirmed_or_retired_is_looked_up_where_it_is(op: str) -> None:
    assert paths_of(Answer(changes=[proposed(op=op, kind="event")])) == {"/job/employer.md"}


@pytest.mark.parametrize("op", ["confirm", "retire"])
def test_confirming_or_retiring_what_is_not_there_changes_nothing(op: str) -> None:
    answer = Answer(changes=[proposed(op=op, statement="")])

    assert changes_of(answer, numbered(1), []) == []
    assert changes_of(answer, numbered(1), [related(retired=True)]) == []


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"path": "job/employer.md"}, "path"),
        ({"path": "/job/../employer.md"}, "path"),
        ({"path": "/Job/Employer.md"}, "path"),
        ({"path": "/employer.md"}, "path"),
        ({"path": f"/job/{'x' * 300}.md"}, "path"),
        ({"evidence": []}, "foreign evidence"),
        ({"evidence": [1, 99]}, "foreign evidence"),
        ({"statement": "   "}, "statement"),
        ({"statement": "x" * 1001}, "statement"),
    ],
)
def test_a_change_that_breaks_a_rule_fails_the_whole_answer(fields: dict[str, Any], reason: str) -> None:
    with pytest.raises(LaneFailure, match=reason):
        changes_of(Answer(changes=[proposed(), proposed(**fields)]), numbered(1), [])


def test_a_context_line_is_no_evidence() -> None:
    taken = portion()
    taken.add(behind(after=1, wanted=2), transcript(line(1), line(2)))

    with pytest.raises(LaneFailure, match="foreign evidence"):
        changes_of(Answer(changes=[proposed(evidence=[1])]), taken.lines, [])


def test_more_changes_than_a_batch_holds_ask_for_fewer_lines() -> None:
    answer = Answer(changes=[proposed(path=f"/likes/thing-{n}.md") for n in range(101)])

    with pytest.raises(Truncated) as caught:
        changes_of(answer, numbered(1, 2), [])

    assert caught.value.lines == 2
    assert len(changes_of(answer, numbered(1), [])) == 101, "one line cannot be asked about in parts"


def test_more_bytes_than_an_event_holds_ask_for_fewer_lines() -> None:
    longest = {"statement": "\x01" * 1000, "description": "\x01" * 300}
    answer = Answer(changes=[proposed(path=f"/likes/thing-{n}.md", **longest) for n in range(100)])

    with pytest.raises(Truncated) as caught:
        changes_of(answer, numbered(1, 2), [])

    assert caught.value.lines == 2


def test_more_bytes_of_rewrites_than_an_event_holds_ask_about_fewer_entries() -> None:
    long: dict[str, Any] = {"kind": "item", "said_by": "user", "last_said_at": NOON, "version": 1}
    entries = [StoredEntry(entry_id=path, path=path, statement="x" * 2000, **long) for path in ("/a.md", "/b.md")]
    asked = Overlaps(groups=[[entry] for entry in entries], memory_epoch=0, source_epoch=0)
    text: dict[str, Any] = {"statement": "\x01" * 1000, "description": "\x01" * 300, "kind": "item", "event_date": None}
    parts = [[Slot(path=f"/{number}/{n}.md", **text) for n in range(50)] for number in (1, 2)]
    answer = Rewritings(rewrites=[Rewriting(replaces=[n], into=into) for n, into in enumerate(parts, start=1)])
    check(answer, asked)

    with pytest.raises(Truncated) as caught:
        rewrites_of(answer, asked, [])

    assert caught.value.lines == 2


def test_who_said_it_is_told_by_the_lines() -> None:
    [change] = changes_of(Answer(changes=[proposed(said_by="user")]), numbered(1, role="assistant"), [])

    assert change.said_by == "assistant"


def test_a_lane_pauses_longer_each_time_and_hourly_once_parked() -> None:
    assert [lane_delay_s(attempt) for attempt in range(1, 6)] == list(LANE_DELAYS_S)
    assert lane_delay_s(6) == PARKED_RETRY_S


@pytest.mark.parametrize(
    ("role", "text", "is_context"),
    [
        ("user", "I work at Contoso.", False),
        ("user", "As I said, I work at  contoso. ", False),
        ("user", "/job/employer.md:\n  I work at Contoso.", True),
        ("user", "I know: I work at Contoso. I like tea.", True),
        ("assistant", "You told me: I work at Contoso.", True),
        ("assistant", "Shall I book it?", False),
    ],
)
def test_what_memory_said_is_no_evidence_but_a_restatement_is(role: Any, text: str, is_context: bool) -> None:
    taken = portion()
    taken.add(behind(wanted=1), transcript(line(1, text, role)))

    heard = taken.without_echoes([related(), related(path="/likes/tea.md", statement="I like tea.")])

    assert [each.asked.context for each in heard.lines] == [is_context]


@pytest.mark.parametrize(
    ("text", "outcome", "reason"),
    [
        ('{"changes": [], "my PIN is 1234": 1}', "wrong_shape", "wrong shape: …: extra_forbidden"),
        (
            '{"changes": [{"op": "my PIN is 1234"}]}',
            "wrong_shape",
            "wrong shape: changes.0.op: literal_error, and 7 more",
        ),
        ("[1234]", "wrong_shape", "wrong shape: the whole: model_type"),
        ('{"changes": my PIN is 1234}', "not_json", "not JSON: expected value at line 1 column 13"),
    ],
    ids=["key", "value", "array", "text"],
)
def test_a_useless_answer_tells_what_is_wrong_with_it_and_no_word_of_it(text: str, outcome: str, reason: str) -> None:
    with pytest.raises(Useless) as raised:
        shaped(text, Answer)

    assert (raised.value.outcome, str(raised.value)) == (outcome, reason)
