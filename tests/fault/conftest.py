"""A cluster that the gentler tests of a worker share, a seed that is printed, and how long a test may take."""

import os
import random
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest

from tests.support.cluster import Cluster, cluster
from tests.support.ledger import Ledger
from tests.support.load import Load
from tests.support.servers import PostgresServer

SOAK = os.environ.get("SOAK") == "1"


@pytest.fixture
def is_soak() -> bool:
    """Whether the full length was asked for, with `make soak`."""
    return SOAK


@pytest.fixture
def seed() -> int:
    """Another one each time; `FAULT_SEED` repeats one."""
    chosen = int(os.environ.get("FAULT_SEED") or random.randrange(1_000_000))
    print(f"FAULT_SEED={chosen}")
    return chosen


class Shared:
    """One cluster for many tests. One that a test left unwell is replaced before the next."""

    def __init__(self, postgres: PostgresServer) -> None:
        self._postgres = postgres
        self._stack = AsyncExitStack()
        self._cluster: Cluster | None = None

    async def get(self) -> Cluster:
        if self._cluster is None:
            self._cluster = await self._stack.enter_async_context(cluster(self._postgres))
        return self._cluster

    async def drop(self) -> None:
        self._cluster = None
        await self._stack.aclose()


@pytest.fixture(scope="session")
async def shared(postgres: PostgresServer) -> AsyncIterator[Shared]:
    clusters = Shared(postgres)
    try:
        yield clusters
    finally:
        await clusters.drop()


@pytest.fixture
async def running(shared: Shared, request: pytest.FixtureRequest) -> AsyncIterator[Cluster]:
    """The shared cluster, ready and at rest."""
    cluster = await shared.get()
    failed_before = request.session.testsfailed
    yield cluster
    if request.session.testsfailed > failed_before:
        print(cluster.tail())
        await shared.drop()


@pytest.fixture
def ledger() -> Ledger:
    return Ledger()


@pytest.fixture
def load(running: Cluster, ledger: Ledger, seed: int) -> Load:
    """A load on the shared cluster, with sessions and actors of its own."""
    return Load(running, ledger, seed, name=f"load{seed}")
