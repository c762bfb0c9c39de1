"""What the doctor makes of a pipeline's lanes."""

from typing import Any

import pytest

from memstream.diagnosis import FAILED, OK, WARNING, Doctor

PIPELINE = {"name": "memory-pipelines/p", "dreamer_policy": {"trigger": "CONTINUOUS"}, "effective_model": "small"}


class Lanes:
    """A server that knows lanes, by state."""

    def __init__(self, lanes: dict[str, list[dict[str, Any]]]) -> None:
        self._lanes = lanes

    def get(self, path: str, params: dict[str, Any]) -> dict[str, Any]:
        return {"lanes": self._lanes.get(params["state"], [])}

    def pages(self, path: str, key: str, *, page_size: int, params: dict[str, Any]) -> list[dict[str, Any]]:
        return self._lanes.get(params["state"], [])


@pytest.mark.parametrize(
    ("lanes", "state", "detail"),
    [
        ({"due": [{}]}, OK, "small (the server's default)"),
        ({"due": [{}, {"reason": "not JSON"}]}, WARNING, "small (the server's default) is asked again, since not JSON"),
        (
            {"waiting_provider": [{"reason": "it answered 401"}]},
            FAILED,
            "small (the server's default) does not answer: it answered 401; actors that wait for it: 1",
        ),
    ],
)
def test_a_model_that_fails_is_told(lanes: dict[str, list[dict[str, Any]]], state: str, detail: str) -> None:
    doctor = Doctor(Lanes(lanes), None, "chats", "facts")  # type: ignore[arg-type]

    finding = doctor._model(PIPELINE)

    assert (finding.state, finding.detail) == (state, detail)
