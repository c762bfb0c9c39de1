"""What a model is shown of the lines, the slots and the operator's words."""

from datetime import datetime
from typing import Any

from services.distiller.answer import AskedLine, KnownEntry
from services.distiller.prompts import messages


def asked(number: int, said_at: str, text: str, **more: Any) -> AskedLine:
    return AskedLine(
        number=number, role=more.pop("role", "user"), text=text, said_at=datetime.fromisoformat(said_at), **more
    )


def test_a_line_has_its_number_its_time_in_the_speakers_zone_and_who_said_it() -> None:
    lines = [
        asked(1, "2026-03-10T23:30:00-08:00", "Yesterday I passed.", context=True),
        asked(2, "2026-03-11T07:31:59+00:00", "Well done!", role="assistant"),
        asked(3, "2026-03-11T13:02:00+05:30", "Thank you"),
    ]

    _, user = messages(lines, [], None)

    assert user["content"].partition("Lines:\n")[2].splitlines() == [
        "[1 context] 2026-03-10T23:30-08:00 user: Yesterday I passed.",
        "[2] 2026-03-11T07:31+00:00 assistant: Well done!",
        "[3] 2026-03-11T13:02+05:30 user: Thank you",
    ]


def test_what_the_operator_wants_stands_before_the_slots_and_those_before_the_lines() -> None:
    known = [KnownEntry(path="/home/city.md", statement="Lives in Porto", kind="state")]
    line = asked(1, "2026-03-11T07:31:00+00:00", "I moved")

    system, user = messages([line], known, "Keep places.")
    _, without = messages([line], [], None)

    assert (system["role"], user["role"]) == ("system", "user")
    parts = (
        "Instructions of the operator:\nKeep places.",
        "Known slots:\n/home/city.md (state): Lives in Porto",
        "Lines:",
    )
    places = [user["content"].index(part) for part in parts]
    assert places == sorted(places)
    assert "Instructions" not in without["content"]
    assert "Known slots:\n(none)" in without["content"]
