"""What the memory service does by itself: retention and analysing again."""

from libs.chassis import housekeeping
from services.memory.indexing import Indexing
from services.memory.ranking import FieldWeights
from services.memory.store import retention
from services.memory.store.postings import reanalysis
from tests.support.memory import Distiller, Memory, said
from tests.support.service import chassis_of


async def reanalyse(memory: Memory, indexing: Indexing | None = None) -> None:
    wanted = reanalysis(indexing or Indexing("english", FieldWeights()))
    await housekeeping.run_pass(chassis_of(memory.app).unit_of_work, wanted)


async def test_versions_that_ended_long_ago_go_and_what_holds_stays(memory: Memory) -> None:
    for store, days in (("short", 30), ("endless", None)):
        await memory.make_store(store, **({"history_days": days} if days else {}))
        distiller = await Distiller.of(memory, store)
        await distiller.tell(said("/job.md", "first", "2020-01-01"), said("/old.md", "still true", "2020-01-01"))
        await distiller.tell(said("/job.md", "second", "2021-01-01"), said("/gone.md", "ended", "2020-01-01"))
        await distiller.tell(said("/gone.md", None, "2021-01-01"))
        await memory.add("ana", "/agent.md", "one", store=store)
        [entry] = await memory.entries("ana", path="/agent.md", store=store)
        await memory.ok("DELETE", f"/api/2.0/agents/{entry['name']}")

    for each in retention.PASSES:
        await housekeeping.run_pass(chassis_of(memory.app).unit_of_work, each)

    contents = {entry["content"] for entry in await memory.entries("ana", store="short")}
    assert contents == {"second", "still true"}
    rows = await chassis_of(memory.app).database.fetch(
        "select s.store_id, v.content from entry_versions v join memory_stores s using (store_uid)"
        " where v.content is not null order by 1, 2"
    )
    kept = [row["content"] for row in rows if row["store_id"] == "short"]
    assert kept == ["one", "second", "still true"]
    assert len([row for row in rows if row["store_id"] == "endless"]) == 5


async def test_another_language_serves_once_an_actor_is_analysed_whole(memory: Memory) -> None:
    for number in range(3):
        await memory.add("ana", f"/{number}.md", f"Elle préfère les chevaux noirs {number}")
    mask = {"params": {"update_mask": "language"}, "json": {"language": "french"}}
    assert (await memory.ok("PATCH", memory.url(), **mask))["language"] == "french"
    await memory.add("ana", "/3.md", "Elle préfère les chevaux blancs")
    assert await memory.paths("ana", "cheval") == []
    assert len(await memory.paths("ana", "chevaux")) == 4

    await reanalyse(memory)

    assert len(await memory.paths("ana", "cheval")) == 4
    assert await memory.paths("ana", "préférées blanc") == ["/3.md", *(f"/{n}.md" for n in (2, 1, 0))]
    database = chassis_of(memory.app).database
    row = await database.fetchrow(
        "select a.total_length, a.language, sum(e.length) as length from actor_stats a"
        " join entries e using (store_uid, actor_id) group by 1, 2"
    )
    assert row is not None
    assert (row["language"], row["total_length"]) == ("french", row["length"])


async def test_a_new_analysis_reaches_an_actor_by_itself_or_with_the_next_write(memory: Memory) -> None:
    class Newer(Indexing):
        version = Indexing.version + 1

    await memory.add("ana", "/a.md", "cats")
    await memory.add("bo", "/b.md", "cats")

    await reanalyse(memory, Newer("english", FieldWeights()))
    newer = [entry["text_analysis_version"] for actor in ("ana", "bo") for entry in await memory.entries(actor)]
    await memory.add("ana", "/c.md", "cats")

    assert newer == [Newer.version] * 2
    written = [entry["text_analysis_version"] for entry in await memory.entries("ana")]
    assert written == [Indexing.version] * 2
    assert len(await memory.paths("ana", "cat")) == 2
