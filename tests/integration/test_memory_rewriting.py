"""What a rewrite does to an actor's entries: all of it or nothing, with what they rest on."""

from typing import Any
from uuid import UUID

from libs.contracts.events import AppliedChange, Change, EntryVersion, Evidence, Rewrite, SessionActorErased
from libs.contracts.ids import uuid7
from libs.contracts.requests import EntriesRead, ReadEntries
from services.memory.consolidation import EntryReader
from services.memory.store.rewriting import Rewritable
from tests.support.memory import Distiller, Memory, said
from tests.support.service import WORKSPACE, chassis_of

TEA, BREW, LIKES = "/drinks/tea.md", "/drinks/brew.md", "/likes.md"


async def read(memory: Memory, distiller: Distiller, **more: Any) -> EntriesRead:
    reader = EntryReader(Rewritable(chassis_of(memory.app).database))
    question: dict[str, Any] = {
        "store_uid": distiller.store_uid,
        "actor_id": "ana",
        "session_store_uid": distiller.session_store_uid,
    }
    return await reader.read(ReadEntries(**question | more))


async def merge(
    memory: Memory, distiller: Distiller, kept: str, *others: str, statement: str, **stale: Any
) -> AppliedChange:
    by_path = {entry.path: entry for entry in (await read(memory, distiller)).entries}
    entry = by_path[kept]
    known: dict[str, Any] = {"entry_id": entry.entry_id, "expected_version": entry.version, "evidence": []} | stale
    wanted = Rewrite(
        replaced=[
            EntryVersion(entry_id=by_path[path].entry_id, version=by_path[path].version) for path in (kept, *others)
        ],
        into=[said(kept, statement, kind="item", **known)],
    )
    [outcome] = await distiller.send(distiller.batch([], rewrites=[wanted], ranges=[]))
    return outcome


def tea(session: UUID, position: int, path: str = TEA, statement: str = "Drinks tea") -> Change:
    return said(path, statement, kind="item", evidence=[Evidence(session_uid=session, positions=[position])])


async def statements(memory: Memory) -> dict[str, str]:
    return {entry["path"]: entry["content"] for entry in await memory.entries("ana")}


async def test_entries_give_way_to_one_that_rests_on_all_their_lines(memory: Memory, distiller: Distiller) -> None:
    session = uuid7()
    await distiller.tell(tea(session, 1), tea(session, 2, BREW, "Likes a brew of tea"))

    outcome = await merge(memory, distiller, TEA, BREW, statement="Likes to drink tea")

    assert outcome.outcome == "applied"
    [entry] = await memory.entries("ana")
    assert (entry["path"], entry["content"], entry["version"]) == (TEA, "Likes to drink tea", 2)
    assert sorted(proof["positions"] for proof in entry["evidence"]) == [[1], [2]]
    assert await memory.paths("ana", "brew") == []


async def test_what_an_entry_gives_way_to_rests_on_no_line_that_said_something_else_in_the_same_moment(
    memory: Memory, distiller: Distiller
) -> None:
    session = uuid7()
    told = [tea(session, 1), tea(session, 2, TEA, "Drinks green tea"), tea(session, 3, BREW, "Likes a brew of tea")]
    await distiller.tell(*told)

    await merge(memory, distiller, TEA, BREW, statement="Likes to drink green tea")

    [entry] = await memory.entries("ana")
    assert sorted(proof["positions"] for proof in entry["evidence"]) == [[2], [3]]
    await distiller.tell(*told)
    assert await memory.entries("ana") == [entry]


async def test_nothing_is_rewritten_when_one_entry_has_changed_meanwhile(memory: Memory, distiller: Distiller) -> None:
    session = uuid7()
    await distiller.tell(tea(session, 1), tea(session, 2, BREW, "Likes a brew of tea"))

    late = await merge(memory, distiller, TEA, BREW, statement="Likes to drink tea", expected_version=7)

    assert late.outcome == "conflict"
    assert await statements(memory) == {TEA: "Drinks tea", BREW: "Likes a brew of tea"}


async def test_an_entry_that_took_over_an_id_is_not_merged_for_the_one_that_had_it(
    memory: Memory, distiller: Distiller
) -> None:
    session = uuid7()
    await distiller.tell(tea(session, 1), tea(session, 2, BREW, "Likes a brew of tea"))
    by_path = {entry.path: entry for entry in (await read(memory, distiller)).entries}
    brew, kept = by_path[BREW], by_path[TEA]
    await memory.ok("DELETE", memory.url(f"/entries/{brew.entry_id}"))
    body = {"actor_id": "ana", "path": "/other.md", "content": "Something else"}
    await memory.ok("POST", memory.url("/entries"), params={"managed_memory_entry_id": brew.entry_id}, json=body)
    wanted = Rewrite(
        replaced=[
            EntryVersion(entry_id=entry.entry_id, version=entry.version, path=entry.path) for entry in (kept, brew)
        ],
        into=[said(TEA, "Likes to drink tea", entry_id=kept.entry_id, expected_version=kept.version, evidence=[])],
    )

    [outcome] = await distiller.send(distiller.batch([], rewrites=[wanted], ranges=[]))

    assert outcome.outcome == "conflict"
    assert await statements(memory) == {TEA: "Drinks tea", "/other.md": "Something else"}


async def test_a_statement_that_memory_refuses_rewrites_nothing(memory: Memory, distiller: Distiller) -> None:
    session = uuid7()
    await distiller.tell(tea(session, 1), tea(session, 2, BREW, "Likes a brew of tea"))

    refused = await merge(memory, distiller, TEA, BREW, statement="x" * 1001)

    assert refused.outcome == "refused"
    assert len(await statements(memory)) == 2


async def test_a_rewrite_of_nothing_or_into_nothing_is_refused_and_parks_no_batch(
    memory: Memory, distiller: Distiller
) -> None:
    session = uuid7()
    await distiller.tell(tea(session, 1))
    [entry] = (await read(memory, distiller)).entries
    of_nothing = Rewrite(replaced=[], into=[said(BREW, "Likes a brew", evidence=[])])
    into_nothing = Rewrite(replaced=[EntryVersion(entry_id=entry.entry_id, version=entry.version)], into=[])

    outcomes = await distiller.send(
        distiller.batch([], rewrites=[of_nothing, into_nothing, Rewrite(replaced=[], into=[])], ranges=[])
    )

    assert [each.outcome for each in outcomes] == ["refused"] * 3
    assert await statements(memory) == {TEA: "Drinks tea"}


async def test_an_event_takes_in_another_that_tells_of_it_and_stays_as_it_was(
    memory: Memory, distiller: Distiller
) -> None:
    session = uuid7()
    first = tea(session, 1, TEA, "Passed the test").model_copy(update={"kind": "event"})
    await distiller.tell(first, tea(session, 2, BREW, "Has passed a test").model_copy(update={"kind": "event"}))

    await merge(memory, distiller, TEA, BREW, statement="Passed some test")

    [entry] = await memory.entries("ana")
    assert (entry["content"], entry["version"]) == ("Passed the test", 1)
    assert sorted(proof["positions"] for proof in entry["evidence"]) == [[1], [2]]


async def test_an_erasure_takes_a_merged_statement_and_gives_the_agent_its_own_back(
    memory: Memory, distiller: Distiller
) -> None:
    """What rests on the erased lines goes with them; what an agent had written says again what it said."""
    await memory.add("ana", LIKES, "Likes tea")
    await distiller.tell(tea(uuid7(), 1))
    await merge(memory, distiller, TEA, LIKES, statement="Drinks and likes tea")
    assert await statements(memory) == {TEA: "Drinks and likes tea"}

    await memory.handlers.on_session_actor_erased(
        SessionActorErased(
            workspace_id=WORKSPACE,
            store_uid=distiller.session_store_uid,
            actor_id="ana",
            epoch=1,
            erasure_id=uuid7(),
        )
    )

    assert await statements(memory) == {LIKES: "Likes tea"}


async def test_what_was_read_before_an_erasure_rewrites_nothing_after_it(memory: Memory, distiller: Distiller) -> None:
    await memory.add("ana", LIKES, "Likes tea")
    await memory.add("ana", TEA, "Drinks tea")
    await memory.handlers.on_session_actor_erased(
        SessionActorErased(
            workspace_id=WORKSPACE, store_uid=distiller.session_store_uid, actor_id="ana", epoch=1, erasure_id=uuid7()
        )
    )

    assert (await read(memory, distiller)).source_epoch == 1
    await merge_before_the_erasure(memory, distiller)

    assert len(await statements(memory)) == 2


async def merge_before_the_erasure(memory: Memory, distiller: Distiller) -> None:
    entries = (await read(memory, distiller)).entries
    wanted = Rewrite(
        replaced=[EntryVersion(entry_id=entry.entry_id, version=entry.version) for entry in entries],
        into=[said(TEA, "x", entry_id=entries[0].entry_id, expected_version=1, evidence=[])],
    )
    await distiller.send(distiller.batch([], rewrites=[wanted], ranges=[], source_epoch=0))


async def test_reading_goes_page_by_page_through_everything_but_what_no_reply_holds(
    memory: Memory, distiller: Distiller
) -> None:
    for number in range(30):
        await memory.add("ana", f"/notes/{number}.md", f"{number} " * 400)
    await memory.add("ana", "/huge.md", "x" * 262_145)
    await memory.add("ana", "/of-one-session.md", "x", session_id="s1")
    await memory.add("ana", "/controls.md", "\x01" * 200_000)
    await memory.add("bo", "/other.md", "x")

    seen: list[str] = []
    pages, after = 0, None
    while pages == 0 or after is not None:
        page = await read(memory, distiller, after=after, max_bytes=10_000)
        seen += [entry.path for entry in page.entries]
        pages, after = pages + 1, page.after

    assert sorted(seen) == sorted(f"/notes/{number}.md" for number in range(30))
    assert pages > 3
