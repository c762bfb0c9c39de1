"""What `make run` prints works as it is pasted, and the single port is one surface."""

import json
import shutil
import subprocess
from typing import Any

import httpx
import pytest

from tests.support.standalone import ROOT, StandaloneProcess, standalone_process


@pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl")
def test_the_three_curl_lines_work_as_pasted() -> None:
    with standalone_process() as process:
        answers = [
            json.loads(subprocess.run(["sh", "-c", line], capture_output=True, timeout=60, check=True).stdout)
            for line in process.curl_lines
        ]

    assert [answer.get("name", "").partition("/")[0] for answer in answers] == [
        "session-stores",
        "memory-stores",
        "memory-pipelines",
    ]
    assert answers[2]["dreamer_policy"]["trigger"] == "CONTINUOUS"


def get(standalone: StandaloneProcess, path: str) -> httpx.Response:
    return httpx.get(f"{standalone.url}{path}", timeout=30)


@pytest.mark.parametrize(("path", "status"), [("/healthz", "alive"), ("/readyz", "ready")])
def test_health_is_of_all_three_services(standalone: StandaloneProcess, path: str, status: str) -> None:
    answer = get(standalone, path)

    assert answer.status_code == 200
    assert answer.json()["status"] == status
    assert answer.json()["services"].keys() == {"session", "distiller", "memory"}


def test_metrics_are_of_all_three_services(standalone: StandaloneProcess) -> None:
    text = get(standalone, "/metrics").text

    for service in ("session", "distiller", "memory"):
        assert f'memstream_bus_connected{{service="{service}"}} 1.0' in text


@pytest.mark.parametrize("path", ["/", "/nope", "/api/2.0/agents", "/api/2.0/agents/nothing", "/healthz/"])
def test_a_path_of_nobody_is_the_contracts_404(standalone: StandaloneProcess, path: str) -> None:
    answer = get(standalone, path)

    assert (answer.status_code, answer.json()["error_code"]) == (404, "NOT_FOUND")
    assert "detail" not in answer.json()


def test_the_openapi_document_holds_every_service_and_no_loose_end(standalone: StandaloneProcess) -> None:
    document = get(standalone, "/openapi.json").json()

    for path in ("session-stores", "memory-stores", "memory-pipelines", "session-stores/{store_id}/sessions"):
        assert any(found.startswith(f"/api/2.0/agents/{path.partition('{')[0]}") for found in document["paths"])
    assert {name for name in references(document) if name not in document["components"]["schemas"]} == set()


def references(value: Any) -> set[str]:
    if isinstance(value, dict):
        own = {value["$ref"].rpartition("/")[2]} if isinstance(value.get("$ref"), str) else set()
        return own.union(*(references(part) for part in value.values()))
    if isinstance(value, list):
        return set().union(*(references(part) for part in value))
    return set()


def test_the_documentation_page_is_served(standalone: StandaloneProcess) -> None:
    assert "/openapi.json" in get(standalone, "/docs").text


def test_a_token_from_the_command_line_is_accepted(standalone: StandaloneProcess) -> None:
    command = [str(ROOT / ".venv/bin/memstream"), "tokens", "issue", "--user", "ines@example.org"]

    token = subprocess.run(command, env=standalone.variables, capture_output=True, text=True, timeout=60, check=True)

    answer = httpx.get(
        f"{standalone.url}/api/2.0/preview/scim/v2/Me", headers={"Authorization": f"Bearer {token.stdout.strip()}"}
    )
    assert answer.json()["userName"] == "ines@example.org"
