"""`.env.example` is the one list of settings: nothing missing, nothing left over, every default the real one."""

import re
from pathlib import Path
from typing import Any

import pytest

from memstream.commands.import_ import DEFAULT_MEMORY_STORE, DEFAULT_SESSION_STORE
from memstream.credentials import DEFAULT_URL
from services.standalone.settings import SERVICES, Settings, UsageError, variables

ROOT = Path(__file__).parents[2]
CLIENT = {
    "MEMSTREAM_URL": DEFAULT_URL,
    "MEMSTREAM_TOKEN": "",
    "AGENT_SESSION_STORE": DEFAULT_SESSION_STORE,
    "AGENT_MEMORY_STORE": DEFAULT_MEMORY_STORE,
}
SHOWN = dict(re.findall(r"^(?:# )?([A-Z][A-Z_]+)=(.*)$", (ROOT / ".env.example").read_text(), re.MULTILINE))


def test_the_example_names_every_setting_and_no_other() -> None:
    compose = ROOT / "docker-compose.yml"
    of_compose = set(re.findall(r"\$\{([A-Z_]+)", compose.read_text())) if compose.exists() else set()
    named = {name.partition("__")[0] for name in SHOWN}

    assert named - of_compose - variables() - CLIENT.keys() == {"DATABASE_URL"}
    assert (variables() | CLIENT.keys() | of_compose) - named == set()


@pytest.mark.parametrize("service", SERVICES)
def test_the_example_shows_the_defaults(service: str) -> None:
    settings = SERVICES[service]
    defaults = settings(database_url="postgresql://")  # type: ignore[arg-type]

    shown: dict[str, Any] = {
        name: SHOWN[name.upper()]
        for name in settings.model_fields
        if SHOWN.get(name.upper()) and name not in ("database_url", "limits")
    }

    assert settings(**{**defaults.model_dump(), **shown}) == defaults


def test_the_example_shows_the_clients_defaults() -> None:
    assert {name: SHOWN[name] for name in CLIENT} == CLIENT


def test_a_limit_is_set_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LIMITS__ITEMS_PER_APPEND", "7")

    settings = Settings.from_environment().of("session", database_url="postgresql://", nats_url="nats://")

    assert settings.limits.items_per_append == 7


@pytest.mark.parametrize("name", ["LIMITS__NO_SUCH", "LIMITS__ITEM_BYTES__MORE"])
def test_an_unknown_limit_is_refused(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, "5")

    with pytest.raises(UsageError, match=f"^{name.removesuffix('__MORE')}: "):
        Settings.from_environment()


def test_an_unknown_setting_is_refused_with_the_nearest_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEMSTREAM_PROT", "8081")

    with pytest.raises(UsageError, match="unknown setting MEMSTREAM_PROT: did you mean MEMSTREAM_PORT"):
        Settings.from_environment()


def test_a_clients_variables_do_not_disturb_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEMSTREAM_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("MEMSTREAM_TOKEN", "x")

    assert Settings.from_environment().port == 8080


def test_a_wrong_value_is_named_and_not_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEMSTREAM_PORT", "eighty")

    with pytest.raises(UsageError, match=r"^MEMSTREAM_PORT: ") as refused:
        Settings.from_environment()

    assert "eighty" not in str(refused.value)


def test_an_empty_variable_is_as_none(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DATABASE_URL_SESSION", "OPENAI_BASE_URL", "MEMSTREAM_PORT", "MEMSTREAM_DATA_DIR", "LOG_LEVEL"):
        monkeypatch.setenv(name, "")

    settings = Settings.from_environment()

    assert settings.database_urls == {}
    assert (settings.port, settings.data_dir.name, settings.log_level) == (8080, ".memstream", "warning")
    assert settings.of("distiller", database_url="postgresql://", nats_url="nats://").openai_base_url is None
