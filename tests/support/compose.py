"""`docker compose up` under a project of its own, with passwords and a port of its own, and nothing left afterwards."""

import json
import os
import secrets
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from services.standalone.embedded import free_port

ROOT = Path(__file__).parents[2]
SERVICES = ("session", "distiller", "memory")
UP_DEADLINE_S = 1200.0  # the first time builds the image
COMMAND_DEADLINE_S = 180.0
OPEN_DEADLINE_S = 60.0


def missing() -> str | None:
    """Why containers cannot run here, and what to do about it; None when they can."""
    needs = "install Docker with the compose plugin (docs.docker.com/engine/install), start it, and try again"
    for command in (["docker", "info"], ["docker", "compose", "version"]):
        try:
            subprocess.run(command, check=True, capture_output=True, timeout=30)
        except FileNotFoundError:
            return f"there is no `docker` command: {needs}"
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired):
            return f"`{' '.join(command)}` fails: {needs}"
    return None


@dataclass(frozen=True)
class Compose:
    project: str
    env_file: Path
    port: int

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def run(self, *arguments: str, deadline_s: float = COMMAND_DEADLINE_S, check: bool = True) -> str:
        """The output of `docker compose …`; raises with what it said when it fails."""
        command = ["docker", "compose", "--project-name", self.project, "--env-file", str(self.env_file), *arguments]
        return _run(command, deadline_s, check=check, cwd=ROOT)

    def up(self, replicas: int) -> None:
        scales = [argument for service in SERVICES for argument in ("--scale", f"{service}={replicas}")]
        try:
            self.run("up", "--detach", "--build", *scales, deadline_s=UP_DEADLINE_S)
            self._until_open()
        except AssertionError as failed:
            raise AssertionError(f"{failed}\n{self.run('logs', '--tail', '20', check=False)}") from None

    def _until_open(self) -> None:
        """The services are healthy before the edge is started, which then takes a moment."""
        deadline = time.monotonic() + OPEN_DEADLINE_S
        while True:
            try:
                httpx.get(f"{self.url}/healthz", timeout=5).raise_for_status()
                return
            except httpx.HTTPError as closed:
                if time.monotonic() > deadline:
                    raise AssertionError(f"the edge does not open: {closed}") from None
                time.sleep(0.2)

    def down(self) -> None:
        self.run("down", "--volumes", "--timeout", "2", check=False)

    def token(self, user: str, *, admin: bool = False) -> str:
        return self.keys("tokens", "issue", "--user", user, *(["--admin"] if admin else [])).strip()

    def keys(self, *arguments: str) -> str:
        """`memstream …` beside the signing keys."""
        return self.run("run", "--rm", "--no-TTY", "keys", *arguments)

    def containers(self, service: str) -> list[dict[str, Any]]:
        """What `docker inspect` says about the running replicas of a service."""
        ids = self.run("ps", "--quiet", service).split()
        found: list[dict[str, Any]] = json.loads(_run(["docker", "inspect", *ids], COMMAND_DEADLINE_S)) if ids else []
        return found

    def kill(self, service: str) -> str:
        """Kills one replica as a power cut would, and returns its name."""
        victim: str = self.containers(service)[0]["Id"]
        return _run(["docker", "kill", victim], COMMAND_DEADLINE_S).strip()

    def inside(self, service: str, *command: str, env: Mapping[str, str] | None = None) -> tuple[int, str]:
        """Exit status and output of a command in a running container."""
        variables = [argument for name, value in (env or {}).items() for argument in ("--env", f"{name}={value}")]
        whole = ["docker", "exec", *variables, self.containers(service)[0]["Id"], *command]
        done = subprocess.run(whole, capture_output=True, text=True, timeout=COMMAND_DEADLINE_S)
        return done.returncode, done.stdout + done.stderr


@contextmanager
def compose() -> Iterator[Compose]:
    """Nothing is started before `up`."""
    with tempfile.TemporaryDirectory(prefix="memstream-compose-") as directory:
        env_file = Path(directory) / "env"
        port = free_port()
        _run(["sh", "deploy/make-env.sh", str(env_file)], 10, cwd=ROOT)
        with env_file.open("a") as file:
            file.write(f"MEMSTREAM_PORT={port}\n")
        project = Compose(f"memstream-test-{secrets.token_hex(4)}", env_file, port)
        try:
            yield project
        finally:
            project.down()


def _run(command: Sequence[str], deadline_s: float, *, check: bool = True, cwd: Path | None = None) -> str:
    # What is set in a developer's shell would win over the file.
    env = {name: value for name, value in os.environ.items() if name not in _settings()}
    done = subprocess.run(command, capture_output=True, text=True, timeout=deadline_s, cwd=cwd, env=env)
    if check and done.returncode:
        raise AssertionError(f"`{' '.join(command)}` exits with {done.returncode}: {done.stderr[-4000:]}")
    return done.stdout


def _settings() -> set[str]:
    lines = (ROOT / ".env.example").read_text().splitlines()
    return {line.removeprefix("# ").partition("=")[0] for line in lines if "=" in line}
