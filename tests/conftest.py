"""Servers for the whole suite; what belongs to one service is in `tests/support`."""

import os
from collections.abc import AsyncIterator

import pytest

from libs.chassis import logs
from tests.support.servers import NatsServer, PostgresServer, nats_server, postgres_server

SETTING_PREFIXES = ("MEMSTREAM_", "DATABASE_URL", "NATS_URL", "OPENAI_")
SETTINGS = {"MODEL", "MODELS_FILE", "HTTP_PORT", "KEY_DIR", "JWKS_URL", "LOG_LEVEL"}


def pytest_configure() -> None:
    """A developer's shell must not change what a test says."""
    for name in list(os.environ):
        if name.startswith(SETTING_PREFIXES) or name in SETTINGS:
            del os.environ[name]
    logs.configure("warning")


@pytest.fixture(scope="session")
async def postgres() -> AsyncIterator[PostgresServer]:
    async with postgres_server() as server:
        yield server


@pytest.fixture(scope="session")
async def nats() -> AsyncIterator[NatsServer]:
    async with nats_server() as server:
        yield server
