# Made by libs/sdk/generate.py from aio/langgraph/upkeep.py; change that one.
"""Deleting, copying and thinning out threads. A session's items are never changed: what stays is appended anew."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from datetime import datetime
from typing import Any

from langgraph.checkpoint.serde.base import SerializerProtocol

from memstream.errors import NotFound
from memstream.langgraph.addresses import NAMESPACE_KEY, metadata_of, session_id_of, sessions_filter
from memstream.langgraph.appends import append, store_checkpoint
from memstream.langgraph.items import Data, Found, Owned, Refs, absolute, is_checkpoint, located, unpacked
from memstream.langgraph.tails import PAGE_ITEMS, Tail
from memstream.records import SessionItem
from memstream.sessions import Session, SessionStore


class Upkeep:
    """`forget` is told the ids of sessions that are not what they were."""

    def __init__(self, store: Callable[[], SessionStore], forget: Callable[[str], Any]) -> None:
        self._store = store
        self._forget = forget

    def delete(self, thread_id: str) -> None:
        store = self._store()
        for session in store.list(filter=sessions_filter(thread_id)):
            self._delete(session)

    def copy(self, source_id: str, target_id: str) -> None:
        """Raises `AlreadyExists` where the target is a thread already."""
        store = self._store()
        for session in store.list(filter=sessions_filter(source_id)):
            namespace = session.metadata.get(NAMESPACE_KEY, "")
            session.fork(
                actor_id=target_id if session.actor_id == source_id else session.actor_id,
                session_id=session_id_of(target_id, namespace),
                metadata=metadata_of(target_id, namespace),
            )

    def delete_for_runs(self, serde: SerializerProtocol, run_ids: Collection[str]) -> None:
        """Reads every thread of the store: which run wrote a checkpoint is known to the checkpoint alone."""
        store = self._store()
        for session in store.list(filter=sessions_filter(None)):
            tail = Tail(session, PAGE_ITEMS)
            kept = [
                (position, data)
                for position, data in tail.backwards()
                if is_checkpoint(data) and unpacked(serde, data["metadata"]).get("run_id") not in run_ids
            ]
            self._keep(serde, session, tail, kept)

    def keep_latest(self, serde: SerializerProtocol, thread_id: str) -> None:
        """Of each namespace the newest checkpoint, with the older ones that its delta channels are made of."""
        store = self._store()
        for session in store.list(filter=sessions_filter(thread_id)):
            tail = Tail(session, PAGE_ITEMS)
            kept: list[tuple[int, Data]] = []
            cursor: str | None = None
            open_channels: set[str] = set()
            for position, data in tail.backwards():
                if not is_checkpoint(data, cursor) or (kept and not open_channels):
                    continue
                if not kept:
                    counters = unpacked(serde, data["metadata"]).get("counters_since_delta_snapshot")
                    open_channels = set(counters or ())
                kept.append((position, data))
                open_channels -= {channel for channel, refs in data["channels"].items() if refs}
                cursor = data["parent_checkpoint_id"]
                if cursor is None:
                    open_channels = set()
            self._keep(serde, session, tail, kept)

    def _keep(self, serde: SerializerProtocol, session: Session, tail: Tail, kept: Iterable[tuple[int, Data]]) -> None:
        """Leaves these checkpoints, their writes and the messages: appends them anew, then clears what stands before.

        Raises `Aborted`, with nothing lost, when somebody else appended meanwhile.
        """
        tail.read_until(lambda: False)
        found = tail.found
        wanted = sorted(kept)
        if len(wanted) == sum(map(is_checkpoint, found.items.values())):
            return
        if not wanted:
            self._delete(session)
            return
        last = max(found.items)
        expected: int | None = last
        items = [Owned(each.data, occurred_at=said_at) for each, said_at in _own_messages(session, found)]
        placed: dict[tuple[str, Any], list[int]] = {}
        for position, data in wanted:
            versions = unpacked(serde, data["checkpoint_data"])["channel_versions"]
            refs: Refs = {}
            for channel, positions in absolute(data["channels"], position).items():
                refs[channel] = placed.get((channel, versions[channel]), [])
                if positions and not refs[channel]:
                    places = located(found.locate(channel, versions[channel], positions), channel)
                    items += [Owned(found.items[place], channel) for place in places]
            again = {name: value for name, value in data.items() if name != "early_writes"}
            refs = store_checkpoint(session, items, again, refs, expected_position=expected)
            placed |= {(channel, versions[channel]): positions for channel, positions in refs.items()}
            writes = sorted(found.writes.get(data["checkpoint_id"], ()))
            append(session, [Owned(found.items[each]) for place in writes for each in found.with_parts(place)])
            items, expected = [], None
        session.clear_items(through=last)
        self._forget(session.session_id)

    def _delete(self, session: Session) -> None:
        self._forget(session.session_id)
        with suppress(NotFound):
            session.delete(force=True)


def _own_messages(session: Session, found: Found) -> list[tuple[SessionItem, datetime | str | None]]:
    """The messages and when they were said, without those that a copied thread brought along."""
    messages = [item for _, item in sorted(found.messages.items())]
    made = session.create_time
    return [
        (item, item.occurred_at or item.create_time)
        for item in messages
        if not (session.forked_from_session_id and made and item.create_time and item.create_time < made)
    ]
