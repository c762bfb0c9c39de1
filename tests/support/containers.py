"""`make test-containers`: the integration suite on servers in containers, then the end-to-end test on compose."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import asyncpg
import uvloop
from testcontainers.core.config import testcontainers_config
from testcontainers.core.container import DockerContainer

from tests.support.compose import missing

POSTGRES = "pgvector/pgvector:pg17"
NATS = "nats:2-alpine"
READY_DEADLINE_S = 120.0
ENGINE = {"timeout": 600}  # an engine that copies whole images takes minutes to make a container
# One worker: all tests share the streams of one NATS.
SUITES = (["tests/integration"], ["tests/e2e/test_compose.py"])


def main() -> int:
    """The exit status: 0 when all passed, or when there is no Docker."""
    if reason := missing():
        print(f"test-containers skipped: {reason}")
        return 0
    with _servers() as servers:
        environment = {**os.environ, **servers, "TEST_CONTAINERS": "1"}
        statuses = [
            subprocess.run([sys.executable, "-m", "pytest", "-p", "no:xdist", *suite], env=environment).returncode
            for suite in SUITES
        ]
    return max(statuses)


@contextmanager
def _servers() -> Iterator[dict[str, str]]:
    # Its reaper is one more image to pull; `finally` stops ours.
    testcontainers_config.ryuk_disabled = True
    postgres = (
        DockerContainer(POSTGRES, docker_client_kw=ENGINE)
        .with_env("POSTGRES_PASSWORD", "test")
        .with_command("postgres -c fsync=off -c max_connections=200")
        .with_exposed_ports(5432)
    )
    nats = DockerContainer(NATS, docker_client_kw=ENGINE).with_command("--jetstream").with_exposed_ports(4222)
    with postgres, nats:
        host, port = postgres.get_container_host_ip(), postgres.get_exposed_port(5432)
        url = f"postgresql://postgres:test@{host}:{port}/postgres"
        uvloop.run(_answers(url))
        yield {
            "TEST_POSTGRES_URL": url,
            "TEST_NATS_URL": f"nats://{nats.get_container_host_ip()}:{nats.get_exposed_port(4222)}",
        }


async def _answers(url: str) -> None:
    deadline = time.monotonic() + READY_DEADLINE_S
    while True:
        try:
            await (await asyncpg.connect(url, timeout=5)).close()
            return
        except (OSError, asyncpg.PostgresError):
            if time.monotonic() > deadline:
                raise
            time.sleep(0.5)  # noqa: ASYNC251 - nothing else runs in this loop


if __name__ == "__main__":
    sys.exit(main())
