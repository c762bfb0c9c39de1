"""`python -m services.<name>`: a setting that cannot be used is one line and status 2."""

import os
import runpy
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SERVICE = "services.distiller"
DATABASE = {"DATABASE_URL": "postgresql://nowhere"}

Refusal = Callable[..., str]


@pytest.fixture
def refusal(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Refusal:
    """What the service's program, run in this process, says on stderr before it exits with status 2."""

    # It would log to what `capsys` has in the place of stderr, which the tests after this one find closed.
    monkeypatch.setattr("libs.chassis.logs.configure", lambda _: None)

    def run(**variables: str) -> str:
        monkeypatch.setattr(sys, "argv", [SERVICE])
        for name, value in {"LOG_LEVEL": "warning", **DATABASE, **variables}.items():
            monkeypatch.setenv(name, value)
        with pytest.raises(SystemExit) as ended:
            runpy.run_module(SERVICE, run_name="__main__")
        told = capsys.readouterr()
        assert (ended.value.code, told.out) == (2, ""), told.err
        (line,) = told.err.splitlines()
        return line

    return run


def test_a_program_that_refuses_ends_with_one_line_and_status_2() -> None:
    command = [sys.executable, "-m", SERVICE]
    environment = {**os.environ, **DATABASE, "LIMITS": "5x"}

    answer = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60)

    assert (answer.returncode, answer.stdout) == (2, ""), answer.stderr
    assert len(answer.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (None, "No such file or directory"),
        ("[", "is not JSON"),
        ("7", "the whole: Input should be a valid list"),
        ("\udcff", "does not hold what it should"),
        ('{"name": "m"}', "the whole: Input should be a valid list"),
        ('[{"api_key": "hunter2"}]', "0.name: Field required"),
        ('[{"name": "m", "api_key": ["hunter2"]}]', "0.api_key: Input should be a valid string"),
        ('[{"name": "m"}, {"name": "n", "aliases": ["m"]}]', "more than one model is called m"),
        ('[{"name": "builtin.extractive", "model": "m"}]', "builtin.extractive cannot be a model at an endpoint"),
        ('[{"name": "builtin.other"}]', "builtin.other is not built in"),
        ('[{"name": "m", "aliases": ["builtin.extractive"]}]', "builtin.extractive cannot be a model at an endpoint"),
    ],
)
def test_a_models_file_that_cannot_be_used_is_named(
    refusal: Refusal, tmp_path: Path, content: str | None, what: str
) -> None:
    file = tmp_path / "models.json"
    if content is not None:
        file.write_text(content, errors="surrogateescape")

    line = refusal(MODELS_FILE=str(file))

    assert line.startswith(f"distiller: wrong settings: MODELS_FILE {file}: {what}")
    assert "hunter2" not in line


@pytest.mark.parametrize("name", ["LIMITS", "LIMITS__NO_SUCH"])
def test_a_limit_that_makes_no_sense_is_named(refusal: Refusal, name: str) -> None:
    line = refusal(**{name: "5x"})

    assert "limits" in line.lower()


def test_a_default_model_that_the_file_does_not_have_is_named_with_those_it_has(
    refusal: Refusal, tmp_path: Path
) -> None:
    file = tmp_path / "models.json"
    file.write_text('[{"name": "small", "aliases": ["system.ai.claude-sonnet-5"]}, {"name": "e", "dimensions": 8}]')

    line = refusal(MODELS_FILE=str(file), MODEL="smal")

    assert line.endswith("MODEL is smal, but the models are builtin.extractive, small, system.ai.claude-sonnet-5")
