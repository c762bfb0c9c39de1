"""The command line: one result on stdout, one line of failure on stderr, exit statuses as the contract has them."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import jwt
import pytest
from typer.testing import CliRunner, Result

from memstream.cli import app
from memstream.commands.binding import bound, unbound
from memstream.commands.sessions import ITEMS
from memstream.errors import ADMINS_HINT, TOKEN_HINT


def run(*arguments: str, input: str | None = None) -> Result:
    return CliRunner().invoke(app, arguments, prog_name="memstream", input=input)


@pytest.fixture
def data(tmp_path: Path) -> Sequence[str]:
    return ("--data-dir", str(tmp_path))


def test_without_a_command_it_lists_them() -> None:
    result = run()

    for command in ("doctor", "erase", "export", "import", "mcp", "memory", "parked", "serve", "sessions", "tokens"):
        assert command in result.stdout


def test_the_version_is_printed() -> None:
    assert run("--version").stdout == "memstream 0.5.0\n"


def test_an_unknown_command_names_the_nearest() -> None:
    result = run("tokenz")

    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == "error: there is no command 'tokenz'\n  help: did you mean tokens?\n"


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (("memory", "entrie"), "did you mean entries?"),
        (("memory", "pipeline", "crate"), "did you mean create?"),
        (("sessions", "zzz"), "`memstream sessions --help` lists them"),
    ],
)
def test_an_unknown_command_of_a_group_does_too(words: Sequence[str], hint: str) -> None:
    result = run(*words)

    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == f"error: there is no command '{words[-1]}'\n  help: {hint}\n"


def test_commands_are_completed_by_the_shell() -> None:
    words = {"_MEMSTREAM_COMPLETE": "complete_bash", "COMP_WORDS": "memstream memory pipeline r", "COMP_CWORD": "3"}
    command = [str(Path(sys.executable).with_name("memstream"))]

    answer = subprocess.run(command, env={**os.environ, **words}, capture_output=True, text=True, timeout=60)

    assert answer.stdout.split() == ["resume", "run", "redrive", "replay", "runs", "replays"]


@pytest.mark.parametrize(
    ("data", "cell"),
    [
        ({"type": "message", "role": "user", "content": "I live\nin Lisbon."}, "user: I live in Lisbon."),
        (
            {"role": "assistant", "content": [{"type": "output_text", "text": "A fine"}, {"text": "city."}]},
            "assistant: A fine city.",
        ),
        ({"role": "user", "content": [{"type": "image"}]}, '{"role": "user", "content": [{"type": "image"}]}'),
        ({"type": "function_call"}, '{"type": "function_call"}'),
        ("\x1b[31mred", "\ufffd[31mred"),
        (None, "—"),
    ],
)
def test_an_item_is_shown_as_who_said_what(data: object, cell: str) -> None:
    assert ITEMS.columns[1].cell({"data": data}) == cell


MANIFEST = """# an agent
[agent]
name = "support"

[session_store]  # ours
# which one
name = "old"
region = "here"

[[tools]]
name = "search"
"""


def test_binding_changes_one_line_of_the_manifest() -> None:
    assert bound(MANIFEST, "session_store", "new") == MANIFEST.replace("old", "new")
    assert bound(MANIFEST, "memory_store", "facts") == f'{MANIFEST}\n[memory_store]\nname = "facts"\n'
    assert bound("", "memory_store", "facts") == '[memory_store]\nname = "facts"\n'


def test_unbinding_leaves_everything_else() -> None:
    assert unbound(MANIFEST, "session_store") == MANIFEST.replace('name = "old"\n', "")
    assert unbound(MANIFEST, "memory_store") == MANIFEST
    assert unbound(bound(MANIFEST, "memory_store", "facts"), "memory_store") == f"{MANIFEST}\n"
    assert unbound('[memory_store]\nname = "facts"\n', "memory_store") == ""


def test_the_doctor_shows_the_settings_in_force_and_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    secrets = {"OPENAI_API_KEY": "hunter2", "DATABASE_URL_SESSION": "postgresql://me:hunter2@db/s"}
    for name, value in {**secrets, "OPENAI_BASE_URL": "http://me:hunter2@model/v1", "LOG_LEVEL": "error"}.items():
        monkeypatch.setenv(name, value)

    result = run("-o", "json", "--url", "http://me:hunter2@127.0.0.1:9", "--token", "hunter2", "doctor")

    assert result.exit_code == 1
    assert "hunter2" not in result.output
    settings = {each["name"]: each["value"] for each in json.loads(result.stdout)["settings"]}
    assert settings.items() >= {"OPENAI_API_KEY": "hidden", "LOG_LEVEL": "error", "MEMSTREAM_TOKEN": "hidden"}.items()
    assert (settings["OPENAI_BASE_URL"], settings["MEMSTREAM_URL"]) == ("http://***@model/v1", "http://***@127.0.0.1:9")
    assert settings["DATABASE_URL_SESSION"] == "hidden"
    assert settings["DATABASE_URL_MEMORY"] is None


def test_failures_are_json_when_results_are() -> None:
    result = run("-o", "json", "import", "/nowhere.jsonl")

    assert result.exit_code == 1
    assert json.loads(result.stderr)["error"]["message"] == "cannot read /nowhere.jsonl: No such file or directory"


@pytest.mark.parametrize(
    "arguments",
    [
        ("import",),
        ("-o", "xml", "keys", "list"),
        ("tokens", "issue"),
        ("tokens", "issue", "--user", "a", "--service-principal", "b"),
        ("tokens", "issue", "--user", "a", "--ttl", "soon"),
        ("tokens", "issue", "--user", "a", "--ttl", "0s"),
        ("tokens", "issue", "--user", ""),
        ("tokens", "issue", "--user", " "),
        ("tokens", "issue", "--service-principal", ""),
        ("tokens", "issue", "--user", "a\x00b"),
        ("tokens", "issue", "--user", "a\nb"),
        ("tokens", "issue", "--user", "a\ud800"),
        ("tokens", "issue", "--user", "a" * 257),
        ("tokens", "issue", "--user", "a", "--workspace", "-1"),
        ("tokens", "issue", "--user", "a", "--workspace", str(2**63)),
        ("export",),
        ("keys", "list", "--nope"),
        ("sessions", "stores", "create"),
        ("sessions", "items", "list", "--session-id", "s"),
        ("memory", "entries", "create", "--store", "m", "--actor-id", "a", "--path", "/a.md"),
        ("memory", "pipeline", "runs", "get", "memory-pipelines/p/runs/latest"),
        ("memory", "stores", "list", "--page-size", "101"),
        ("parked", "drop", "id"),
        ("erase", "--actor", "a", "--session-store", "s", "--memory-store", "m"),
    ],
)
def test_a_wrong_use_is_status_2_and_one_line(arguments: Sequence[str]) -> None:
    result = run(*arguments)

    assert (result.exit_code, result.stdout) == (2, "")
    assert re.fullmatch(r"error: .+\n", result.stderr)


def test_without_a_token_it_says_how_to_get_one(tmp_path: Path) -> None:
    file = tmp_path / "talk.jsonl"
    file.write_text('{"actor_id": "a", "session_id": "s", "item": 1}')

    result = run("import", str(file))

    assert result.exit_code == 1
    assert result.stderr.startswith("error: there is no token\n  help: ")


def test_a_server_that_is_not_there_is_one_line_with_help(tmp_path: Path) -> None:
    file = tmp_path / "talk.jsonl"
    file.write_text('{"actor_id": "a", "session_id": "s", "item": 1}')

    result = run("--url", "http://127.0.0.1:9", "--token", "x", "import", str(file))

    assert result.exit_code == 1
    assert result.stderr.splitlines()[0].startswith("error: http://127.0.0.1:9 cannot be reached")
    assert result.stderr.splitlines()[1].startswith("  help: is it running?")


def claims(token: str) -> dict[str, object]:
    decoded: dict[str, object] = jwt.decode(token, options={"verify_signature": False})
    return decoded


def test_a_token_is_printed_alone(data: Sequence[str]) -> None:
    run("keys", "add", *data)

    result = run("tokens", "issue", "--user", "ines@example.org", "--workspace", "7", "--ttl", "2h", *data)

    assert re.fullmatch(r"[\w-]+\.[\w-]+\.[\w-]+\n", result.stdout)
    said = claims(result.stdout.strip())
    assert (said["sub"], said["principal_type"], said["workspace_id"]) == ("ines@example.org", "USER", 7)
    assert int(str(said["exp"])) - int(str(said["iat"])) == 7200
    assert "admin" not in said


def test_a_service_principals_token_may_be_an_admins(data: Sequence[str]) -> None:
    run("keys", "add", *data)

    result = run("tokens", "issue", "--service-principal", "app-1", "--admin", *data)

    said = claims(result.stdout.strip())
    assert (said["principal_type"], said["workspace_id"], said["admin"]) == ("SERVICE_PRINCIPAL", 1, True)


@pytest.mark.parametrize("hint", [TOKEN_HINT, ADMINS_HINT])
def test_the_command_that_a_hint_names_makes_a_token(data: Sequence[str], hint: str) -> None:
    run("keys", "add", *data)
    named = re.search("`memstream (.+)`", hint)
    assert named

    result = run(*named[1].split(), *data)

    assert ("admin" in claims(result.stdout.strip())) is (hint == ADMINS_HINT)


def test_without_a_key_it_says_how_to_make_one(data: Sequence[str]) -> None:
    result = run("tokens", "issue", "--user", "ines", *data)

    assert (result.exit_code, result.stdout) == (1, "")
    assert "memstream keys add" in result.stderr
    assert "--data-dir or MEMSTREAM_DATA_DIR" in result.stderr


def test_keys_are_rotated(data: Sequence[str]) -> None:
    added = run("keys", "add", *data)
    assert re.fullmatch(r"made in /.*/keys; services look for keys every minute.*\n", added.stderr)
    first = added.stdout.strip()
    second = run("keys", "add", *data).stdout.strip()

    signing = next(key for key in json.loads(run("-o", "json", "keys", "list", *data).stdout)["keys"] if key["signs"])
    token = run("tokens", "issue", "--user", "ines", *data).stdout.strip()
    other = next(kid for kid in (first, second) if kid != signing["kid"])
    retired = run("keys", "retire", other, *data)

    assert jwt.get_unverified_header(token)["kid"] == signing["kid"]
    assert (retired.exit_code, retired.stdout) == (0, f"retired {other}\n")
    assert run("keys", "list", *data).stdout == f"{signing['kid']}  signs\n"


def test_the_only_key_is_not_retired(data: Sequence[str]) -> None:
    kid = run("keys", "add", *data).stdout.strip()

    result = run("keys", "retire", kid, *data)

    assert result.exit_code == 1
    assert result.stderr.startswith(f"error: {kid} is the only key\n")


@pytest.mark.parametrize("command", [("keys", "add"), ("keys", "list"), ("keys", "retire", "k")])
def test_a_key_directory_that_cannot_be_used_is_one_line(tmp_path: Path, command: Sequence[str]) -> None:
    (tmp_path / "file").write_text("")

    result = run(*command, "--key-dir", str(tmp_path / "file" / "keys"))

    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith(f"error: cannot use {tmp_path}/file/keys: Not a directory\n  help: ")


def test_keys_of_a_directory_that_is_not_there_are_not_listed(tmp_path: Path) -> None:
    result = run("keys", "list", "--key-dir", str(tmp_path / "none"))

    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith(f"error: cannot use {tmp_path}/none: No such file or directory\n")


@pytest.mark.parametrize("place", ["none/talk.jsonl", "pipe"])
def test_an_export_that_cannot_be_written_asks_no_server(tmp_path: Path, place: str) -> None:
    os.mkfifo(tmp_path / "pipe")

    result = run("--url", "http://127.0.0.1:9", "--token", "x", "export", str(tmp_path / place))

    assert (result.exit_code, result.stdout) == (1, "")
    assert re.match(r"error: (cannot write .*/none/talk.jsonl: there is no directory|.*/pipe is not a)", result.stderr)


def test_help_loads_no_http_client_and_no_server() -> None:
    code = (
        "import sys\nfrom memstream.cli import app\n"
        "app(['--help'], standalone_mode=False)\n"
        "print([name for name in ('httpx', 'pydantic', 'fastapi', 'jwt') if name in sys.modules])"
    )

    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)

    assert answer.stdout.splitlines()[-1] == "[]", answer.stderr
