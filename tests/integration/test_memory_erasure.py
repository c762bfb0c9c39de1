"""Forgetting an actor: nothing is left, nothing comes back, everybody else keeps all."""

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest

from libs.chassis.errors import Contended
from libs.chassis.housekeeping import run_pass
from libs.contracts.events import (
    DistillerActorErased,
    EntryVersion,
    Evidence,
    MemoryActorErased,
    Rewrite,
    SessionActorErased,
)
from libs.contracts.ids import uuid7
from services.memory.store.purge import TABLES
from tests.support.memory import Distiller, Memory, day, hold_turn, said
from tests.support.service import WORKSPACE, chassis_of

RECEIPTS = ("erasures", "actor_epochs", "changes", "change_horizons")


async def erase(memory: Memory, actor_id: str = "ana", **request: Any) -> dict[str, Any]:
    return await memory.ok("POST", memory.url("/actors:erase"), json={"actor_id": actor_id}, **request)


async def announced(memory: Memory) -> list[MemoryActorErased]:
    rows = await chassis_of(memory.app).database.fetch(
        "select payload from outbox where subject = $1 order by message_id", MemoryActorErased.subject
    )
    return [MemoryActorErased.model_validate_json(row["payload"]) for row in rows]


async def contents(memory: Memory, actor_id: str = "ana") -> list[str]:
    return sorted(entry["content"] for entry in await memory.entries(actor_id))


async def test_nothing_of_an_erased_actor_is_left(memory: Memory) -> None:
    distiller = await Distiller.of(memory)
    for number in range(0, 300, 100):
        changes = [said(f"/f/{n}.md", f"fact {n}") for n in range(number, number + 100)]
        await distiller.send(distiller.batch(changes))
    await distiller.tell(*(said(f"/f/{n}.md", f"fact {n} anew", "2026-02-01") for n in range(50)))
    key = {"Idempotency-Key": "k"}
    await memory.ok("POST", memory.url("/entries"), json={"actor_id": "ana", "path": "/a"}, headers=key)
    for number in range(10):
        await memory.add("bo", f"/f/{number}.md", f"fact {number}")

    receipt = await erase(memory)

    assert receipt["counts"] == {"memory": 351}
    assert receipt["state"] == "PENDING"
    assert await memory.entries("ana") == []
    assert await memory.search("ana", "fact anew") == []
    assert await memory.entries("ana", as_of="2026-01-15T00:00:00Z") == []
    assert len(await memory.search("bo", "fact", page_size=10)) == 10
    database = chassis_of(memory.app).database
    for table in sorted(set(TABLES) - set(RECEIPTS)):
        column = "resource" if table == "idempotency_keys" else "actor_id"
        if table in ("entry_terms", "entry_vectors"):
            left = f"select count(*) from {table} where actor_no not in (select actor_no from actor_stats)"
            assert await database.fetchval(left) == 0, table
        elif column == "resource":
            assert await database.fetchval("select count(*) from idempotency_keys") == 0
        else:
            assert await database.fetchval(f"select count(*) from {table} where actor_id = 'ana'") == 0, table
    rows = await database.fetch("select change, path from changes where actor_id = 'ana'")
    assert [tuple(row.values()) for row in rows] == [("erased", None)]
    assert await database.fetchval("select count(*) from outbox where payload like '%\"ana\"%'") == 1


async def test_what_was_decided_before_is_refused_and_a_new_start_is_welcome(memory: Memory) -> None:
    distiller = await Distiller.of(memory)
    await distiller.tell(said("/a.md", "before"))
    late = distiller.batch([said("/b.md", "late")])
    await erase(memory)

    [refused] = await distiller.send(late)
    [fresh] = await distiller.tell(said("/c.md", "after"))

    assert (refused.outcome, fresh.outcome) == ("erased", "applied")
    assert await contents(memory) == ["after"]


async def test_a_receipt_is_done_once_the_distiller_has_confirmed(memory: Memory) -> None:
    await memory.add("ana", "/a.md", "x")
    receipt = await erase(memory)
    url = memory.url(f"/erasures/{receipt['erasure_id']}")
    [event] = await announced(memory)
    assert (event.actor_id, event.epoch, event.removed) == ("ana", 1, 1)
    assert (await memory.ok("GET", url))["state"] == "PENDING"

    confirmation = DistillerActorErased(**event.model_dump(exclude={"event_id", "occurred_at", "removed"}), removed=3)
    await memory.handlers.on_distiller_actor_erased(confirmation)
    await memory.handlers.on_distiller_actor_erased(confirmation)

    done = await memory.ok("GET", url)
    assert (done["state"], done["counts"]) == ("DONE", {"memory": 1, "distiller": 3})
    again = await erase(memory)
    assert again["erasure_id"] != receipt["erasure_id"]
    assert again["counts"] == {"memory": 0}
    for unknown in (uuid7(), "x"):
        assert await memory.code("GET", memory.url(f"/erasures/{unknown}")) == (404, "NOT_FOUND")


async def test_a_restored_store_goes_on_after_the_epochs_that_it_gave_before(memory: Memory) -> None:
    """A dump from before two erasures, of which one is repeated: it is under an epoch that the distiller knows."""
    distiller = await Distiller.of(memory)
    kept = distiller.batch([said("/a.md", "before")], memory_epoch=2)
    await erase(memory)
    [event] = await announced(memory)
    fields = event.model_dump(exclude={"event_id", "occurred_at", "known_epoch"})

    await memory.handlers.on_distiller_actor_erased(DistillerActorErased(**fields, known_epoch=3))
    await memory.handlers.on_distiller_actor_erased(DistillerActorErased(**fields))

    [refused] = await distiller.send(kept)
    [fresh] = await distiller.tell(said("/c.md", "after"))
    assert (refused.outcome, fresh.outcome) == ("erased", "applied")
    assert await contents(memory) == ["after"]


async def test_an_epoch_that_a_restored_session_store_gives_again_is_followed_by_one_that_nobody_had(
    memory: Memory,
) -> None:
    distiller = await Distiller.of(memory)

    async def erased(epoch: int, erasure_id: UUID) -> int:
        await memory.handlers.on_session_actor_erased(
            SessionActorErased(
                workspace_id=WORKSPACE,
                store_uid=distiller.session_store_uid,
                actor_id="ana",
                epoch=epoch,
                erasure_id=erasure_id,
            )
        )
        return (await announced(memory))[-1].known_epoch

    first, second, repeated, last = (uuid7() for _ in range(4))
    assert [await erased(1, first), await erased(2, second), await erased(1, first)] == [1, 2, 2]
    kept = distiller.batch([said("/a.md", "before")], source_epoch=2)

    assert [await erased(1, repeated), await erased(1, repeated), await erased(2, second)] == [3, 3, 3]
    assert await erased(4, last) == 4

    [refused] = await distiller.send(kept)
    distiller.source_epoch = 4
    [fresh] = await distiller.tell(said("/c.md", "after"))
    assert (refused.outcome, fresh.outcome) == ("erased", "applied")


async def test_an_unconfirmed_erasure_is_announced_again(memory: Memory) -> None:
    await erase(memory)

    await memory.app.state.erasures.announce_again(0)

    first, second = await announced(memory)
    assert first.erasure_id == second.erasure_id
    assert first.event_id != second.event_id


async def test_who_may_erase(memory: Memory) -> None:
    body = {"json": {"actor_id": "ana"}}
    url = memory.url("/actors:erase")
    grant = {"principal": {"type": "USER", "name": "r@x"}, "permission": "READ"}
    await memory.ok("POST", memory.url("/permissions:grant"), json=grant)

    assert await memory.code("POST", url, headers=memory.keys.header("r@x"), **body) == (403, "PERMISSION_DENIED")
    assert await memory.code("POST", url, headers=memory.keys.header("s@x"), **body) == (403, "PERMISSION_DENIED")
    receipt = await erase(memory, headers=memory.keys.header("root@x", admin=True))
    receipt_url = memory.url(f"/erasures/{receipt['erasure_id']}")
    assert await memory.code("GET", receipt_url, headers=memory.keys.header("r@x")) == (403, "PERMISSION_DENIED")


def source_erased(distiller: Distiller, erasure_id: UUID | None = None, epoch: int = 1) -> SessionActorErased:
    return SessionActorErased(
        workspace_id=WORKSPACE,
        store_uid=distiller.session_store_uid,
        actor_id="ana",
        epoch=epoch,
        erasure_id=erasure_id or uuid7(),
    )


async def test_what_rests_on_an_erased_session_store_alone_goes(memory: Memory) -> None:
    await memory.make_store("second")
    mine = await Distiller.of(memory)
    other = await Distiller.of(memory)
    second = await Distiller.of(memory, "second", session_store_uid=mine.session_store_uid)
    await mine.tell(said("/only/mine.md", "only mine"))
    await mine.tell(said("/both.md", "both say it", "2026-01-01"))
    await other.tell(said("/both.md", "both say it", "2026-02-01"))
    await other.tell(said("/job.md", "Works at Northwind", "2026-01-01"))
    await mine.tell(said("/job.md", "Works at Contoso", "2026-02-01"))
    await other.tell(said("/only/other.md", "only other"))
    await memory.add("ana", "/agent.md", "an agent wrote")
    await second.tell(said("/a.md", "elsewhere"))
    bo = await Distiller.of(memory, actor_id="bo", session_store_uid=mine.session_store_uid)
    await bo.tell(said("/bo.md", "of bo"))
    event = source_erased(mine)

    await memory.handlers.on_session_actor_erased(event)
    await memory.handlers.on_session_actor_erased(event)

    assert await contents(memory) == ["Works at Northwind", "an agent wrote", "both say it", "only other"]
    assert await memory.entries("ana", store="second") == []
    assert await contents(memory, "bo") == ["of bo"]
    assert await memory.paths("ana", "Northwind") == ["/job.md"]
    assert await memory.search("ana", "Contoso mine") == []
    assert await memory.search("ana", "mine", as_of="2026-06-01T00:00:00Z") == []
    answers = await announced(memory)
    assert [(answer.store_uid, answer.removed) for answer in answers] == [(mine.session_store_uid, 3)] * 2
    [late] = await mine.send(mine.batch([said("/late.md", "late")]))
    assert late.outcome == "erased"
    database = chassis_of(memory.app).database
    count = "select count(*) from {} where session_store_uid = $1 and actor_id = 'ana'"
    for table in ("version_evidence", "progress"):
        assert await database.fetchval(count.format(table), mine.session_store_uid) == 0
    counted = await database.fetch(
        "select a.entry_count, count(e.entry_uid) as entries, a.total_length, coalesce(sum(e.length), 0) as length"
        " from actor_stats a left join entries e using (store_uid, actor_id) group by 1, 3, a.store_uid, a.actor_id"
    )
    assert all(row["entry_count"] == row["entries"] and row["total_length"] == row["length"] for row in counted)


async def reached(memory: Memory, distiller: Distiller) -> list[str]:
    """The sessions of ana that are searchable to some position."""
    rows = await chassis_of(memory.app).database.fetch(
        "select session_id from progress where store_uid = $1 and actor_id = 'ana'", distiller.store_uid
    )
    return sorted(row["session_id"] for row in rows)


async def test_an_erasure_that_waited_for_its_turn_spares_what_was_said_after_it(memory: Memory) -> None:
    distiller = await Distiller.of(memory)
    await distiller.tell(said("/old.md", "old words"), said("/both.md", "said twice"), session_id="before")
    event = source_erased(distiller)
    async with chassis_of(memory.app).database.transaction() as connection:
        await hold_turn(connection, distiller.store_uid, "ana")
        with pytest.raises(Contended):
            await memory.handlers.on_session_actor_erased(event)
    distiller.source_epoch = 1
    await distiller.tell(said("/new.md", "new words"), said("/both.md", "said twice"), session_id="after")

    await memory.handlers.on_session_actor_erased(event)

    assert await contents(memory) == ["new words", "said twice"]
    assert await reached(memory, distiller) == ["after"]
    assert (await announced(memory))[-1].removed == 1


async def test_an_erasure_that_comes_after_a_later_one_removes_nothing_that_came_after_that(memory: Memory) -> None:
    distiller = await Distiller.of(memory)
    await distiller.tell(said("/old.md", "old words"))
    first, second = source_erased(distiller), source_erased(distiller, epoch=2)
    await memory.handlers.on_session_actor_erased(second)
    distiller.source_epoch = 2
    await distiller.tell(said("/a.md", "after both"))

    await memory.handlers.on_session_actor_erased(first)
    [late] = await distiller.tell(said("/b.md", "also after both"))

    assert late.outcome == "applied"
    assert await contents(memory) == ["after both", "also after both"]
    assert [answer.known_epoch for answer in await announced(memory)] == [2, 2]


async def test_a_session_store_that_is_restored_after_long_gives_an_epoch_again(memory: Memory) -> None:
    distiller = await Distiller.of(memory)
    await memory.handlers.on_session_actor_erased(source_erased(distiller))
    distiller.source_epoch = 1
    await distiller.tell(said("/a.md", "told after the first erasure"))
    chassis = chassis_of(memory.app)
    await chassis.database.write("update erasures set created_at = now() - interval '1 year'")
    for each in chassis._passes:
        await run_pass(chassis.unit_of_work, each)

    await memory.handlers.on_session_actor_erased(source_erased(distiller))

    assert await contents(memory) == []
    assert (await announced(memory))[-1].known_epoch == 2


async def test_what_was_told_after_an_erasure_is_spared_in_all_that_came_of_it(memory: Memory) -> None:
    """The erasure is heard of late. What rests on the words that it spares goes with the next one."""
    distiller = await Distiller.of(memory, source_epoch=1)
    first, second = source_erased(distiller), source_erased(distiller, epoch=2)
    [again] = await distiller.tell(said("/again.md", "said and restored"))
    url = memory.url(f"/entries/{again.entry_id}")
    await memory.ok("PATCH", url, params={"update_mask": "content"}, json={"content": "by an agent"})
    await memory.ok("POST", f"{url}:restore", json={"version": 1})
    await distiller.tell(said("/tea.md", "Likes tea"), said("/brew.md", "Brews tea"))
    entries = (await distiller.related(paths=["/tea.md", "/brew.md"])).entries
    replaced = [EntryVersion(entry_id=entry.entry_id, version=entry.version) for entry in entries]
    rewrite = Rewrite(replaced=replaced, into=[said("/merged.md", "Likes and brews tea", evidence=[])])
    [merged] = await distiller.send(distiller.batch([], rewrites=[rewrite]))
    assert merged.outcome == "applied"

    await memory.handlers.on_session_actor_erased(first)
    assert await contents(memory) == ["Likes and brews tea", "said and restored"]

    await memory.handlers.on_session_actor_erased(second)
    assert await contents(memory) == ["by an agent"]


async def test_what_an_erasure_leaves_comes_back_beside_an_entry_that_has_its_id_by_now(memory: Memory) -> None:
    """The retirement rests on the erased store alone: without it the entry says again what an agent wrote."""
    distiller = await Distiller.of(memory)
    made = await memory.add("ana", "/pets/cat.md", "Has a cat")
    entry_id = made["name"].rpartition("/")[2]
    await distiller.tell(said("/pets/cat.md", None, datetime.now(UTC).isoformat(), kind="item"))
    assert await contents(memory) == []
    body = {"actor_id": "bo", "path": "/other.md", "content": "Something else"}
    await memory.ok("POST", memory.url("/entries"), params={"managed_memory_entry_id": entry_id}, json=body)

    await memory.handlers.on_session_actor_erased(
        SessionActorErased(
            workspace_id=WORKSPACE,
            store_uid=distiller.session_store_uid,
            actor_id="ana",
            epoch=1,
            erasure_id=uuid7(),
        )
    )

    [back] = await memory.entries("ana")
    [reused] = await memory.entries("bo")
    assert (back["content"], reused["content"]) == ("Has a cat", "Something else")
    assert back["name"] != reused["name"] == made["name"]


async def test_a_restored_fact_is_erased_with_what_it_rests_on(memory: Memory) -> None:
    distiller = await Distiller.of(memory)
    [made] = await distiller.tell(said("/a.md", "a secret"))
    url = memory.url(f"/entries/{made.entry_id}")
    await memory.ok("PATCH", url, params={"update_mask": "content"}, json={"content": "by an agent"})
    await memory.ok("POST", f"{url}:restore", json={"version": 1})
    await memory.ok("PATCH", url, params={"update_mask": "description"}, json={"description": "about it"})
    assert await contents(memory) == ["a secret"]

    await memory.handlers.on_session_actor_erased(source_erased(distiller))

    assert await contents(memory) == ["by an agent"]
    told = await memory.ok("GET", f"{url}/versions")
    assert [version["content"] for version in told["versions"]] == ["by an agent"]


async def test_what_is_said_again_after_what_came_late_of_its_moment_is_erased_whole(memory: Memory) -> None:
    distiller = await Distiller.of(memory)
    session = uuid7()
    for position, statement in ((3, "Lives in Reykjavik"), (2, "Lives in Oslo"), (1, "Lived in Reykjavik before")):
        line = [Evidence(session_uid=session, positions=[position])]
        await distiller.tell(said("/home.md", statement, evidence=line))
    assert await contents(memory) == ["Lives in Reykjavik"]

    await memory.handlers.on_session_actor_erased(source_erased(distiller))

    assert await memory.entries("ana") == []
    await no_trace_is_left(memory)


async def test_a_repeated_erasure_answers_its_receipt_and_spares_what_came_since(memory: Memory) -> None:
    await memory.add("ana", "/a.md", "one")
    key = {"Idempotency-Key": "forget ana"}

    first = await erase(memory, headers=key)
    await memory.add("ana", "/a.md", "a fresh start")
    repeat = await memory.client.post(memory.url("/actors:erase"), json={"actor_id": "ana"}, headers=key)

    assert repeat.json() == first
    assert repeat.headers["Idempotent-Replayed"] == "true"
    assert await contents(memory) == ["a fresh start"]
    assert len(await announced(memory)) == 1


HOME = said("/home.md", "Lives in Reykjavik", description="home, city, where lives: Reykjavik")


async def versions(memory: Memory, entry_id: str | None) -> list[tuple[str | None, str | None]]:
    told = await memory.ok("GET", memory.url(f"/entries/{entry_id}/versions"))
    return [(version.get("content"), version.get("description")) for version in told["versions"]]


async def change(memory: Memory, entry_id: str | None, **body: str) -> None:
    url = memory.url(f"/entries/{entry_id}")
    await memory.ok("PATCH", url, params={"update_mask": ",".join(body)}, json=body)


async def put(memory: Memory, content: str, **more: Any) -> None:
    body = {"actor_id": "ana", "path": "/home.md", "content": content, **more}
    await memory.ok("POST", memory.url("/entries:put"), json=body)


async def no_trace_is_left(memory: Memory, trace: str = "Reykjavik") -> None:
    assert await memory.search("ana", trace) == []
    assert await memory.search("ana", trace, as_of="2026-06-01T00:00:00Z") == []
    database = chassis_of(memory.app).database
    for table in ("entries", "entry_versions"):
        found = f"select count(*) from {table} t where strpos(t::text, $1) > 0"
        assert await database.fetchval(found, trace) == 0, table
    assert await database.fetchval("select count(*) from entry_terms where term like $1", f"{trace.lower()}%") == 0


@pytest.mark.parametrize("by_put", [False, True], ids=["patch", "put"])
async def test_a_description_kept_by_an_agent_goes_with_what_it_came_from(memory: Memory, *, by_put: bool) -> None:
    distiller = await Distiller.of(memory)
    [made] = await distiller.tell(HOME.model_copy(update={"event_date": day("2020-05-17")}))
    for content in ("Moved away", "Moved away again"):
        await (put(memory, content) if by_put else change(memory, made.entry_id, content=content))
    assert await memory.paths("ana", "Reykjavik") == ["/home.md"]

    await memory.handlers.on_session_actor_erased(source_erased(distiller))

    await no_trace_is_left(memory)
    await no_trace_is_left(memory, "2020-05-17")
    assert await versions(memory, made.entry_id) == [("Moved away again", None), ("Moved away", None)]
    assert await memory.paths("ana", "Moved") == ["/home.md"]
    assert await chassis_of(memory.app).database.fetchval("select vectors_due from actor_stats")


async def test_content_that_an_agent_repeats_goes_with_what_it_came_from(memory: Memory) -> None:
    distiller = await Distiller.of(memory)
    [made] = await distiller.tell(HOME)
    await change(memory, made.entry_id, description="where the user lives")
    await change(memory, made.entry_id, content="Moved away")
    await change(memory, made.entry_id, content="Lives in Reykjavik")
    await change(memory, made.entry_id, content="Prefers tea\nLives in Reykjavik\nDrinks it black")

    await memory.handlers.on_session_actor_erased(source_erased(distiller))

    await no_trace_is_left(memory)
    assert await versions(memory, made.entry_id) == [("Prefers tea\nDrinks it black", None), ("Moved away", None)]
    assert (await announced(memory))[-1].removed == 3


async def test_what_an_agent_appends_to_distilled_words_leaves_none_of_them(memory: Memory) -> None:
    distiller = await Distiller.of(memory)
    [made] = await distiller.tell(HOME)
    await put(memory, "Prefers tea", append=True)
    await put(memory, "Lives in Reykjavik\nPrefers coffee")
    await put(memory, "Takes it black", append=True)

    await memory.handlers.on_session_actor_erased(source_erased(distiller))

    await no_trace_is_left(memory)
    assert await contents(memory) == ["Prefers coffee\nTakes it black"]
    assert len(await versions(memory, made.entry_id)) == 2


async def test_restored_words_of_an_agent_are_rid_of_erased_ones(memory: Memory) -> None:
    distiller = await Distiller.of(memory)
    [made] = await distiller.tell(HOME)
    await change(memory, made.entry_id, content="Moved away")
    await memory.ok("DELETE", memory.url(f"/entries/{made.entry_id}"))
    await memory.ok("POST", memory.url(f"/entries/{made.entry_id}:restore"), json={"version": 2})

    await memory.handlers.on_session_actor_erased(source_erased(distiller))

    await no_trace_is_left(memory)
    assert await versions(memory, made.entry_id) == [("Moved away", None), (None, None), ("Moved away", None)]


async def test_words_that_somebody_else_said_too_stay(memory: Memory) -> None:
    mine, other = await Distiller.of(memory), await Distiller.of(memory)
    await memory.add("ana", "/tea.md", "Prefers tea", description="drinks")
    [tea] = await mine.tell(said("/tea.md", "Prefers coffee", "2100-01-01", description="drinks"))
    await change(memory, tea.entry_id, content="Prefers water")
    [home] = await mine.tell(HOME)
    await other.tell(said("/home.md", "Works in Reykjavik", "2026-02-01", description=HOME.description))
    await change(memory, home.entry_id, content="Lives in Reykjavik")
    await other.tell(said("/home.md", "Lives in Reykjavik", "2100-01-01"))

    await memory.handlers.on_session_actor_erased(source_erased(mine))

    assert await versions(memory, tea.entry_id) == [("Prefers water", "drinks"), ("Prefers tea", "drinks")]
    assert await versions(memory, home.entry_id) == [
        ("Lives in Reykjavik", HOME.description),
        ("Works in Reykjavik", HOME.description),
    ]


async def test_a_rewriting_of_an_agents_words_is_erased_with_the_distilled_ones_among_them(memory: Memory) -> None:
    distiller = await Distiller.of(memory)
    [made] = await distiller.tell(HOME)
    await change(memory, made.entry_id, content="Moved away")
    await memory.add("ana", "/move.md", "Has moved")
    entries = (await distiller.related(paths=["/home.md", "/move.md"])).entries
    into = said("/merged.md", "Moved away from Reykjavik", evidence=[])
    replaced = [EntryVersion(entry_id=entry.entry_id, version=entry.version) for entry in entries]
    [merged] = await distiller.send(distiller.batch([], rewrites=[Rewrite(replaced=replaced, into=[into])]))
    assert merged.outcome == "applied"
    assert await contents(memory) == ["Moved away from Reykjavik"]

    await memory.handlers.on_session_actor_erased(source_erased(distiller))

    await no_trace_is_left(memory)
    assert await contents(memory) == ["Has moved", "Moved away"]
