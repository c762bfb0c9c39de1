"""The command line against a running Memstream: in this process, or at a terminal in its own."""

import json
import sys
from pathlib import Path
from typing import Any

import httpx
from typer.testing import CliRunner

from libs.chassis.keys import issue_token
from memstream.cli import app
from tests.support.standalone import StandaloneProcess
from tests.support.terminal import Shown, at_terminal

BASE = "/api/2.0/agents"
MEMSTREAM = str(Path(sys.executable).with_name("memstream"))


class Cli:
    """The command line of the creator of everything, or of another `user`. `ran` holds what has run."""

    def __init__(self, standalone: StandaloneProcess, user: str | None = None, *, is_admin: bool = False) -> None:
        self.standalone = standalone
        self.token = standalone.token
        if user is not None:
            keys = standalone.data_dir / "keys"
            self.token = issue_token(
                keys, principal=user, principal_type="USER", workspace_id=1, admin=is_admin, ttl_s=600
            )
        self.ran: list[str] = []

    @property
    def env(self) -> dict[str, str]:
        return {**self.standalone.variables, "MEMSTREAM_URL": self.standalone.url, "MEMSTREAM_TOKEN": self.token}

    def run(self, *arguments: str, input: str | None = None) -> Any:
        self.ran.append(" ".join(arguments).removeprefix("-o json "))
        env: dict[str, str | None] = {**self.env, "AGENT_SESSION_STORE": None, "AGENT_MEMORY_STORE": None}
        return CliRunner().invoke(app, arguments, prog_name="memstream", input=input, env=env)

    def has_run(self, command: str) -> bool:
        return any(f"{line} ".startswith(f"{command} ") for line in self.ran)

    def text(self, *arguments: str, input: str | None = None) -> str:
        """What a success prints, without colour."""
        result = self.run(*arguments, input=input)
        assert result.exit_code == 0, result.stderr
        assert "\x1b" not in result.stdout + result.stderr
        return str(result.stdout)

    def json(self, *arguments: str, input: str | None = None) -> Any:
        return json.loads(self.text("-o", "json", *arguments, input=input))

    def refused(self, *arguments: str, status: int = 1, input: str | None = None) -> str:
        """What a failure says on stderr; stdout is empty."""
        result = self.run(*arguments, input=input)
        assert (result.exit_code, result.stdout) == (status, ""), result.output
        return str(result.stderr)

    def at_terminal(self, *arguments: str, columns: int = 100, typed: str = "") -> Shown:
        return at_terminal([MEMSTREAM, *arguments], self.env, columns=columns, typed=typed)

    def rest(self, path: str, **params: Any) -> Any:
        """What the REST surface answers."""
        header = {"Authorization": f"Bearer {self.token}"}
        answer = httpx.get(f"{self.standalone.url}{BASE}/{path}", params=params, headers=header, timeout=60)
        assert answer.is_success, answer.text
        return answer.json()
