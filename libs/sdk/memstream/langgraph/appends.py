# Made by libs/sdk/generate.py from aio/langgraph/appends.py; change that one.
"""How a thread's items are appended: in one request as long as they fit."""

from __future__ import annotations

from collections.abc import Iterable

from memstream.fenced import Fenced
from memstream.langgraph.items import Data, Owned, Refs, absolute, appends
from memstream.records import NewItem
from memstream.sessions import Session


def store_checkpoint(
    session: Session | Fenced,
    items: Iterable[Owned],
    checkpoint: Data,
    refs: Refs,
    *,
    expected_position: int | None = None,
) -> Refs:
    """Appends the items and then the checkpoint, which refers to them besides `refs`; returns all it refers to."""
    *portions, last = appends(items)
    refs = {channel: list(positions) for channel, positions in refs.items()}
    for portion in portions:
        stored = session.append_items([each.new() for each in portion], expected_position=expected_position)
        expected_position = None
        for owned, item in zip(portion, stored, strict=True):
            if owned.channel is not None:
                refs.setdefault(owned.channel, []).append(item.position)
    for place, owned in enumerate(last):
        if owned.channel is not None:
            refs.setdefault(owned.channel, []).append(place - len(last))
    stored = session.append_items(
        [*(each.new() for each in last), NewItem({**checkpoint, "channels": refs})],
        expected_position=expected_position,
    )
    return absolute(refs, stored[-1].position)


def append(session: Session | Fenced, items: Iterable[Owned]) -> list[int]:
    """Their positions."""
    return [
        stored.position
        for portion in appends(items)
        if portion
        for stored in session.append_items([each.new() for each in portion])
    ]
