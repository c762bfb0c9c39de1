"""One running Memstream for each worker of the end-to-end tests; tests keep apart by the names of their stores."""

import uuid
from collections.abc import Iterator

import pytest

from memstream.client import AgentKitClient
from tests.support.standalone import StandaloneProcess, standalone_process


@pytest.fixture(scope="session")
def standalone() -> Iterator[StandaloneProcess]:
    with standalone_process() as process:
        yield process


@pytest.fixture(scope="session")
def client(standalone: StandaloneProcess) -> Iterator[AgentKitClient]:
    with standalone.client() as client:
        yield client


@pytest.fixture
def name() -> str:
    """A store name that no other test has."""
    return f"t-{uuid.uuid4().hex[:12]}"
