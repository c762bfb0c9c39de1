"""What the distiller's batches do to an actor's entries."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import asyncpg
import pytest

from libs.chassis.errors import Contended
from libs.contracts.events import Change, Evidence, Kind, MemoriesDistilled, Range
from libs.contracts.ids import part_of, uuid7
from libs.contracts.limits import REPLY_BYTES
from services.memory.indexing import Indexing
from services.memory.store import access
from services.memory.store.batches import CHANGES_TOGETHER, first_together
from tests.support.memory import Distiller, Memory, day, hold_turn, moment, said
from tests.support.service import chassis_of


async def history(memory: Memory, path: str) -> list[tuple[str | None, str]]:
    """What was said at a path and since when, oldest first; neighbours that say the same are one."""
    rows = await chassis_of(memory.app).database.fetch(
        "select v.content, v.valid_from from entry_versions v join entries e using (store_uid, entry_uid)"
        " where e.path = $1 order by v.valid_from, v.recorded_at, v.version",
        path,
    )
    told: list[tuple[str | None, str]] = []
    for row in rows:
        if not told or told[-1][0] != row["content"]:
            told.append((row["content"], row["valid_from"].date().isoformat()))
    return told


async def test_a_distilled_fact_is_an_entry_with_its_evidence(memory: Memory, distiller: Distiller) -> None:
    session = uuid7()
    change = said(
        "/travel/2026-03-09-driving-test.md",
        "Passed the driving test",
        "2026-03-10",
        kind="event",
        event_date=day("2026-03-09"),
        description="driving licence",
        evidence=[Evidence(session_uid=session, positions=[3, 2])],
    )

    [outcome] = await distiller.tell(change, session_id="talk", through=5)

    assert outcome.outcome == "applied"
    [entry] = await memory.entries("ana")
    assert entry["name"].endswith(outcome.entry_id or "?")
    assert entry["source_type"] == "MANAGED_MEMORY_ENTRY_SOURCE_TYPE_DREAMER"
    assert (entry["kind"], entry["event_date"], entry["said_by"]) == ("event", "2026-03-09", "user")
    assert entry["valid_from"] == "2026-03-10T00:00:00Z"
    assert "session_id" not in entry
    assert entry["evidence"] == [
        {
            "session_store": "session-stores/chats",
            "session_id": "talk",
            "positions": [2, 3],
            "said_by": "user",
            "said_at": "2026-03-10T00:00:00Z",
        }
    ]
    assert await memory.paths("ana", "what happened on 9 March") == [change.path]


async def test_a_repeated_batch_applies_nothing_and_gets_the_first_answer(memory: Memory, distiller: Distiller) -> None:
    batch = distiller.batch([said("/job.md", "Works at Northwind")])

    first = await distiller.send(batch)
    await memory.ok("DELETE", memory.url(f"/entries/{first[0].entry_id}"))
    await asyncio.gather(*(memory.handlers.on_memories_distilled(batch) for _ in range(4)))

    answers = await distiller.answers(batch.batch_id)
    assert [answer.outcomes for answer in answers] == [first] * 5
    assert await memory.entries("ana") == []


async def test_the_same_words_again_are_evidence(memory: Memory, distiller: Distiller) -> None:
    await distiller.tell(said("/job.md", "Works at Northwind", "2026-01-01"))

    [outcome] = await distiller.tell(said("/job.md", "Works at Northwind", "2026-02-01"))

    assert (outcome.outcome, outcome.version) == ("confirmed", 1)
    [entry] = await memory.entries("ana")
    assert (entry["version"], entry["valid_from"]) == (1, "2026-01-01T00:00:00Z")
    assert [proof["said_at"][:10] for proof in entry["evidence"]] == ["2026-02-01", "2026-01-01"]


async def test_the_same_lines_again_are_no_new_evidence(memory: Memory, distiller: Distiller) -> None:
    change = said("/job.md", "Works at Northwind")
    await distiller.tell(change)

    await distiller.tell(change)

    [entry] = await memory.entries("ana")
    assert len(entry["evidence"]) == 1


async def test_what_was_said_before_the_current_value_becomes_history(memory: Memory, distiller: Distiller) -> None:
    await distiller.tell(said("/job.md", "Works at Contoso", "2026-04-01"))

    [outcome] = await distiller.tell(said("/job.md", "Works at Northwind", "2026-01-01"))

    assert outcome.outcome == "history"
    assert [entry["content"] for entry in await memory.entries("ana")] == ["Works at Contoso"]
    assert await memory.search("ana", "Northwind") == []
    assert await history(memory, "/job.md") == [
        ("Works at Northwind", "2026-01-01"),
        ("Works at Contoso", "2026-04-01"),
    ]


@pytest.mark.parametrize("order", [(0, 1, 2), (0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0)])
async def test_back_to_an_earlier_value_is_three_versions_in_any_order(
    memory: Memory, distiller: Distiller, order: tuple[int, ...]
) -> None:
    told = [
        said("/job/employer.md", "Works at Northwind", "2026-01-10"),
        said("/job/employer.md", "Works at Contoso", "2026-04-10"),
        said("/job/employer.md", "Works at Northwind", "2026-09-10"),
    ]

    for index in order:
        await distiller.tell(told[index])

    [entry] = await memory.entries("ana")
    assert (entry["content"], entry["valid_from"][:10]) == ("Works at Northwind", "2026-09-10")
    assert [proof["said_at"][:10] for proof in entry["evidence"]] == ["2026-09-10"]
    assert await history(memory, "/job/employer.md") == [
        ("Works at Northwind", "2026-01-10"),
        ("Works at Contoso", "2026-04-10"),
        ("Works at Northwind", "2026-09-10"),
    ]


def in_one_moment(*lines: str | None) -> list[Change]:
    """Said of one slot by the lines of one session, all at once as an import brings them."""
    session = uuid7()
    return [
        said("/city.md", line, evidence=[Evidence(session_uid=session, positions=[number + 1])])
        for number, line in enumerate(lines)
    ]


async def contents(memory: Memory, path: str = "/city.md") -> list[str | None]:
    """What every version says, in order."""
    rows = await chassis_of(memory.app).database.fetch(
        "select v.content from entry_versions v join entries e using (store_uid, entry_uid)"
        " where e.path = $1 order by v.valid_from, v.recorded_at, v.version",
        path,
    )
    return [row["content"] for row in rows]


@pytest.mark.parametrize("together", [1, 2, 3])
async def test_what_was_said_in_one_moment_and_is_told_again_is_never_current_again(
    memory: Memory, distiller: Distiller, together: int
) -> None:
    told = in_one_moment("Lives in Paris", "Lives in Oslo", "Lives in Lyon")
    await distiller.tell(*told)
    [first] = await memory.entries("ana")

    for _ in range(3):
        for start in range(0, len(told), together):
            outcomes = await distiller.tell(*told[start : start + together])

            assert {outcome.outcome for outcome in outcomes} == {"confirmed"}
            assert await memory.entries("ana") == [first]
    assert await contents(memory) == ["Lives in Paris", "Lives in Oslo", "Lives in Lyon"]
    assert (first["content"], [proof["positions"] for proof in first["evidence"]]) == ("Lives in Lyon", [[3]])


async def test_what_comes_late_of_a_moment_is_history_also_in_other_words(memory: Memory, distiller: Distiller) -> None:
    paris, lyon = in_one_moment("Lives in Paris", "Lives in Lyon")
    await distiller.tell(lyon)

    for statement in ("Lives in Paris", "Lives in Paris, France"):
        [outcome] = await distiller.tell(paris.model_copy(update={"statement": statement}))

        assert outcome.outcome == "history"
        [entry] = await memory.entries("ana")
        assert (entry["content"], [proof["positions"] for proof in entry["evidence"]]) == ("Lives in Lyon", [[2]])


async def test_what_ended_in_the_moment_in_which_it_was_said_does_not_come_back(
    memory: Memory, distiller: Distiller
) -> None:
    cat, no_cat = in_one_moment("Has a cat", None)
    await distiller.tell(cat)
    await distiller.tell(no_cat)

    for statement in ("Has a cat", "Has a cat named Tom", "Has a cat named Tom"):
        await distiller.tell(cat.model_copy(update={"statement": statement}))

        assert await memory.entries("ana") == []
    assert await contents(memory) == ["Has a cat", None, "Has a cat named Tom", None]


async def test_what_one_line_says_in_turn_holds_as_it_ends(memory: Memory, distiller: Distiller) -> None:
    [paris] = in_one_moment("Lives in Paris")
    there_and_back = [paris, paris.model_copy(update={"statement": "Lives in Lyon"}), paris]

    for _ in range(3):
        await distiller.tell(*there_and_back)

        assert await contents(memory) == ["Lives in Paris", "Lives in Lyon", "Lives in Paris"]
    assert [entry["content"] for entry in await memory.entries("ana")] == ["Lives in Paris"]


async def test_of_one_moment_of_two_sessions_each_is_told_once(memory: Memory, distiller: Distiller) -> None:
    told = [*in_one_moment("Lives in Paris", "Lives in Oslo"), *in_one_moment("Lives in Rome", "Lives in Lyon")]
    await distiller.tell(*told)

    for change in [*told, *told[::-1]]:
        [outcome] = await distiller.tell(change)

        assert outcome.outcome == "confirmed"
    assert await contents(memory) == ["Lives in Paris", "Lives in Oslo", "Lives in Rome", "Lives in Lyon"]


async def test_what_rests_on_no_line_is_in_the_order_in_which_it_is_told(memory: Memory, distiller: Distiller) -> None:
    told = [each.model_copy(update={"evidence": []}) for each in in_one_moment("Lives in Paris", "Lives in Lyon")]

    await distiller.tell(*told)
    await distiller.tell(told[1])

    assert await contents(memory) == ["Lives in Paris", "Lives in Lyon"]


async def test_what_came_between_what_was_said_and_a_moment_that_says_it_again_leaves_the_moment_as_it_is(
    memory: Memory, distiller: Distiller
) -> None:
    paris, lyon = in_one_moment("Lives in Paris", "Lives in Lyon")
    await distiller.tell(said("/city.md", "Lives in Paris", "2025-01-01"))
    await distiller.tell(paris, lyon)

    await distiller.tell(said("/city.md", "Lives in Rome", "2025-06-01"))

    assert await contents(memory) == ["Lives in Paris", "Lives in Rome", "Lives in Lyon"]
    [entry] = await memory.entries("ana")
    assert (entry["content"], entry["valid_from"]) == ("Lives in Lyon", "2026-01-01T00:00:00Z")


async def test_a_retired_fact_is_seen_by_nobody_and_can_come_back(memory: Memory, distiller: Distiller) -> None:
    await distiller.tell(said("/pets/cat.md", "Has a cat", "2026-01-01", kind="item"))

    [outcome] = await distiller.tell(said("/pets/cat.md", None, "2026-02-01", kind="item"))

    assert (outcome.outcome, outcome.version) == ("applied", 2)
    assert await memory.entries("ana") == []
    assert await memory.search("ana", "cat") == []
    [related] = (await distiller.related(paths=["/pets/cat.md"])).entries
    assert (related.retired, related.version) == (True, 2)
    assert (await distiller.related(["cat"])).entries == []
    [again] = await distiller.tell(said("/pets/cat.md", "Has a cat again", "2026-03-01", kind="item"))
    assert (again.outcome, again.version) == ("applied", 3)
    assert await memory.paths("ana", "cat") == ["/pets/cat.md"]


async def test_a_change_decided_on_another_version_is_a_conflict(memory: Memory, distiller: Distiller) -> None:
    [made] = await distiller.tell(said("/job.md", "Works at Northwind"))
    await memory.ok(
        "PATCH",
        memory.url(f"/entries/{made.entry_id}"),
        params={"update_mask": "content"},
        json={"content": "Works at Fabrikam"},
    )

    stale = [
        said("/job.md", "Works at Contoso", entry_id=made.entry_id, expected_version=1),
        said("/job.md", None, entry_id=made.entry_id, expected_version=1),
        said("/job.md", "Works at Contoso"),
        said("/new.md", "Never was", entry_id="gone-id", expected_version=1),
    ]
    outcomes = await distiller.send(distiller.batch(stale))

    assert [outcome.outcome for outcome in outcomes] == ["conflict"] * 4
    assert outcomes[0].version == 2
    assert [entry["content"] for entry in await memory.entries("ana")] == ["Works at Fabrikam"]


async def test_what_is_gone_need_not_be_retired_and_what_is_said_again_of_it_is_asked_again(
    memory: Memory, distiller: Distiller
) -> None:
    [ended] = await distiller.tell(said("/b.md", "x"))
    [changed] = await distiller.tell(said("/c.md", "x"))
    await memory.ok("DELETE", memory.url(f"/entries/{ended.entry_id}"))
    await distiller.tell(said("/c.md", "Something else", "2025-01-01"), said("/c.md", "Something else", "2026-02-01"))
    decided: list[tuple[str, dict[str, Any]]] = [
        ("/a.md", {"entry_id": "nobody", "expected_version": 1}),
        ("/b.md", {"entry_id": ended.entry_id, "expected_version": 1}),
        ("/c.md", {"entry_id": changed.entry_id, "expected_version": 1}),
    ]

    retired = await distiller.send(distiller.batch([said(path, None, **on) for path, on in decided[:2]]))
    confirmed = await distiller.send(
        distiller.batch([said(path, None, "2026-03-01", op="confirm", **on) for path, on in decided])
    )

    assert [outcome.outcome for outcome in retired] == ["gone", "gone"]
    assert [outcome.outcome for outcome in confirmed] == ["conflict"] * 3
    [entry] = await memory.entries("ana")
    assert [proof["said_at"][:10] for proof in entry["evidence"]] == ["2026-02-01"]


@pytest.mark.parametrize("other", ["bo", "ana"])
async def test_what_is_said_of_an_entry_whose_id_another_has_by_now_finds_its_own_slot(
    memory: Memory, distiller: Distiller, other: str
) -> None:
    tea = "/drinks/tea.md"
    [made] = await distiller.tell(said(tea, "Drinks tea", kind="item"))
    await memory.ok("DELETE", memory.url(f"/entries/{made.entry_id}"))
    body = {"actor_id": other, "path": "/other.md", "content": "Something else"}
    await memory.ok("POST", memory.url("/entries"), params={"managed_memory_entry_id": made.entry_id}, json=body)

    on_first: dict[str, Any] = {"entry_id": made.entry_id, "expected_version": 1}
    [ended] = await distiller.send(distiller.batch([said(tea, None, **on_first)]))
    [said_again] = await distiller.tell(said(tea, "Drinks tea again", "2026-12-31", kind="item"))
    late = [said(tea, None, **on_first), said(tea, None, op="confirm", **on_first), said(tea, "Drinks", **on_first)]
    outcomes = await distiller.send(distiller.batch(late))

    assert (ended.outcome, said_again.outcome) == ("gone", "applied")
    assert said_again.entry_id != made.entry_id
    assert [outcome.outcome for outcome in outcomes] == ["conflict"] * 3
    [reused] = [entry for entry in await memory.entries(other) if entry["path"] == "/other.md"]
    assert (reused["name"].rpartition("/")[2], reused["content"]) == (made.entry_id, "Something else")
    [told] = [entry for entry in await memory.entries("ana") if entry["path"] == tea]
    assert told["content"] == "Drinks tea again"


async def test_a_batch_that_a_restored_store_lacks_is_applied_where_its_entry_was_made_anew_elsewhere(
    memory: Memory, distiller: Distiller
) -> None:
    batch = distiller.batch([said("/drinks/tea.md", "Drinks tea")])
    entry_id = str(part_of(batch.batch_id, "/drinks/tea.md"))
    body = {"actor_id": "bo", "path": "/imported.md", "content": "Drinks tea"}
    await memory.ok("POST", memory.url("/entries"), params={"managed_memory_entry_id": entry_id}, json=body)

    [outcome] = await distiller.send(batch)

    assert (outcome.outcome, [entry["content"] for entry in await memory.entries("ana")]) == ("applied", ["Drinks tea"])


async def test_an_event_is_never_superseded(memory: Memory, distiller: Distiller) -> None:
    await distiller.tell(said("/trip.md", "Went to Rome", kind="event"))

    [outcome] = await distiller.tell(said("/trip.md", "Went to Oslo", "2026-02-01", kind="event"))

    assert (outcome.outcome, outcome.reason) == ("refused", "an event is never superseded")


@pytest.mark.parametrize(
    "change",
    [
        said("no-slash", "x"),
        said("/a/../b", "x"),
        said("/a\x00", "x"),
        said("/a.md", "with \x00 in it"),
        said("/a.md", " "),
        said("/a.md", "x" * 1001),
        said("/a.md", "x", description="y" * 301),
        said("/a.md", None),
        said("/a.md", "x", evidence=[Evidence(session_uid=uuid7(), positions=[2**70])]),
        said("/a.md", "x", entry_id="\x00", expected_version=1),
        said("/a.md", "x", said_at=datetime.min),
    ],
)
async def test_a_change_outside_the_rules_is_refused_and_its_neighbours_are_applied(
    memory: Memory, distiller: Distiller, change: Change
) -> None:
    outcomes = await distiller.send(distiller.batch([change, said("/good.md", "good")]))

    assert [outcome.outcome for outcome in outcomes] in (["refused", "applied"], ["applied", "applied"])
    assert outcomes[0].outcome == "refused" or change.said_at == datetime.min
    assert await memory.paths("ana", "good") == ["/good.md"]


async def test_an_unstorable_actor_is_refused_whole(memory: Memory, distiller: Distiller) -> None:
    batch = distiller.batch([said("/a.md", "x")], actor_id="a\x00b", run_id=2**80)

    outcomes = await distiller.send(batch)

    assert [outcome.outcome for outcome in outcomes] == ["refused"]


async def test_a_batch_for_a_deleted_store_is_gone_and_leaves_nothing(memory: Memory, distiller: Distiller) -> None:
    await memory.ok("DELETE", memory.url())

    [outcome] = await distiller.send(distiller.batch([said("/a.md", "x")]))

    assert outcome.outcome == "gone"
    assert (await distiller.related(["x"])).gone
    assert await chassis_of(memory.app).database.fetchval("select count(*) from actor_stats") == 0


async def test_what_was_decided_before_an_erasure_is_not_applied(memory: Memory, distiller: Distiller) -> None:
    database = chassis_of(memory.app).database
    source, target = distiller.session_store_uid, distiller.store_uid
    await database.write("insert into actor_epochs values ($1, 'ana', 1), ($2, 'ana', 1)", source, target)

    stale_source = await distiller.send(distiller.batch([said("/a.md", "x")], memory_epoch=1))
    stale_memory = await distiller.send(distiller.batch([said("/a.md", "x")], source_epoch=1))
    current = await distiller.send(distiller.batch([said("/a.md", "x")], source_epoch=1, memory_epoch=1))

    assert [each[0].outcome for each in (stale_source, stale_memory, current)] == ["erased", "erased", "applied"]
    assert (await distiller.related()).epoch == 1


async def test_progress_moves_without_changes_and_never_back(memory: Memory, distiller: Distiller) -> None:
    session = uuid7()

    async def position() -> int:
        found = await chassis_of(memory.app).database.fetchval("select position from progress")
        return int(found)

    for through, expected in ((7, 7), (3, 7), (9, 9)):
        assert await distiller.send(distiller.batch([], session_uid=session, through=through)) == []
        assert await position() == expected


async def test_a_clock_that_runs_ahead_does_not_outlive_later_words(memory: Memory, distiller: Distiller) -> None:
    await distiller.tell(said("/job.md", "Works at Future", "2099-01-01"))
    today = datetime.now(UTC)

    [outcome] = await distiller.tell(said("/job.md", "Works at Now", today.isoformat()))
    [entry] = await memory.entries("ana")
    await memory.ok(
        "PATCH", f"/api/2.0/agents/{entry['name']}", params={"update_mask": "content"}, json={"content": "Corrected"}
    )

    assert moment(entry["valid_from"]) <= datetime.now(UTC)
    assert outcome.outcome in ("applied", "history")
    assert [each["content"] for each in await memory.entries("ana")] == ["Corrected"]


async def test_related_entries_are_the_nearest_without_doubles(memory: Memory, distiller: Distiller) -> None:
    kinds: list[tuple[str, str, Kind]] = [
        ("/pets/cat.md", "Has a cat named Tom", "item"),
        ("/pets/dog.md", "Has a dog named Rex", "item"),
        ("/job.md", "Works at Northwind", "state"),
    ]
    await distiller.tell(*(said(path, statement, kind=kind) for path, statement, kind in kinds))
    await memory.add("ana", "/scratch.md", "cat notes of one session", session_id="s1")
    await memory.add("bo", "/pets/cat.md", "Has a cat named Foreign")

    related = await distiller.related(["my cat Tom", "cat or dog", "unknown"], ["/job.md", "/nothing.md"])

    assert [entry.path for entry in related.entries] == ["/job.md", "/pets/cat.md", "/pets/dog.md"]
    assert [entry.kind for entry in related.entries] == ["state", "item", "item"]
    assert {entry.version for entry in related.entries} == {1}


async def test_every_text_has_its_best_entry_among_the_related_however_many_texts(
    memory: Memory, distiller: Distiller
) -> None:
    topics = [f"topic{number}" for number in range(40)]
    await distiller.tell(*(said(f"/known/{topic}.md", f"Once told of {topic}", kind="item") for topic in topics))
    await distiller.tell(*(said(f"/talk/{n}.md", "Today we talk about talking", kind="item") for n in range(40)))
    await memory.add("ana", "/scratch.md", f"{topics[0]} of one session", session_id="s1")

    related = await distiller.related([f"Today we talk about {topic}" for topic in topics], ["/talk/7.md"])

    assert [entry.path for entry in related.entries] == ["/talk/7.md", *(f"/known/{topic}.md" for topic in topics)]


async def test_the_nearest_of_one_text_fill_what_others_leave(distiller: Distiller) -> None:
    await distiller.tell(*(said(f"/cats/{n}.md", f"Has a cat {'called' * (n == 3)}", kind="item") for n in range(40)))
    await distiller.tell(said("/job.md", "Works at Northwind"))

    paths = [entry.path for entry in (await distiller.related(["the cat is called", "work"])).entries]

    assert paths[:2] == ["/cats/3.md", "/job.md"]
    assert len(paths) == len(set(paths)) == 30


async def test_a_reply_fits_however_long_the_entries_are(memory: Memory, distiller: Distiller) -> None:
    for number in range(4):
        await memory.add("ana", f"/long/{number}.md", f"cat {number} " + "é" * 150_000)

    for texts, paths in (
        (["cat"], ["/long/0.md", "/long/1.md"]),
        (["cat"], []),
        ([], [f"/long/{n}.md" for n in range(4)]),
    ):
        related = await distiller.related(texts, paths)

        assert len(related.model_dump_json().encode()) <= REPLY_BYTES
        assert len(related.entries) == 4


async def test_freshness_is_counted_from_the_oldest_append_of_a_batch(memory: Memory, distiller: Distiller) -> None:
    registry = chassis_of(memory.app).metrics.registry

    def seen() -> tuple[float, float]:
        """How many batches, and their seconds together."""
        count, total = (registry.get_sample_value(f"memstream_freshness_seconds_{of}") for of in ("count", "sum"))
        return count or 0, total or 0

    await distiller.tell(said("/tea.md", "Likes tea"))
    without = seen()
    await distiller.tell(said("/job.md", "Works"), oldest_appended_at=datetime.now(UTC) - timedelta(seconds=100))
    count, seconds = seen()

    assert (without, count) == ((0, 0), 1), "one without that time is not counted"
    assert 100 <= seconds < 130


async def test_two_distillers_of_one_actor_do_not_deadlock(memory: Memory, distiller: Distiller) -> None:
    paths = [f"/p/{number}.md" for number in range(10)]
    other = Distiller(memory, distiller.store_uid, session_store_uid=distiller.session_store_uid)

    async def round_of(teller: Distiller, ordered: list[str]) -> None:
        await teller.send(teller.batch([said(path, f"said {path}") for path in ordered]))

    await asyncio.gather(
        *(round_of(distiller, paths) for _ in range(5)),
        *(round_of(other, paths[::-1]) for _ in range(5)),
        *(memory.client.put("/") for _ in range(1)),
    )

    assert len(await memory.entries("ana")) == 10


async def test_ranges_of_one_session_count_once(memory: Memory, distiller: Distiller) -> None:
    session: UUID = uuid7()
    ranges = [
        Range(session_uid=session, session_id="s", after=0, through=4),
        Range(session_uid=session, session_id="s", after=4, through=2**65),
        Range(session_uid=uuid7(), session_id="s\x00", after=0, through=2),
    ]

    await distiller.send(distiller.batch([], ranges=ranges))

    rows = await chassis_of(memory.app).database.fetch("select position from progress")
    assert [row["position"] for row in rows] == [2**63 - 1]


async def transactions(memory: Memory) -> int:
    """In how many transactions the batches of all actors were applied."""
    database = chassis_of(memory.app).database
    return int(await database.fetchval("select count(distinct xmin::text) from batches"))


def one_each(distiller: Distiller, actors: int, **more: Any) -> list[MemoriesDistilled]:
    return [
        distiller.batch([said("/job.md", f"Works at {number}")], actor_id=f"a{number}", **more)
        for number in range(actors)
    ]


async def test_batches_of_many_actors_that_come_at_once_are_applied_in_few_transactions(
    memory: Memory, distiller: Distiller
) -> None:
    batches = one_each(distiller, 12)

    await asyncio.gather(*(memory.handlers.on_memories_distilled(batch) for batch in batches))

    assert await transactions(memory) < len(batches) / 2
    for number, batch in enumerate(batches):
        [answer] = await distiller.answers(batch.batch_id)
        assert [(each.outcome, each.version) for each in answer.outcomes] == [("applied", 1)]
        [entry] = await memory.entries(f"a{number}")
        assert entry["content"] == f"Works at {number}"
        assert entry["name"].endswith(answer.outcomes[0].entry_id or "?")


async def test_batches_too_large_for_one_transaction_are_applied_in_a_few(memory: Memory, distiller: Distiller) -> None:
    batches = [
        distiller.batch([said(f"/{n}.md", f"Fact {n}") for n in range(CHANGES_TOGETHER // 2)], actor_id=f"a{number}")
        for number in range(6)
    ]

    await asyncio.gather(*(memory.handlers.on_memories_distilled(batch) for batch in batches))

    assert await transactions(memory) == 3


async def test_an_actor_that_is_to_be_analysed_anew_is_so_in_a_transaction_of_its_own(
    memory: Memory, distiller: Distiller, monkeypatch: pytest.MonkeyPatch
) -> None:
    await asyncio.gather(*(memory.handlers.on_memories_distilled(batch) for batch in one_each(distiller, 3)))
    before = await transactions(memory)
    monkeypatch.setattr(Indexing, "version", Indexing.version + 1)
    batches = one_each(distiller, 3)

    await asyncio.gather(*(memory.handlers.on_memories_distilled(batch) for batch in batches))

    assert await transactions(memory) - before == len(batches)


async def test_of_batches_that_come_at_once_each_has_the_answer_that_it_would_have_alone(
    memory: Memory, distiller: Distiller
) -> None:
    applied, again, stale, unnamed = one_each(distiller, 4)
    first = await distiller.send(again)
    await memory.ok("DELETE", memory.url(f"/entries/{first[0].entry_id}"))
    stale = stale.model_copy(update={"memory_epoch": -1})
    unnamed = unnamed.model_copy(update={"actor_id": "a\x00"})

    await asyncio.gather(
        *(memory.handlers.on_memories_distilled(batch) for batch in (applied, again, stale, unnamed, again, applied))
    )

    outcomes = [
        [[each.outcome for each in answer.outcomes] for answer in await distiller.answers(batch.batch_id)]
        for batch in (applied, again, stale, unnamed)
    ]
    assert outcomes == [[["applied"]] * 2, [["applied"]] * 3, [["erased"]], [["refused"]]]
    assert await memory.entries("a1") == []


async def test_an_actor_whose_turn_somebody_has_delays_no_other(
    memory: Memory, distiller: Distiller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(access, "_IN_TURNS", access._IN_TURNS.replace(f"'{access.GROUP_PATIENCE_MS}'", "'60000'"))
    batches = one_each(distiller, 8)
    held, *others = batches
    async with chassis_of(memory.app).database.transaction() as connection:
        await hold_turn(connection, distiller.store_uid, held.actor_id)
        waiting = asyncio.create_task(memory.handlers.on_memories_distilled(held))
        await asyncio.gather(*(memory.handlers.on_memories_distilled(batch) for batch in others))
        assert await distiller.answers(held.batch_id) == []
        with pytest.raises(Contended):
            await waiting
    await memory.handlers.on_memories_distilled(held)

    assert [len(await distiller.answers(batch.batch_id)) for batch in batches] == [1] * 8


async def test_whoever_waits_for_a_turn_gives_up_and_comes_again(memory: Memory, distiller: Distiller) -> None:
    """As many as there are connections: then all go to others until the messages come again."""
    held = one_each(distiller, chassis_of(memory.app).settings.database_pool_size)
    connection = await asyncpg.connect(memory.dsn)
    try:
        async with connection.transaction():
            for batch in held:
                await hold_turn(connection, distiller.store_uid, batch.actor_id)
            waiting = [asyncio.create_task(memory.handlers.on_memories_distilled(batch)) for batch in held]
            await distiller.tell(said("/job.md", "Works at Northwind"))
            results = await asyncio.gather(*waiting, return_exceptions=True)
            body = {"actor_id": held[0].actor_id, "path": "/a.md", "content": "x"}
            refused = await memory.code("POST", memory.url("/entries:put"), json=body)
    finally:
        await connection.close()

    assert [type(result) for result in results] == [Contended] * len(held)
    assert refused == (503, "TEMPORARILY_UNAVAILABLE")
    assert [entry["content"] for entry in await memory.entries("ana")] == ["Works at Northwind"]


async def test_batches_that_cannot_be_applied_together_are_applied_one_by_one(
    memory: Memory, distiller: Distiller
) -> None:
    batches = one_each(distiller, 6, session_uid=uuid7())  # a session of six actors cannot be noted in one statement

    await asyncio.gather(*(memory.handlers.on_memories_distilled(batch) for batch in batches))

    assert [len(await memory.entries(f"a{number}")) for number in range(6)] == [1] * 6
    assert await transactions(memory) > 1


def test_what_is_applied_together_is_one_batch_of_an_actor_and_quick(distiller: Distiller) -> None:
    small = one_each(distiller, 3)
    large = distiller.batch([said(f"/p/{number}.md", "so") for number in range(CHANGES_TOGETHER)], actor_id="large")

    assert first_together([*small, small[0]]) == small
    assert first_together([*small, large, small[0]]) == small
    assert first_together([large, *small]) == [large]
