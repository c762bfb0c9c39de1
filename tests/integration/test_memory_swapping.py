"""What a swap may change in a store, and what it must leave."""

import asyncio
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from libs.chassis.errors import Contended
from libs.chassis.housekeeping import run_pass
from libs.chassis.unit_of_work import Tx
from libs.contracts.events import Change, EntryVersion, Evidence, ReplayEnded, Rewrite, SessionActorErased
from libs.contracts.ids import part_of, uuid7
from libs.contracts.requests import ShadowStore, SwapMemories, WithdrawSwap
from services.memory.indexing import Indexing
from services.memory.ranking import FieldWeights
from services.memory.replays import Replays
from services.memory.store import swapping
from services.memory.store.shadows import DROP_LEFT_SHADOWS
from tests.support.memory import Distiller, Memory, said
from tests.support.service import WORKSPACE, chassis_of, until

TEA, BREW, AGENT = "/drinks/tea.md", "/drinks/brew.md", "/agent.md"
SESSION = uuid7()
WAITING = "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"


@pytest.fixture
async def live(memory: Memory) -> Distiller:
    return await Distiller.of(memory)


@pytest.fixture
def replays(memory: Memory) -> Replays:
    return Replays(chassis_of(memory.app).unit_of_work, Indexing("english", FieldWeights()), lambda _: None)


async def shadowed(replays: Replays, live: Distiller) -> Distiller:
    """What a replay writes to: the same lines, another store, a pipeline of its own."""
    shadow = replace(live, store_uid=uuid7(), pipeline_uid=uuid7())
    request = ShadowStore(workspace_id=WORKSPACE, store_uid=shadow.store_uid, of_store_uid=live.store_uid)
    assert not (await replays.shadow(request)).gone
    return shadow


async def swap(
    replays: Replays, live: Distiller, shadow: Distiller, *, swap_id: UUID | None = None, keeps_up: bool = True
) -> str:
    answer = await replays.swap(
        SwapMemories(
            swap_id=swap_id or uuid7(),
            store_uid=live.store_uid,
            shadow_uid=shadow.store_uid,
            actor_id="ana",
            pipeline_uid=live.pipeline_uid,
            session_store_uid=live.session_store_uid,
            source_epoch=live.source_epoch,
            keeps_up=keeps_up,
        )
    )
    return answer.outcome


def tea(position: int, path: str = TEA, statement: str = "Drinks tea") -> Change:
    return said(path, statement, kind="item", evidence=[Evidence(session_uid=SESSION, positions=[position])])


async def statements(memory: Memory) -> dict[str, str]:
    return {entry["path"]: entry["content"] for entry in await memory.entries("ana")}


async def test_a_swap_that_is_repeated_writes_nothing_more(memory: Memory, replays: Replays, live: Distiller) -> None:
    await live.tell(tea(1), tea(2, BREW))
    shadow = await shadowed(replays, live)
    await shadow.tell(tea(1, TEA, "Likes tea"), lines=[1, 2])
    once = uuid7()

    assert await swap(replays, live, shadow, swap_id=once) == "swapped"
    assert await statements(memory) == {TEA: "Likes tea"}
    [entry] = await memory.entries("ana")
    assert entry["version"] == 2
    await live.tell(said(TEA, "Drinks coffee", "2026-02-01", kind="item"))

    assert await swap(replays, live, shadow, swap_id=once) == "swapped"
    assert await statements(memory) == {TEA: "Drinks coffee"}


async def test_what_is_swapped_rests_on_no_line_that_said_something_else_in_the_same_moment(
    memory: Memory, replays: Replays, live: Distiller
) -> None:
    told = [tea(1), tea(2, TEA, "Drinks coffee")]
    shadow = await shadowed(replays, live)
    await shadow.tell(*told, lines=[1, 2])

    assert await swap(replays, live, shadow) == "swapped"

    for again in ([], *([each] for each in told)):
        await live.tell(*again)
        [entry] = await memory.entries("ana")
        assert (entry["content"], [proof["positions"] for proof in entry["evidence"]]) == ("Drinks coffee", [[2]])


async def test_an_erasure_that_is_heard_of_late_spares_what_was_told_after_it_also_when_that_was_swapped(
    memory: Memory, replays: Replays, live: Distiller
) -> None:
    shadow = await shadowed(replays, live)
    older = uuid7()
    brew = said(BREW, "Brews tea", kind="item", evidence=[Evidence(session_uid=older, positions=[1])])
    await shadow.tell(brew, session_uid=older, lines=[1])
    live.source_epoch = shadow.source_epoch = 1
    await shadow.tell(tea(1, TEA, "Likes tea"), session_uid=SESSION, lines=[1, 2])
    assert await swap(replays, live, shadow) == "swapped"

    async def left() -> tuple[int, ...]:
        """Evidence and searchable sessions of the store, and lines that the replay was given."""
        row = await chassis_of(memory.app).database.fetchrow(
            "select (select count(*) from version_evidence where store_uid = $1),"
            " (select count(*) from progress where store_uid = $1),"
            " (select count(*) from shadow_lines where store_uid = $2)",
            live.store_uid,
            shadow.store_uid,
        )
        return tuple(row or ())

    told = [(await left(), await statements(memory))]
    for epoch in (1, 2):
        await memory.handlers.on_session_actor_erased(
            SessionActorErased(
                workspace_id=WORKSPACE,
                store_uid=live.session_store_uid,
                actor_id="ana",
                epoch=epoch,
                erasure_id=uuid7(),
            )
        )
        told.append((await left(), await statements(memory)))

    assert told == [
        ((2, 2, 3), {BREW: "Brews tea", TEA: "Likes tea"}),
        ((1, 1, 2), {TEA: "Likes tea"}),
        ((0, 0, 0), {}),
    ]


async def test_a_shadow_that_knows_less_than_its_store_is_not_swapped(
    memory: Memory, replays: Replays, live: Distiller
) -> None:
    await live.tell(tea(1), session_uid=SESSION, through=7)
    shadow = await shadowed(replays, live)
    await shadow.tell(tea(1, TEA, "Likes tea"), session_uid=SESSION, through=6)

    assert await swap(replays, live, shadow) == "behind"
    assert await statements(memory) == {TEA: "Drinks tea"}
    await shadow.tell(session_uid=SESSION, through=7)

    assert await swap(replays, live, shadow) == "swapped"


def works_at(employer: str | None, at: str, session_uid: UUID) -> Change:
    return said("/job/employer.md", employer, at, evidence=[Evidence(session_uid=session_uid, positions=[1])])


async def test_a_shadow_that_never_met_a_session_of_its_store_is_not_swapped(
    memory: Memory, replays: Replays, live: Distiller
) -> None:
    await live.tell(works_at("Northwind", "2026-01-01", SESSION))
    shadow = await shadowed(replays, live)
    await shadow.tell(works_at("Northwind, told again", "2026-01-01", SESSION), lines=[1])
    other = uuid7()
    await live.tell(works_at("Contoso", "2026-06-01", other), session_id="s2")

    assert await swap(replays, live, shadow) == "behind"
    assert (await statements(memory)).popitem()[1] == "Contoso"
    await shadow.tell(works_at("Contoso, told again", "2026-06-01", other), session_id="s2", lines=[1])

    assert await swap(replays, live, shadow) == "swapped"
    assert (await statements(memory)).popitem()[1] == "Contoso, told again"


async def test_a_session_that_the_pipeline_made_nothing_of_holds_no_swap_up(
    memory: Memory, replays: Replays, live: Distiller
) -> None:
    await live.tell(tea(1))
    await live.tell(session_uid=uuid7(), session_id="s2")
    await replace(live, pipeline_uid=uuid7()).tell(said(BREW, "Likes a brew"), session_id="s3")
    shadow = await shadowed(replays, live)
    await shadow.tell(tea(1, TEA, "Likes tea"))

    assert await swap(replays, live, shadow) == "swapped"
    assert await statements(memory) == {TEA: "Likes tea", BREW: "Likes a brew"}


@pytest.mark.parametrize(
    ("newer", "at", "left"),
    [
        ("Contoso", "2026-06-01", {"Contoso"}),
        (None, "2026-06-01", set()),
        ("Contoso", "2025-06-01", {"Northwind, told again"}),
    ],
    ids=["said later", "ended later", "said earlier"],
)
async def test_what_was_said_later_in_lines_that_the_replay_was_not_given_stays(
    memory: Memory, replays: Replays, live: Distiller, newer: str | None, at: str, left: set[str]
) -> None:
    """As those of a session that is gone: the replay passes through it."""
    gone = uuid7()
    await live.tell(works_at("Northwind", "2026-01-01", SESSION))
    await live.tell(works_at(newer, at, gone), session_id="s2")
    shadow = await shadowed(replays, live)
    await shadow.tell(works_at("Northwind, told again", "2026-01-01", SESSION), lines=[1])
    await shadow.tell(session_uid=gone, session_id="s2")

    assert await swap(replays, live, shadow) == "swapped"
    assert {*(await statements(memory)).values()} == left


async def test_who_was_erased_since_the_shadow_was_made_is_not_swapped(
    memory: Memory, replays: Replays, live: Distiller
) -> None:
    await live.tell(tea(1))
    shadow = await shadowed(replays, live)
    await shadow.tell(tea(1, TEA, "Likes tea"))
    await memory.ok("POST", memory.url("/actors:erase"), json={"actor_id": "ana"})

    [late] = await shadow.send(shadow.batch([tea(2, BREW, "From before")]))
    assert late.outcome == "erased"
    await shadow.tell(tea(2, BREW, "Read before, told after"))

    assert await swap(replays, live, shadow) == "erased"
    assert await statements(memory) == {}


async def test_a_swap_that_is_withdrawn_is_never_made_and_one_that_was_made_stays(
    memory: Memory, replays: Replays, live: Distiller
) -> None:
    await live.tell(tea(1))
    made, late = await shadowed(replays, live), await shadowed(replays, live)
    await made.tell(tea(1, TEA, "Likes tea"))
    await late.tell(tea(1, TEA, "Hates tea"))

    async def withdrawn(shadow: Distiller, swap_id: UUID) -> bool:
        request = WithdrawSwap(
            swap_id=swap_id, store_uid=live.store_uid, shadow_uid=shadow.store_uid, actor_id=live.actor_id
        )
        return not (await replays.withdraw(request)).swapped

    first, second = uuid7(), uuid7()
    assert await swap(replays, live, made, swap_id=first) == "swapped"
    assert not await withdrawn(made, first)
    assert await withdrawn(late, second)

    assert await swap(replays, live, late, swap_id=second) == "erased"
    assert await statements(memory) == {TEA: "Likes tea"}


def source_erased(live: Distiller) -> SessionActorErased:
    return SessionActorErased(
        workspace_id=WORKSPACE, store_uid=live.session_store_uid, actor_id="ana", epoch=1, erasure_id=uuid7()
    )


@pytest.fixture
async def elsewhere(memory: Memory, live: Distiller) -> Distiller:
    """Another store that nothing of the session store has reached."""
    await memory.make_store("other")
    return replace(live, store_uid=await memory.store_uid("other"))


async def test_an_erasure_in_the_session_store_waits_for_a_swap_into_another_store(
    memory: Memory, replays: Replays, elsewhere: Distiller, monkeypatch: pytest.MonkeyPatch
) -> None:
    shadow = await shadowed(replays, elsewhere)
    await shadow.tell(tea(1))
    written, may_end = asyncio.Event(), asyncio.Event()
    note = swapping._note

    async def note_late(*told: Any) -> None:
        written.set()
        await may_end.wait()
        await note(*told)

    async def erase() -> None:
        while True:  # as often as it takes, as the bus would
            try:
                return await memory.handlers.on_session_actor_erased(source_erased(elsewhere))
            except Contended:
                continue

    async def is_waiting() -> bool:
        return bool(await chassis_of(memory.app).database.fetchval(WAITING))

    monkeypatch.setattr(swapping, "_note", note_late)
    async with asyncio.TaskGroup() as both:
        swapped = both.create_task(swap(replays, elsewhere, shadow, keeps_up=False))
        await written.wait()
        both.create_task(erase())
        await until(is_waiting)
        may_end.set()

    assert swapped.result() == "swapped"
    assert await memory.entries("ana", store="other") == []


async def test_a_swap_that_comes_after_an_erasure_in_the_session_store_writes_nothing(
    memory: Memory, replays: Replays, elsewhere: Distiller
) -> None:
    shadow = await shadowed(replays, elsewhere)
    await shadow.tell(tea(1))
    await memory.handlers.on_session_actor_erased(source_erased(elsewhere))

    assert await swap(replays, elsewhere, shadow, keeps_up=False) == "erased"
    assert await swap(replays, replace(elsewhere, source_epoch=1), shadow, keeps_up=False) == "swapped"


@pytest.mark.parametrize(("given", "kept"), [([1, 2, 3], {TEA}), ([1, 3], {TEA, BREW}), ([], {TEA, BREW})])
async def test_a_memory_is_retired_only_where_the_replay_was_given_all_its_lines(
    memory: Memory, replays: Replays, live: Distiller, given: list[int], kept: set[str]
) -> None:
    brew = said(BREW, "Likes a brew", evidence=[Evidence(session_uid=SESSION, positions=[2, 3])])
    await live.tell(tea(1), brew, through=3)
    shadow = await shadowed(replays, live)
    await shadow.tell(tea(1, TEA, "Likes tea"), through=3, lines=given)

    assert await swap(replays, live, shadow) == "swapped"
    assert (await statements(memory)).keys() == kept


async def test_a_thousand_memories_of_an_actor_unknown_to_the_statistics_are_swapped(
    memory: Memory, replays: Replays, live: Distiller
) -> None:
    def facts(first: int, statement: str) -> list[Change]:
        return [tea(n, f"/facts/n{n}.md", f"{statement} {n}") for n in range(first, first + 1000)]

    bo = replace(live, actor_id="bo")
    await bo.send(bo.batch(facts(1, "Bo's fact")))
    await chassis_of(memory.app).database.write("analyze")
    await live.send(live.batch(facts(1, "Fact"), through=2000))
    shadow = await shadowed(replays, live)
    await shadow.send(shadow.batch(facts(501, "Told again"), through=2000, lines=range(1, 2001)))

    assert await swap(replays, live, shadow) == "swapped"
    found = await statements(memory)
    assert len(found) == 1000
    assert all(content.startswith("Told again") for content in found.values())


@pytest.fixture
def statements_sent(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What transactions say to Postgres."""
    said_to_it: list[str] = []

    def counted(name: str) -> None:
        whole = getattr(Tx, name)

        async def run(tx: Tx, sql: str, *args: Any) -> Any:
            said_to_it.append(sql)
            return await whole(tx, sql, *args)

        monkeypatch.setattr(Tx, name, run)

    for name in ("execute", "fetch", "fetchrow", "fetchval"):
        counted(name)
    return said_to_it


async def test_a_swap_of_many_memories_takes_no_statement_for_each(
    memory: Memory, replays: Replays, live: Distiller, statements_sent: list[str]
) -> None:
    """A third is told anew, a third only now, and a third no more."""

    def facts(numbers: range, text: str) -> list[Change]:
        return [tea(n, f"/facts/n{n}.md", f"{text} {n}") for n in numbers]

    await live.send(live.batch(facts(range(1, 1201), "Fact"), through=1800))
    shadow = await shadowed(replays, live)
    await shadow.send(shadow.batch(facts(range(601, 1801), "Told again"), through=1800, lines=range(1, 1801)))
    statements_sent.clear()

    assert await swap(replays, live, shadow) == "swapped"

    assert len(statements_sent) < 40
    assert len(await statements(memory)) == 1200
    for word, found in (("told", 100), ("fact", 100), ("1700", 1), ("300", 0)):
        assert len(await memory.search("ana", word, page_size=100)) == found
    actor = await chassis_of(memory.app).database.fetchrow(
        "select s.entry_count, s.total_length - sum(e.length) as off, count(*) from actor_stats s join entries e"
        " using (store_uid, actor_id) where store_uid = $1 and not e.retired group by 1, s.total_length",
        live.store_uid,
    )
    assert actor is not None
    assert (actor["entry_count"], actor["count"], round(actor["off"], 6)) == (1200, 1200, 0)


@pytest.mark.parametrize("is_known", [True, False], ids=["of a slot", "of a swap that a restored store lacks"])
async def test_a_swap_leaves_an_id_to_the_entry_that_has_it_by_now(
    memory: Memory, replays: Replays, live: Distiller, *, is_known: bool
) -> None:
    once = uuid7()
    taken = str(part_of(once, TEA))
    if is_known:
        [made] = await live.tell(tea(1))
        ended = [Evidence(session_uid=SESSION, positions=[2])]
        await live.tell(said(TEA, None, "2026-02-01", kind="item", evidence=ended))
        taken = made.entry_id or ""
    body = {"actor_id": "bo", "path": "/other.md", "content": "Something else"}
    await memory.ok("POST", memory.url("/entries"), params={"managed_memory_entry_id": taken}, json=body)
    shadow = await shadowed(replays, live)
    await shadow.tell(tea(1, TEA, "Likes tea"), tea(2, BREW, "Likes a brew"), lines=[1, 2])

    assert await swap(replays, live, shadow, swap_id=once, keeps_up=False) == "swapped"

    assert await statements(memory) == {TEA: "Likes tea", BREW: "Likes a brew"}
    [reused] = await memory.entries("bo")
    assert (reused["name"].rpartition("/")[2], reused["content"]) == (taken, "Something else")


async def test_what_is_said_again_of_a_memory_that_a_swap_retired_meanwhile_is_asked_again(
    memory: Memory, replays: Replays, live: Distiller
) -> None:
    [made] = await live.tell(tea(1))
    shadow = await shadowed(replays, live)
    await shadow.tell(tea(1, BREW, "Likes a brew"), lines=[1])
    on_the_way = tea(2).model_copy(
        update={"op": "confirm", "statement": None, "entry_id": made.entry_id, "expected_version": made.version}
    )
    assert await swap(replays, live, shadow) == "swapped"

    [outcome] = await live.send(live.batch([on_the_way]))

    assert outcome.outcome == "conflict"


async def test_nothing_reaches_a_shadow_that_is_over(memory: Memory, replays: Replays, live: Distiller) -> None:
    await live.tell(tea(1))
    shadow = await shadowed(replays, live)
    await shadow.tell(tea(1, TEA, "Likes tea"))

    await replays.on_replay_ended(ReplayEnded(workspace_id=WORKSPACE, store_uid=shadow.store_uid))

    assert await swap(replays, live, shadow) == "gone"
    assert (await shadow.related(["tea"])).gone
    assert await statements(memory) == {TEA: "Drinks tea"}


async def test_a_shadow_that_nobody_has_written_to_for_long_goes(
    memory: Memory, replays: Replays, live: Distiller
) -> None:
    left, written = await shadowed(replays, live), await shadowed(replays, live)
    for shadow in (left, written):
        await shadow.tell(tea(1))
    chassis = chassis_of(memory.app)
    old = "created_at = created_at - interval '31 days'"
    await chassis.database.write(f"update batches set {old} where store_uid = $1", left.store_uid)
    await chassis.database.write(f"update shadow_stores set {old}")
    young = await shadowed(replays, live)

    await run_pass(chassis.unit_of_work, DROP_LEFT_SHADOWS)

    gone = [(await shadow.related(["tea"])).gone for shadow in (left, written, young)]
    assert gone == [True, False, False]
    assert await chassis.database.fetchval("select store_uid from purges") == left.store_uid


@pytest.mark.parametrize("kept", [TEA, AGENT])
async def test_what_a_consolidation_made_of_an_agents_words_stays(
    memory: Memory, replays: Replays, live: Distiller, kept: str
) -> None:
    await live.tell(tea(1), tea(2, BREW, "Likes a brew"))
    await memory.add("ana", AGENT, "Likes tea, says the agent")
    by_path = {entry["path"]: entry["name"].rpartition("/")[2] for entry in await memory.entries("ana")}
    merged = said(kept, "Likes and drinks tea", entry_id=by_path[kept], expected_version=1, evidence=[])
    replaced = [EntryVersion(entry_id=by_path[path], version=1) for path in (TEA, AGENT)]
    await live.send(live.batch([], ranges=[], rewrites=[Rewrite(replaced=replaced, into=[merged])]))
    shadow = await shadowed(replays, live)
    await shadow.tell(tea(1, TEA, "Tea, told again"), tea(2, BREW, "A brew, told again"))

    assert await swap(replays, live, shadow) == "swapped"

    assert (await statements(memory))[kept] == "Likes and drinks tea"
    assert (await statements(memory))[BREW] == "A brew, told again"
