"""A client of the worker's Memstream; tests keep apart by the names of their stores."""

import uuid
from collections.abc import Iterator

import pytest

from memstream.client import AgentKitClient
from tests.support.standalone import StandaloneProcess


@pytest.fixture(scope="session")
def client(standalone: StandaloneProcess) -> Iterator[AgentKitClient]:
    with standalone.client() as client:
        yield client


@pytest.fixture
def name() -> str:
    """A store name that no other test has."""
    return f"t-{uuid.uuid4().hex[:12]}"
