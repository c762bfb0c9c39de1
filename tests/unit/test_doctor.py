"""What the doctor makes of a pipeline's lanes."""

from typing import Any

import pytest

from memstream.diagnosis import FAILED, OK, WARNING, Doctor

PIPELINE = {"name": "memory-pipelines/p", "dreamer_policy": {"trigger": "CONTINUOUS"}}


class Lanes:
    """A server that knows lanes, by state."""

    def __init__(self, lanes: dict[str, list[dict[str, Any]]]) -> None:
        self._lanes = lanes

    def get(self, path: str, params: dict[str, Any]) -> dict[str, Any]:
        return {"lanes": self._lanes.get(params["state"], [])}

    def pages(self, path: str, key: str, *, page_size: int, params: dict[str, Any]) -> list[dict[str, Any]]:
        return self._lanes.get(params["state"], [])


@pytest.mark.parametrize(
    ("lanes", "state", "word"),
    [
        ({"due": [{"attempts": 0}]}, OK, "default"),
        ({"due": [{"attempts": 0}, {"attempts": 2, "reason": "not JSON: 1 errors"}]}, WARNING, "not JSON"),
        ({"waiting_provider": [{"attempts": 0}]}, FAILED, "does not answer"),
    ],
)
def test_a_model_that_fails_is_told(lanes: dict[str, list[dict[str, Any]]], state: str, word: str) -> None:
    doctor = Doctor(Lanes(lanes), None, "chats", "facts")  # type: ignore[arg-type]

    finding = doctor._model(PIPELINE)

    assert finding.state == state
    assert word in finding.detail
