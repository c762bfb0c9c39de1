"""The settings of the one-process form: its own, and those of the three services under the same names as alone."""

import difflib
import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError
from pydantic_settings import BaseSettings, EnvSettingsSource, SettingsConfigDict, SettingsError

from libs.chassis.settings import ServiceSettings
from services.distiller.settings import DistillerSettings
from services.memory.settings import MemorySettings
from services.session.settings import SessionSettings

SERVICES: Mapping[str, type[ServiceSettings]] = {
    "session": SessionSettings,
    "distiller": DistillerSettings,
    "memory": MemorySettings,
}
PREFIX = "MEMSTREAM_"
CLIENT_VARIABLES = ("MEMSTREAM_URL", "MEMSTREAM_TOKEN")  # the command line's, often set in the same shell


class UsageError(Exception):
    """A setting that is unknown or wrong; the message is the one line for the user."""


class _Own(BaseSettings):
    model_config = SettingsConfigDict(extra="forbid", env_ignore_empty=True)

    memstream_port: Annotated[int, Field(ge=0, le=65535)] = 8080
    memstream_data_dir: Path = Path(".memstream")
    database_url_session: SecretStr | None = None
    database_url_distiller: SecretStr | None = None
    database_url_memory: SecretStr | None = None
    nats_url: SecretStr | None = None
    key_dir: Path | None = None
    log_level: Literal["debug", "info", "warning", "error"] = "warning"


class Settings(BaseModel):
    """`services` holds what the environment says about each service's own settings. Port 0 takes a free one."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    port: int = 8080
    data_dir: Path = Path(".memstream")
    database_urls: dict[str, SecretStr] = {}
    nats_url: SecretStr | None = None
    own_key_dir: Path | None = None
    log_level: str = "warning"
    services: dict[str, dict[str, Any]] = {}

    @property
    def model(self) -> str:
        """Which model distils, for a person."""
        distiller = self.services.get("distiller", {})
        file = distiller.get("models_file")
        return str(distiller.get("model") or (f"the first model of {file}" if file else "builtin.extractive"))

    @property
    def key_dir(self) -> Path:
        return self.own_key_dir or self.data_dir / "keys"

    @classmethod
    def from_environment(cls) -> Self:
        """Reads upper-case variables; raises `UsageError`."""
        _refuse_unknown(os.environ)
        try:
            own = _Own()
            services = {name: _environment(settings) for name, settings in SERVICES.items()}
        except ValidationError as error:
            raise UsageError(describe(error)) from None
        except SettingsError as error:
            raise UsageError(str(error)) from None
        urls = {name: getattr(own, f"database_url_{name}") for name in SERVICES}
        settings = cls(
            port=own.memstream_port,
            data_dir=own.memstream_data_dir.absolute(),
            database_urls={name: url for name, url in urls.items() if url},
            nats_url=own.nats_url,
            own_key_dir=own.key_dir,
            log_level=own.log_level,
            services=services,
        )
        for name in SERVICES:
            settings.of(name, database_url="", nats_url="")  # what is wrong is said before anything starts
        return settings

    def of(self, service: str, *, database_url: str, nats_url: str) -> Any:
        """One service's settings. Raises `UsageError`."""
        given = dict(self.services.get(service, {}))
        given |= {"database_url": database_url, "nats_url": nats_url, "http_port": self.port, "key_dir": self.key_dir}
        try:
            return SERVICES[service](**given)
        except ValidationError as error:
            raise UsageError(describe(error)) from None


def variables() -> set[str]:
    """Every variable that the one-process form reads."""
    fields = set(_Own.model_fields)
    for settings in SERVICES.values():
        fields |= set(settings.model_fields) - {"database_url"}
    return {field.upper() for field in fields}


def effective() -> dict[str, str | None]:
    """Every variable of the one-process form with the value in force, or what is wrong; secrets are hidden."""
    try:
        own, settings = _Own(), Settings.from_environment()
        known: dict[str, Any] = own.model_dump()
        known |= {"memstream_data_dir": settings.data_dir, "key_dir": settings.key_dir}
        for name in SERVICES:
            of_service = settings.of(name, database_url="", nats_url="").model_dump()
            known |= {field: value for field, value in of_service.items() if field not in {*known, "database_url"}}
    except (UsageError, ValidationError) as error:
        return {"SERVER SETTINGS": describe(error) if isinstance(error, ValidationError) else str(error)}
    del known["http_port"], known["http_host"]  # MEMSTREAM_PORT on the loopback interface
    return {name.upper(): _shown(value) for name, value in sorted(known.items())}


def _shown(value: Any) -> str | None:
    if isinstance(value, SecretStr):
        return "hidden" if value.get_secret_value() else None
    if isinstance(value, dict):
        return json.dumps(value)
    return None if value is None or value == "" else str(value)


def describe(error: ValidationError) -> str:
    """One line that names each variable and what it must be, without repeating its value."""
    parts = []
    for fault in error.errors():
        name = "__".join(map(str, fault["loc"])).upper()
        what = fault["msg"].removeprefix("Value error, ")
        parts.append(f"{name}: {what}" if name else what)
    return "; ".join(parts)


def _refuse_unknown(names: Iterable[str]) -> None:
    known = [name for name in variables() if name.startswith(PREFIX)] + list(CLIENT_VARIABLES)
    for name in sorted(names):
        if name.startswith(PREFIX) and name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(sorted(known))}"
            raise UsageError(f"unknown setting {name}: {hint}")


def _environment(settings: type[BaseSettings]) -> dict[str, Any]:
    """What the environment says; an empty variable says nothing."""
    return EnvSettingsSource(settings, env_ignore_empty=True)()
