"""What several files need, in one place. A file's own fixture of the same name goes first."""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest

from tests.support.memory import Distiller, Memory, memory_service
from tests.support.scripted_model import ScriptedModel, scripted_model
from tests.support.servers import NatsServer, PostgresServer
from tests.support.service import Keys
from tests.support.system import Open, System, system


@pytest.fixture(scope="module")
async def refusing(postgres: PostgresServer, keys: Keys) -> AsyncIterator[Memory]:
    """One service for all that a module's tests see refused: it leaves nothing behind."""
    async with memory_service(postgres, keys) as memory:
        yield memory


@pytest.fixture
async def distiller(memory: Memory) -> Distiller:
    return await Distiller.of(memory)


@pytest.fixture
async def model() -> AsyncIterator[ScriptedModel]:
    async with scripted_model() as served:
        yield served


@pytest.fixture
def opened(postgres: PostgresServer, nats: NatsServer, model: ScriptedModel) -> Open:
    def opens(**settings: Any) -> AbstractAsyncContextManager[System]:
        return system(postgres, nats, models=model.models(), distiller_settings=settings)

    return opens


@pytest.fixture
async def memstream(postgres: PostgresServer, nats: NatsServer) -> AsyncIterator[System]:
    async with system(postgres, nats) as running:
        yield running
