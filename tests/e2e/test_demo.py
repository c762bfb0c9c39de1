"""`make demo`: any conversation file is played and told, and nothing is left behind."""

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.support.servers import server_directory
from tests.support.standalone import ROOT


def demo(*arguments: str) -> "subprocess.CompletedProcess[str]":
    """A played demo, which has left nothing behind."""
    with server_directory() as directory:
        answer = subprocess.run(
            [sys.executable, "-m", "services.standalone.demo", *arguments],
            cwd=ROOT,
            env={**os.environ, "COLUMNS": "200", "TMPDIR": str(directory)},
            capture_output=True,
            text=True,
            timeout=240,
        )
        assert list(directory.iterdir()) == []
    return answer


def test_the_sample_is_played_and_a_change_of_mind_resolved() -> None:
    answer = demo()

    assert answer.returncode == 0, answer.stderr
    assert "22 items stored in 4 sessions" in answer.stdout
    assert "I live in Hamburg." in answer.stdout
    assert "I live in Lisbon now" in answer.stdout


def test_other_sentences_work_too(tmp_path: Path) -> None:
    turns = ["I have a cat named Pepper.", "I play the oboe.", "What is my cat called?"]
    lines = [
        {"actor_id": "orla", "session_id": "o-1", "item": {"type": "message", "role": "user", "content": text}}
        for text in turns
    ]
    file = tmp_path / "mine.jsonl"
    file.write_text("\n".join(map(json.dumps, lines)))

    answer = demo(str(file))

    assert answer.returncode == 0, answer.stderr
    assert "/pets/pepper.md" in answer.stdout
    assert "What is my cat called?" in answer.stdout


def test_a_broken_file_is_one_line(tmp_path: Path) -> None:
    file = tmp_path / "broken.jsonl"
    file.write_text('{"actor_id": "orla"}\n')

    answer = demo(str(file))

    assert (answer.returncode, answer.stdout) == (1, "")
    assert answer.stderr.strip() == f"error: {file}:1 lacks 'session_id'"
