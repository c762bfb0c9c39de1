"""What a model is shown of a conversation and of memory, and what becomes of the dates that it answers."""

import json
import re
from typing import Any

from starlette.responses import Response

from tests.support import scripted_model as scripted
from tests.support.scripted_model import ScriptedModel
from tests.support.service import chassis_of
from tests.support.system import Open

AT = "2026-03-10T23:30:00-08:00"


def shown(model: ScriptedModel) -> tuple[set[str], list[str]]:
    """The paths of the known slots and the lines of the last request."""
    known, _, lines = model.requests[-1]["messages"][-1]["content"].partition("Lines:\n")
    return set(re.findall(r"^(/\S+) \(", known, re.MULTILINE)), lines.splitlines()


async def dated(body: dict[str, Any]) -> Response:
    """Keeps each line as what happened on 9 March."""
    event = {"kind": "event", "event_date": "2026-03-09", "statement": "It happened"}
    changes = [scripted.note(number, text) | event for number, text in scripted.asked_lines(body)]
    return scripted.completion(json.dumps({"changes": changes}))


async def test_every_topic_of_a_batch_finds_its_entry_and_lines_before_are_context(
    opened: Open, model: ScriptedModel
) -> None:
    topics = [f"topic{number}" for number in range(40)]
    buried = "and so on. " * 60 + "topic40" + " and so on." * 60
    async with opened() as memstream:
        pipeline = await memstream.pipeline()
        for topic in (*topics, "topic40"):
            entry = {"actor_id": "ana", "path": f"/known/{topic}.md", "content": f"Once told of {topic}"}
            await memstream.call("POST", "/memory-stores/facts/entries", json=entry)
        for number in range(40):
            entry = {"actor_id": "ana", "path": f"/talk/{number}.md", "content": "Today we talk about it and so on"}
            await memstream.call("POST", "/memory-stores/facts/entries", json=entry)

        await memstream.say("ana", "s1", *(f"Today we talk about {topic}" for topic in topics))
        await memstream.settled(pipeline)
        of_topics, lines = shown(model)
        model.behave(dated)
        await memstream.say("ana", "s1", buried, occurred_at=AT)
        await memstream.settled(pipeline)
        of_buried, after = shown(model)
        stored = await chassis_of(memstream.apps["memory"]).database.fetch(
            "select event_date::text from entries where event_date is not null"
        )

    assert {f"/known/{topic}.md" for topic in topics} <= of_topics
    assert len(lines) == 40
    assert "/known/topic40.md" in of_buried
    assert [line.partition(" ")[0] for line in after] == [*(f"[{n}" for n in range(1, 6)), "[6]"]
    assert re.fullmatch(r"\[5 context\] \S+\+00:00 user: Today we talk about topic39", after[4])
    assert after[5].startswith("[6] 2026-03-10T23:30-08:00 user: and so on.")
    assert [row["event_date"] for row in stored] == ["2026-03-09"]
