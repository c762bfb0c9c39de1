"""The judge of the fault tests must find what it is there to find."""

from dataclasses import dataclass, field

from tests.support.ledger import Append, Distilled, Fact, FaultKind, Ledger, Line, StoredEntry, StoredItem


@dataclass
class World:
    """Two appends of three items in one session, and services that show exactly that; tests spoil it."""

    ledger: Ledger = field(default_factory=Ledger)
    appends: list[Append] = field(default_factory=list)
    items: list[StoredItem] = field(default_factory=list)
    entries: list[StoredEntry] = field(default_factory=list)
    distilled: list[Distilled] = field(default_factory=list)
    left: dict[str, int] = field(default_factory=lambda: {"session: outbox": 0})

    def __post_init__(self) -> None:
        for words in (("kiwi", "plum"), ("fig",)):
            lines = [line(word) for word in words]
            first = len(self.items) + 1
            append = self.ledger.begin("s1", "ana", lines, key=words[0])
            append.tries += 1
            self.ledger.acknowledge(append, range(first, first + len(lines)))
            self.appends.append(append)
            self.items += [StoredItem(first + n, each.data) for n, each in enumerate(lines)]
            self.entries += [entry(word, first + n) for n, word in enumerate(words)]
        self.distilled = [Distilled("s1", 0, 2), Distilled("s1", 2, 3)]

    def faults(self) -> set[FaultKind]:
        stored = {"s1": self.items}
        return {
            fault.kind
            for fault in (
                *self.ledger.items(stored),
                *self.ledger.facts(stored, {"ana": self.entries}),
                *self.ledger.batches(stored, self.distilled),
                *self.ledger.rest(self.left),
            )
        }

    def put(self, *data: str) -> None:
        """The session's items are these, from position 1."""
        self.items = [StoredItem(position, each) for position, each in enumerate(data, start=1)]


def line(word: str) -> Line:
    return Line(f'{{"role":"user","content":"I like {word}."}}', Fact(f"/likes/{word}.md", f"I like {word}."))


def entry(word: str, position: int) -> StoredEntry:
    return StoredEntry(f"/likes/{word}.md", f"I like {word}.", 1, (("s1", (position,)),))


def test_what_is_right_has_no_fault() -> None:
    assert World().faults() == set()


def test_a_lost_item_is_found() -> None:
    world = World()
    world.items.pop()

    assert "lost" in world.faults()


def test_a_lost_session_is_found() -> None:
    world = World()

    assert "lost" in {fault.kind for fault in world.ledger.items({})}


def test_half_of_an_append_is_found_whatever_the_client_was_told() -> None:
    world = World()
    torn = world.ledger.begin("s1", "ana", [line("pear"), line("lime")])
    world.items.append(StoredItem(4, torn.lines[0].data))

    assert "lost" in world.faults()


def test_a_doubled_item_is_found() -> None:
    world = World()
    world.items.append(StoredItem(4, world.items[0].data))

    assert "doubled" in world.faults()


def test_a_refused_item_that_is_stored_is_found() -> None:
    world = World()
    refused = world.ledger.begin("s1", "ana", [Line("{}")])
    refused.tries += 1
    world.ledger.refuse(refused)
    world.items.append(StoredItem(4, "{}"))

    assert "doubled" in world.faults()


def test_an_item_whose_answer_was_lost_may_be_there_or_not() -> None:
    for is_there in (False, True):
        world = World()
        world.ledger.begin("s1", "ana", [Line("{}")])
        if is_there:
            world.items.append(StoredItem(4, "{}"))
            world.distilled.append(Distilled("s1", 3, 4))

        assert world.faults() == set()


def test_a_changed_byte_is_found() -> None:
    world = World()
    world.items[1] = StoredItem(2, world.items[1].data.replace("plum", "plUm"))

    assert {"changed", "lost"} <= world.faults()


def test_a_swap_inside_an_append_is_found() -> None:
    world = World()
    kiwi, plum, fig = (item.data for item in world.items)
    world.put(plum, kiwi, fig)

    assert "order" in world.faults()


def test_an_append_that_overtook_an_acknowledged_one_is_found() -> None:
    world = World()
    kiwi, plum, fig = (item.data for item in world.items)
    world.put(fig, kiwi, plum)

    assert {"order", "position"} <= world.faults()


def test_appends_at_the_same_time_may_come_in_either_order() -> None:
    for order in ((0, 1), (1, 0)):
        ledger = Ledger()
        appends = [ledger.begin("s1", "ana", [line(word)]) for word in ("kiwi", "plum")]
        for position, index in enumerate(order, start=1):
            ledger.acknowledge(appends[index], [position])

        stored = [StoredItem(position, appends[index].lines[0].data) for position, index in enumerate(order, start=1)]

        assert ledger.items({"s1": stored}) == []


def test_a_gap_in_the_positions_is_found() -> None:
    world = World()
    world.items[2] = StoredItem(4, world.items[2].data)

    assert "position" in world.faults()


def test_two_different_answers_to_one_key_are_found() -> None:
    world = World()
    world.ledger.acknowledge(world.appends[1], [4])

    assert "position" in world.faults()


def test_a_lost_fact_is_found() -> None:
    world = World()
    world.entries.pop()

    assert "fact lost" in world.faults()


def test_a_doubled_fact_is_found() -> None:
    world = World()
    world.entries.append(world.entries[0])

    assert "fact doubled" in world.faults()


def test_a_fact_that_was_written_twice_is_found() -> None:
    world = World()
    world.entries[0] = StoredEntry("/likes/kiwi.md", "I like kiwi.", 2, (("s1", (1,)),))

    assert "fact doubled" in world.faults()


def test_doubled_evidence_is_found() -> None:
    world = World()
    world.entries[0] = StoredEntry("/likes/kiwi.md", "I like kiwi.", 1, (("s1", (1,)), ("s1", (1,))))

    assert "fact doubled" in world.faults()


def test_evidence_at_the_wrong_place_is_found() -> None:
    world = World()
    world.entries[0] = entry("kiwi", 3)

    assert "fact wrong" in world.faults()


def test_another_statement_is_found() -> None:
    world = World()
    world.entries[0] = StoredEntry("/likes/kiwi.md", "I hate kiwi.", 1, (("s1", (1,)),))

    assert "fact wrong" in world.faults()


def test_a_fact_that_nobody_stated_is_found() -> None:
    world = World()
    world.entries.append(entry("melon", 9))

    assert "fact wrong" in world.faults()


def test_a_position_that_no_batch_covers_is_found() -> None:
    world = World()
    world.distilled.pop()

    assert "fact lost" in world.faults()


def test_a_position_in_two_batches_is_found() -> None:
    world = World()
    world.distilled.append(Distilled("s1", 1, 3))

    assert "fact doubled" in world.faults()


def test_what_is_left_at_rest_is_found() -> None:
    world = World()
    world.left["memory: outbox"] = 1

    assert "left" in world.faults()
