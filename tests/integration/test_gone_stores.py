"""What is left of a deleted store goes in the background, unless a restore has brought the store back."""

from collections.abc import AsyncIterator
from typing import Any, cast
from uuid import UUID

import pytest

from libs.chassis.errors import Retry
from libs.contracts.ids import uuid7
from libs.contracts.requests import AuthorizeMemoryStore, AuthorizeSessionStore, AuthorizeStore, StoreAuthorization
from services.distiller import gone_stores
from services.distiller.access import Access
from services.distiller.gone_stores import GoneStores
from services.distiller.llm import Models
from services.distiller.store import erasures
from tests.support.distiller import DistillerStore, distiller_store
from tests.support.servers import PostgresServer


@pytest.fixture
async def store(postgres: PostgresServer) -> AsyncIterator[DistillerStore]:
    async with distiller_store(postgres) as opened:
        yield opened


class Owners:
    """The services that own the stores: of each question in turn, whether the store exists, or None for no answer."""

    def __init__(self, *exists: bool | None) -> None:
        self._exists = [*exists]
        self.asked: list[AuthorizeStore] = []

    async def ask(self, question: AuthorizeStore, *_: Any) -> StoreAuthorization:
        self.asked.append(question)
        exists = self._exists.pop(0)
        if exists is None:
            raise Retry("nobody answers")
        return StoreAuthorization(store_uid=question.store_uid) if exists else StoreAuthorization()


def purges(store: DistillerStore, owners: Owners) -> GoneStores:
    return GoneStores(store.erasures, Access(owners.ask, cast(Models, None)), store.unit_of_work)


async def forget(store: DistillerStore, store_uid: UUID) -> None:
    async with store.unit_of_work.begin() as tx:
        await store.erasures.forget_store(tx, store_uid)


async def actors(store: DistillerStore) -> set[str]:
    return {row["actor_id"] for row in await store.database.fetch("select actor_id from lanes")}


@pytest.mark.parametrize("kind", ["session", "memory"])
async def test_the_lanes_of_a_deleted_store_go_in_the_background(store: DistillerStore, kind: str) -> None:
    gone, other = await store.pipeline(), await store.pipeline()
    await store.lanes.mark([store.mark(gone, "ana", 1), store.mark(other, "bo", 1)])
    owners = Owners(False)
    await forget(store, gone.session_store_uid if kind == "session" else gone.memory_store_uid)

    await purges(store, owners).purge()
    await purges(store, owners).purge()

    assert await actors(store) == {"bo"}
    [asked] = owners.asked
    assert isinstance(asked, AuthorizeSessionStore if kind == "session" else AuthorizeMemoryStore)


@pytest.mark.parametrize(
    ("exists", "left"),
    [([True], 3), ([False, True], 2), ([False, None], 2), ([False, False, False, False], 0)],
    ids=["before it began", "while it was under way", "while nobody answers", "never"],
)
async def test_a_purge_takes_nothing_of_a_store_that_a_restore_has_brought_back(
    store: DistillerStore, monkeypatch: pytest.MonkeyPatch, exists: list[bool | None], left: int
) -> None:
    for module in (gone_stores, erasures):
        monkeypatch.setattr(module, "BATCH", 1)
    pipeline = await store.pipeline()
    await store.lanes.mark([store.mark(pipeline, actor, 1) for actor in ("ana", "bo", "cy")])
    await forget(store, pipeline.memory_store_uid)

    try:
        await purges(store, Owners(*exists)).purge()
    except Retry:
        assert None in exists

    assert len(await actors(store)) == left


@pytest.mark.parametrize("is_told_again", [False, True], ids=["told once", "told again"])
async def test_a_deletion_is_known_for_a_day_after_it_was_told(store: DistillerStore, is_told_again: bool) -> None:
    store_uid = uuid7()
    await forget(store, store_uid)
    await store.database.write("update gone_stores set created_at = created_at - interval '25 hours'")
    if is_told_again:
        await forget(store, store_uid)

    await purges(store, Owners()).purge()

    assert await store.database.fetchval("select count(*) from gone_stores") == is_told_again
