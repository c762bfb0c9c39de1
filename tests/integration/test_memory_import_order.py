"""The order in which conversations are imported changes nothing: same current values, same history.

Of what is said in one moment the last line holds, and to be told it again changes nothing.
"""

import itertools
from collections.abc import Sequence
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from libs.contracts.events import Change, Evidence
from libs.contracts.ids import uuid7
from tests.support.memory import Distiller, Memory, said
from tests.support.service import chassis_of

SLOTS = ("/job.md", "/city.md")
VALUES = ("one", "two", None)


def conversations(told: list[tuple[int, int]]) -> list[Change]:
    """One statement a day, each from a session of its own."""
    return [
        said(
            SLOTS[slot],
            VALUES[value],
            f"2026-01-{number + 1:02}",
            evidence=[Evidence(session_uid=uuid7(), positions=[number + 1])],
        )
        for number, (slot, value) in enumerate(told)
    ]


async def outcome(memory: Memory, actor_id: str) -> dict[str, Any]:
    """Current values and whole histories, with evidence; neighbours that say the same are one."""
    rows = await chassis_of(memory.app).database.fetch(
        "select e.path, v.retired, v.content, v.valid_from,"
        " (select array_agg(x.positions[1]) from version_evidence x where x.entry_uid = v.entry_uid"
        " and x.version = v.version) as evidence from entry_versions v join entries e using (store_uid, entry_uid)"
        " where e.actor_id = $1 order by e.path, v.valid_from, v.recorded_at, v.version",
        actor_id,
    )
    history = [
        (path, content, run[0]["valid_from"], sorted(position for row in run for position in row["evidence"] or []))
        for (path, _, content), grouped in itertools.groupby(
            rows, key=lambda row: (row["path"], row["retired"], row["content"])
        )
        for run in [list(grouped)]
    ]
    current = [
        (entry["path"], entry["content"], entry["valid_from"], sorted(p["positions"][0] for p in entry["evidence"]))
        for entry in await memory.entries(actor_id)
    ]
    return {"current": current, "history": history}


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    told=st.lists(st.tuples(st.integers(0, 1), st.integers(0, 1)), min_size=2, max_size=6),
    order=st.randoms(use_true_random=False),
)
async def test_any_order_of_statements_comes_to_the_same(
    memory: Memory, told: list[tuple[int, int]], order: Any
) -> None:
    changes = conversations(told)
    shuffled = list(changes)
    order.shuffle(shuffled)
    results = []

    for each in (changes, shuffled):
        distiller = await Distiller.of(memory, actor_id=str(uuid7()))
        for change in each:
            [result] = await distiller.tell(change)
            assert result.outcome in ("applied", "history", "confirmed")
        results.append(await outcome(memory, distiller.actor_id))

    assert results[0] == results[1]
    assert {path for path, *_ in results[0]["current"]} == {SLOTS[slot] for slot, _ in told}


def in_one_moment(values: Sequence[str | None]) -> list[Change]:
    """What one session says of a slot, a line each."""
    session = uuid7()
    return [
        said("/city.md", value, "2026-01-10", evidence=[Evidence(session_uid=session, positions=[number + 1])])
        for number, value in enumerate(values)
    ]


def in_batches(data: st.DataObject, changes: Sequence[Change]) -> list[Sequence[Change]]:
    """The changes in one batch, or cut into several."""
    cuts = sorted(data.draw(st.sets(st.integers(1, len(changes)))))
    return [changes[start:end] for start, end in itertools.pairwise([0, *cuts, len(changes)]) if start < end]


async def versions(memory: Memory, actor_id: str) -> list[tuple[Any, ...]]:
    """Each with its evidence, and whether it is the current one."""
    rows = await chassis_of(memory.app).database.fetch(
        "select v.version, v.content, v.valid_from, v.version = e.version,"
        " (select array_agg(x.positions::text order by x.positions) from version_evidence x"
        "  where x.entry_uid = v.entry_uid and x.version = v.version) from entry_versions v"
        " join entries e using (store_uid, entry_uid) where e.actor_id = $1"
        " order by v.valid_from, v.recorded_at, v.version",
        actor_id,
    )
    return [tuple(row) for row in rows]


async def check_repeats(memory: Memory, distiller: Distiller, data: st.DataObject, told: Sequence[Change]) -> None:
    """Told again, once or twice each, in any order and in any batches, nothing of it is new at any moment."""
    known = await versions(memory, distiller.actor_id)
    for batch in in_batches(data, data.draw(st.permutations([*told, *told]))):
        outcomes = await distiller.tell(*batch)

        assert {outcome.outcome for outcome in outcomes} <= {"confirmed", "gone"}
        assert await versions(memory, distiller.actor_id) == known


EARLIER, LATER = said("/city.md", "one", "2026-01-01"), said("/city.md", "three", "2026-02-01")


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    values=st.lists(st.sampled_from(VALUES), min_size=2, max_size=5),
    is_past=st.booleans(),
    data=st.data(),
)
async def test_what_is_said_in_one_moment_is_in_its_order_and_a_repeat_only_confirms(
    memory: Memory, values: list[str | None], is_past: bool, data: st.DataObject
) -> None:
    distiller = await Distiller.of(memory, actor_id=str(uuid7()))
    # What has ended does not end again.
    spoken = [value for last, value in itertools.pairwise(["one", *values]) if value or last]
    changes = in_one_moment(spoken)

    for batch in [[EARLIER], *([[LATER]] if is_past else []), *in_batches(data, changes)]:
        await distiller.tell(*batch)

    history = [content for _, content, *_ in await versions(memory, distiller.actor_id)]
    told = ["one", *spoken, *(["three"] if is_past else [])]
    assert [content for content, _ in itertools.groupby(history)] == [content for content, _ in itertools.groupby(told)]
    current = [entry["content"] for entry in await memory.entries(distiller.actor_id)]
    assert current == [content for content in told[-1:] if content is not None]
    await check_repeats(memory, distiller, data, changes)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(values=st.lists(st.sampled_from(["one", "two", "three"]), min_size=2, max_size=5), data=st.data())
async def test_in_whatever_order_it_is_told_the_last_line_of_a_moment_holds(
    memory: Memory, values: list[str], data: st.DataObject
) -> None:
    distiller = await Distiller.of(memory, actor_id=str(uuid7()))
    changes = in_one_moment(values)

    shuffled = data.draw(st.permutations(changes))
    for batch in in_batches(data, shuffled):
        await distiller.tell(*batch)

        last = max((change for change in shuffled[: shuffled.index(batch[-1]) + 1]), key=changes.index)
        [entry] = await memory.entries(distiller.actor_id)
        assert entry["content"] == last.statement
        assert (await versions(memory, distiller.actor_id))[-1][3]
    await check_repeats(memory, distiller, data, changes)


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(told=st.lists(st.tuples(st.integers(0, 1), st.integers(0, 2)), min_size=1, max_size=8), order=st.randoms())
async def test_the_index_always_holds_exactly_what_is_current(
    memory: Memory, told: list[tuple[int, int]], order: Any
) -> None:
    distiller = await Distiller.of(memory, actor_id=str(uuid7()))
    changes = conversations(told)
    order.shuffle(changes)

    for change in changes:
        await distiller.tell(change)

    row = await chassis_of(memory.app).database.fetchrow(
        "select a.entry_count, a.total_length, coalesce(sum(e.length), 0) as length, count(e.entry_uid) as entries,"
        " (select count(*) from entry_terms t where t.actor_no = a.actor_no) as postings,"
        " coalesce(sum(cardinality(e.terms)), 0) as terms"
        " from actor_stats a left join entries e on e.store_uid = a.store_uid and e.actor_id = a.actor_id"
        " and not e.retired where a.actor_id = $1 group by a.store_uid, a.actor_id",
        distiller.actor_id,
    )
    if row is not None:
        assert (row["entry_count"], row["total_length"]) == (row["entries"], row["length"])
        assert row["postings"] == row["terms"]
    for entry in await memory.entries(distiller.actor_id):
        assert entry["path"] in await memory.paths(distiller.actor_id, entry["content"])


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
async def test_any_batch_that_can_be_read_gets_an_answer(memory: Memory, data: st.DataObject) -> None:
    text = st.text(max_size=20) | st.just("\x00") | st.just("/a.md")
    whole = st.integers(-(2**70), 2**70)
    evidence = st.builds(Evidence, session_uid=st.uuids(), positions=st.lists(whole, max_size=3))
    change = st.builds(
        Change,
        op=st.sampled_from(["set", "confirm", "retire"]),
        path=st.sampled_from(["/a.md", "/b/c.md"]) | text,
        entry_id=st.none() | text,
        expected_version=st.none() | whole | st.just(1),
        statement=st.none() | text,
        description=st.none() | text,
        kind=st.sampled_from(["state", "item", "event"]),
        said_by=st.sampled_from(["user", "assistant"]),
        said_at=st.datetimes() | st.datetimes(timezones=st.timezones(no_cache=True)),
        event_date=st.none() | st.dates(),
        evidence=st.lists(evidence, max_size=2),
    )
    distiller = await Distiller.of(memory)
    batch = distiller.batch(
        data.draw(st.lists(change, max_size=4)),
        session_uid=uuid7(),
        session_id=data.draw(text),
        actor_id=data.draw(st.just("ana") | text),
        run_id=data.draw(st.none() | whole),
        through=data.draw(whole),
    )

    outcomes = await distiller.send(batch)

    assert len(outcomes) == len(batch.changes)
