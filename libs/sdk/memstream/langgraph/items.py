"""How a thread is kept as the items of a session. Every item of ours has an `event_type`:

channel_data  {channel, version, value}                     a channel's value, written once for each version
checkpoint    {checkpoint_id, parent_checkpoint_id, checkpoint_data, metadata, channels, early_writes?}
writes        {checkpoint_id, writes: [{task_id, task_path, idx, channel, value}]}
part          {value_id, index, data}                       a piece of a value that is too large for one item

A value is {type, data} as the serializer gives it, data in base64, or {type, value_id, parts}. A checkpoint's
`channels` says at which positions each channel's value stands, also those it shares with older checkpoints, so that
reading it takes these items alone. A number below 1 counts from the checkpoint's own position: what is appended
together does not know its positions yet. No positions: the channel is empty. `early_writes` are the positions of writes
that were stored before their checkpoint was.
"""

from __future__ import annotations

import base64
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from langgraph.checkpoint.base import WRITES_IDX_MAP, writes_sort_key
from langgraph.checkpoint.serde.base import SerializerProtocol

from memstream.errors import MemstreamError
from memstream.records import NewItem, SessionItem
from memstream.values import dumps

CHECKPOINT, CHANNEL, WRITES, PART = "checkpoint", "channel_data", "writes", "part"
PART_BYTES = 1024 * 1024
APPEND_BYTES = 11 * 1024 * 1024  # of the 16 MiB that a request may have; a checkpoint of up to 4 MiB joins the last
APPEND_ITEMS = 990

Data = dict[str, Any]
Refs = dict[str, list[int]]


@dataclass(frozen=True)
class Owned:
    """An item to append, and the channel whose value it holds or is a part of."""

    data: Any
    channel: str | None = None
    occurred_at: datetime | str | None = None

    @property
    def bytes(self) -> int:
        return PART_BYTES * 4 // 3 if kind_of(self.data) == PART else len(dumps(self.data))

    def new(self) -> NewItem:
        return NewItem(self.data, self.occurred_at)


@dataclass
class Found:
    """What has been read of a thread, by position; and where the values and their pieces stand."""

    items: dict[int, Any] = field(default_factory=dict)
    messages: dict[int, SessionItem] = field(default_factory=dict)
    parts: dict[str, dict[int, int]] = field(default_factory=dict)
    channels: dict[tuple[str, Any], int] = field(default_factory=dict)
    writes: dict[str, set[int]] = field(default_factory=dict)

    def add(self, item: SessionItem) -> None:
        position, data = item.position, item.data
        self.items[position] = data
        match kind_of(data):
            case None:
                self.messages[position] = item
            case "part":
                self.parts.setdefault(data["value_id"], {})[data["index"]] = position
            case "channel_data":
                self.channels.setdefault((data["channel"], data["version"]), position)
            case "writes":
                self.writes.setdefault(data["checkpoint_id"], set()).add(position)

    def locate(self, channel: str, version: Any, positions: Sequence[int]) -> list[int] | None:
        """Where the value stands, its parts first: as referred to, or, where numbers have changed, by its version."""
        place: int | None = positions[-1]
        if not _is_value_of(self.items.get(positions[-1]), channel, version):
            place = self.channels.get((channel, version))
        return None if place is None or not self._is_whole(place) else self.with_parts(place)

    def has_writes(self, checkpoint_id: str, positions: Iterable[int]) -> bool:
        """Whether what was referred to as early writes stands there, and all writes are whole."""
        for position in positions:
            is_part = kind_of(self.items.get(position)) == PART
            if not is_part and position not in self.writes.get(checkpoint_id, ()):
                return False
        return all(map(self._is_whole, self.writes.get(checkpoint_id, ())))

    def with_parts(self, position: int) -> list[int]:
        """The positions of what an item's values are cut into, in order, and its own."""
        cut = [self.parts[value["value_id"]] for value in _values(self.items[position]) if "data" not in value]
        return [*(parts[index] for parts in cut for index in sorted(parts)), position]

    def loaded(self, serde: SerializerProtocol, value: Mapping[str, Any]) -> Any:
        if "data" in value:
            return unpacked(serde, value)
        parts = [self.items[place] for _, place in sorted(self.parts[value["value_id"]].items())]
        return serde.loads_typed((value["type"], b"".join(base64.b64decode(part["data"]) for part in parts)))

    def pending_writes(self, serde: SerializerProtocol, checkpoint_id: str) -> list[tuple[str, str, Any]]:
        """In the order in which a step applies them. A repeated ordinary write counts as first stored, a special one
        (an error, an interrupt, a resumption) as last stored."""
        merged: dict[tuple[str, int], Data] = {}
        for position in sorted(self.writes.get(checkpoint_id, ())):
            for write in self.items[position]["writes"]:
                key = (write["task_id"], write["idx"])
                if key[1] < 0 or key not in merged:
                    merged[key] = write
        ordered = sorted(merged.values(), key=lambda w: writes_sort_key(w["task_path"], w["task_id"], w["idx"]))
        return [(write["task_id"], write["channel"], self.loaded(serde, write["value"])) for write in ordered]

    def _is_whole(self, position: int) -> bool:
        return all(
            "data" in value or len(self.parts.get(value["value_id"], ())) == value["parts"]
            for value in _values(self.items[position])
        )


def kind_of(data: Any) -> str | None:
    return data.get("event_type") if isinstance(data, dict) else None


def is_checkpoint(data: Any, checkpoint_id: str | None = None) -> bool:
    """Whether it is that checkpoint, or any."""
    return kind_of(data) == CHECKPOINT and checkpoint_id in (None, data["checkpoint_id"])


def channel_items(serde: SerializerProtocol, channel: str, version: Any, value: Any) -> list[Owned]:
    """The items of a channel's value, its parts first."""
    packed, parts = _packed(serde, value)
    item = {"event_type": CHANNEL, "channel": channel, "version": version, "value": packed}
    return [Owned(data, channel) for data in (*parts, item)]


def writes_items(
    serde: SerializerProtocol, checkpoint_id: str, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str
) -> list[Owned]:
    """The items of a task's writes: their parts, then one that lists them; several where one would be too large."""
    items: list[Owned] = []
    listed: list[Data] = []
    size = 0
    for place, (channel, value) in enumerate(writes):
        packed, parts = _packed(serde, value)
        items += map(Owned, parts)
        size += len(packed.get("data", ""))
        if size > PART_BYTES * 2:
            items.append(_listed(checkpoint_id, listed))
            listed, size = [], len(packed.get("data", ""))
        listed.append(
            {
                "task_id": task_id,
                "task_path": task_path,
                "idx": WRITES_IDX_MAP.get(channel, place),
                "channel": channel,
                "value": packed,
            }
        )
    return [*items, _listed(checkpoint_id, listed)]


def checkpoint_item(
    serde: SerializerProtocol, checkpoint: Mapping[str, Any], metadata: Mapping[str, Any], parent_id: str | None
) -> Data:
    """Without `channels`, which are known when it is appended."""
    kept = {name: value for name, value in checkpoint.items() if name != "channel_values"}
    return {
        "event_type": CHECKPOINT,
        "checkpoint_id": checkpoint["id"],
        "parent_checkpoint_id": parent_id,
        "checkpoint_data": _inline(serde, kept),
        "metadata": _inline(serde, metadata),
    }


def located(positions: list[int] | None, channel: str) -> list[int]:
    """Raises `MemstreamError` for what is nowhere."""
    if positions is None:
        raise MemstreamError(
            f"the value of channel '{channel}' is gone", hint="were items of its session popped or cleared?"
        )
    return positions


def absolute(refs: Refs, position: int) -> Refs:
    """What a checkpoint that stands at `position` refers to."""
    return {channel: [ref if ref > 0 else position + ref for ref in numbers] for channel, numbers in refs.items()}


def appends(items: Iterable[Owned]) -> Iterator[list[Owned]]:
    """The items in portions, each fit for one append; at least one portion, which may be empty."""
    portion: list[Owned] = []
    size = 0
    for item in items:
        size += item.bytes
        if portion and (size > APPEND_BYTES or len(portion) == APPEND_ITEMS):
            yield portion
            portion, size = [], item.bytes
        portion.append(item)
    yield portion


def unpacked(serde: SerializerProtocol, value: Mapping[str, Any]) -> Any:
    """A value that is not cut."""
    return serde.loads_typed((value["type"], base64.b64decode(value["data"])))


def _is_value_of(data: Any, channel: str, version: Any) -> bool:
    return kind_of(data) == CHANNEL and (data["channel"], data["version"]) == (channel, version)


def _values(data: Data) -> list[Data]:
    return [write["value"] for write in data["writes"]] if kind_of(data) == WRITES else [data["value"]]


def _listed(checkpoint_id: str, writes: list[Data]) -> Owned:
    return Owned({"event_type": WRITES, "checkpoint_id": checkpoint_id, "writes": writes})


def _inline(serde: SerializerProtocol, value: Any) -> Data:
    kind, raw = serde.dumps_typed(value)
    return {"type": kind, "data": base64.b64encode(raw).decode()}


def _packed(serde: SerializerProtocol, value: Any) -> tuple[Data, list[Data]]:
    """The value, and the items that hold it in pieces if it is too large."""
    kind, raw = serde.dumps_typed(value)
    if len(raw) <= PART_BYTES:
        return {"type": kind, "data": base64.b64encode(raw).decode()}, []
    value_id = uuid.uuid4().hex
    pieces = [raw[start : start + PART_BYTES] for start in range(0, len(raw), PART_BYTES)]
    parts = [
        {"event_type": PART, "value_id": value_id, "index": index, "data": base64.b64encode(piece).decode()}
        for index, piece in enumerate(pieces)
    ]
    return {"type": kind, "value_id": value_id, "parts": len(parts)}, parts
