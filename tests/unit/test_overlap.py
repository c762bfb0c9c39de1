"""Which entries a model is asked about together."""

from datetime import UTC, datetime

import pytest

from libs.contracts.requests import StoredEntry
from services.distiller.consolidation import overlap
from services.distiller.consolidation.overlap import GROUP_ENTRIES, fingerprint, groups_of
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


def test_a_crowded_memory_compares_no_more_than_so_many_pairs_the_rarest_words_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    entries = [entry(f"/tea/guest{n}.md", f"Drinks oolong with guest{n}") for n in range(3)]
    entries += [entry("/a/one.md", "Keeps a zebra"), entry("/b/two.md", "Owns that zebra")]
    entries += [entry(f"/notes/thing{n}.md", f"Something about thing{n}") for n in range(100)]
    every = paths(groups_of(entries))

    monkeypatch.setattr(overlap, "PAIRS", 1)

    assert every == [[f"/tea/guest{n}.md" for n in range(3)], ["/a/one.md", "/b/two.md"]]
    assert paths(groups_of(entries)) == [["/a/one.md", "/b/two.md"]]


def test_an_entry_too_long_for_a_statement_stands_alone() -> None:
    long = entry("/profile.md", "Drinks coffee. " * 100)

    assert paths(groups_of([long, entry("/drinks/coffee.md", "Drinks coffee")])) == [["/profile.md"]]


def test_another_version_of_an_entry_makes_another_group_and_the_order_none() -> None:
    one, other = entry("/a/b.md", "x"), entry("/a/c.md", "x")

    assert fingerprint([one, other]) == fingerprint([other, one])
    assert fingerprint([one, other]) != fingerprint([one, entry("/a/c.md", "x", version=2)])
