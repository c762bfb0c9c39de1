"""Servers for the whole suite, and what tests of several folders need of a service."""

import gc
import os
import sys
from collections.abc import AsyncIterator, Iterator
from functools import cache

import httpx
import pytest

from libs.chassis import app, logs
from tests.support.memory import Memory, memory_service
from tests.support.servers import NatsServer, PostgresServer, nats_server, postgres_server
from tests.support.service import Keys, key_directory
from tests.support.standalone import StandaloneProcess, standalone_process

SETTING_PREFIXES = ("MEMSTREAM_", "DATABASE_URL", "NATS_URL", "OPENAI_")
SETTINGS = {"MODEL", "MODELS_FILE", "HTTP_PORT", "KEY_DIR", "JWKS_URL", "LOG_LEVEL"}

# A stop that a library swallowed is said again sooner than in production.
CANCEL_AGAIN_S = 2.0


def pytest_configure() -> None:
    """A developer's shell must not change what a test says."""
    for name in list(os.environ):
        if name.startswith(SETTING_PREFIXES) or name in SETTINGS:
            del os.environ[name]
    # Workers, and the hundred programs that tests start, would compile thousands of modules each time.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.dont_write_bytecode = False
    logs.configure("warning")
    app.CANCEL_AGAIN_S = CANCEL_AGAIN_S
    gc.disable()  # until all are collected: what that imports stays


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Faults first: they wait more than they work, so that the other worker's tests have the processors."""
    items.sort(key=lambda item: not item.nodeid.startswith("tests/fault/"))


def pytest_collection_finish() -> None:
    """What is imported by now stays: no collection of garbage need look at it again."""
    gc.collect()
    gc.freeze()
    gc.enable()


@pytest.fixture(scope="session", autouse=True)
def certificates() -> Iterator[None]:
    """Read once: that takes 20 ms or more, and every service and every client of a test would do it again."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("httpx._transports.default.create_ssl_context", cache(httpx.create_ssl_context))
        yield


@pytest.fixture(scope="session")
async def postgres() -> AsyncIterator[PostgresServer]:
    async with postgres_server() as server:
        yield server


@pytest.fixture(scope="session")
async def nats() -> AsyncIterator[NatsServer]:
    async with nats_server() as server:
        yield server


@pytest.fixture(scope="module")
def keys() -> Iterator[Keys]:
    with key_directory() as keys:
        yield keys


@pytest.fixture
async def memory(postgres: PostgresServer, keys: Keys) -> AsyncIterator[Memory]:
    async with memory_service(postgres, keys) as memory:
        yield memory


@pytest.fixture(scope="session")
def standalone() -> Iterator[StandaloneProcess]:
    """One running Memstream for each worker; its tests keep apart by the names of their stores."""
    with standalone_process() as process:
        yield process
