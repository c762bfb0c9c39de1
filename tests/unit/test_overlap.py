"""Which entries a model is asked about together."""

from datetime import UTC, datetime
from itertools import chain, product

import pytest

from libs.contracts.requests import StoredEntry
from services.distiller.consolidation.overlap import GROUP_ENTRIES, REACH, fingerprint, groups_of, looked_at
from services.memory.domain import Value
from services.memory.indexing import Indexing
from services.memory.ranking import FieldWeights

INDEXING = Indexing("english", FieldWeights())


def entry(path: str, statement: str, version: int = 1) -> StoredEntry:
    terms, _ = INDEXING.terms_now(path, Value(statement, None, "item", "user"), "english")
    return StoredEntry(
        entry_id=path,
        path=path,
        version=version,
        statement=statement,
        kind="item",
        said_by="user",
        last_said_at=datetime(2026, 1, 1, tzinfo=UTC),
        terms=sorted(terms),
    )


def paths(groups: list[list[StoredEntry]]) -> list[list[str]]:
    return [[each.path for each in group] for group in groups]


def test_restatements_in_other_words_meet_and_what_shares_only_common_words_does_not() -> None:
    entries = [
        entry("/drinks/coffee.md", "Drinks coffee without milk"),
        entry("/preferences/black-coffee.md", "Takes the coffee black"),
        entry("/family/sister.md", "Has a sister, Lena, in Lyon"),
        entry("/pets/dog.md", "Walks a dog called Rex"),
        *(entry(f"/notes/town-{n}.md", f"Has lived in town{n}") for n in range(60)),
    ]

    assert paths(groups_of(entries)) == [["/drinks/coffee.md", "/preferences/black-coffee.md"]]


def test_a_group_is_never_larger_than_a_model_can_compare() -> None:
    entries = [entry(f"/tea/guest{n}.md", f"Drinks oolong with guest{n}") for n in range(20)]
    entries += [entry(f"/notes/thing{n}.md", f"Something about thing{n}") for n in range(100)]

    groups = groups_of(entries)

    assert [len(group) for group in groups if group[0].path.startswith("/tea")] in ([8, 8, 4], [8, 4, 8], [4, 8, 8])
    assert max(map(len, groups)) == GROUP_ENTRIES


FIRST, MIDDLE, LAST = (
    names.split()
    for names in (
        "ada bela caro dario elif femi goran hana ivo jonas kaya lior mina nuno oana pavel rosa sami tove uma",
        "lee kim joy ray max sol",
        "abbot brandt castro dumas evans fontana garcia hubert ivanov jansen keller lopez moreau novak olsen petit"
        " quint rossi stein tanaka ueda vogel weber yilmaz zimmer",
    )
)
TRADES = ["beekeeper", "baker", "carpenter", "dentist", "electrician"]


@pytest.mark.parametrize("middles", [["lee"], MIDDLE], ids=["500 facts", "3000 facts"])
def test_a_restatement_meets_its_fact_in_a_memory_of_any_size(middles: list[str]) -> None:
    """With 3,000 facts each word of a name is in a hundred of them: only all of a name tells a person."""
    people = [" ".join(name) for name in product(FIRST, middles, LAST)]
    entries = []
    for number, person in enumerate(people):
        trade = TRADES[number % len(TRADES)]
        entries.append(entry(f"/facts/n{number}.md", f"{person} is my {trade}"))
        if number % 10 == 0:
            entries.append(entry(f"/again/n{number}.md", f"As a {trade} I always go to {person}, nobody else"))

    shown = paths(groups_of(entries))

    apart = [
        n for n in range(0, len(people), 10) if not any({f"/facts/n{n}.md", f"/again/n{n}.md"} <= {*g} for g in shown)
    ]
    assert apart == []
    assert len({*chain(*shown)}) == len([*chain(*shown)]), "each in one group"


def test_where_every_entry_has_the_same_words_each_meets_those_beside_it() -> None:
    same = entry("/tea.md", "Always drinks oolong before going home by tram")
    names = [f"/{number}.md" for number in range(REACH + 200)]
    entries = [same.model_copy(update={"entry_id": name, "path": name}) for name in names]

    shown = {*chain(*paths(groups_of(entries)))}

    assert len(shown) > 0.9 * len(entries)


@pytest.mark.parametrize("one", [0, 1, 2000, 3998, 3999])
def test_an_entry_is_compared_with_no_more_than_its_reach_wherever_it_stands(one: int) -> None:
    everybody = range(4000)
    rare = sorted({one, 7, 3000})

    seen = dict(looked_at(one, [("rare", rare), *((f"common{n}", everybody) for n in range(7))], reach=1000))

    assert sum(map(len, seen.values())) <= 1000
    assert seen.pop("rare") == rare
    assert all(one in near and len(near) >= 142 for near in seen.values())


def test_an_entry_without_words_overlaps_nothing() -> None:
    bare = [entry(f"/{mark}.md", mark) for mark in ("!!!", "👍", "…")]
    assert not any(each.terms for each in bare)
    coffee = [entry("/drinks/coffee.md", "Drinks coffee"), entry("/likes/coffee.md", "Drinks coffee black")]

    assert paths(groups_of([*bare, *coffee])) == [["/drinks/coffee.md", "/likes/coffee.md"]]


def test_an_entry_too_long_for_a_statement_stands_alone() -> None:
    long = entry("/profile.md", "Drinks coffee. " * 100)

    assert paths(groups_of([long, entry("/drinks/coffee.md", "Drinks coffee")])) == [["/profile.md"]]


def test_another_version_of_an_entry_makes_another_group_and_the_order_none() -> None:
    one, other = entry("/a/b.md", "x"), entry("/a/c.md", "x")

    assert fingerprint([one, other]) == fingerprint([other, one])
    assert fingerprint([one, other]) != fingerprint([one, entry("/a/c.md", "x", version=2)])
