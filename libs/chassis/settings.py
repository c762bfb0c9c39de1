"""The settings that every service has. Field names are the variables' names; `.env.example` is the one list."""

from pathlib import Path
from typing import Literal, Self

from pydantic import Field, SecretStr
from pydantic_settings import BaseSettings, EnvSettingsSource, PydanticBaseSettingsSource, SettingsConfigDict

from libs.contracts.limits import Limits


class ServiceSettings(BaseSettings):
    """Frozen, built by keyword, so that services fit into one process; only a `__main__` reads the environment."""

    model_config = SettingsConfigDict(frozen=True, extra="forbid", env_nested_delimiter="__")

    database_url: SecretStr
    nats_url: SecretStr = SecretStr("nats://127.0.0.1:4222")
    http_host: str = "0.0.0.0"  # noqa: S104 - a service in a container listens on every interface
    http_port: int = 8080
    nats_replicas: int = Field(default=1, ge=1, le=5)
    log_level: Literal["debug", "info", "warning", "error"] = "info"

    key_dir: Path | None = None
    jwks_url: str | None = None
    token_issuer: str = "memstream"  # noqa: S105
    token_audience: str = "memstream"  # noqa: S105
    claim_principal: str = "sub"
    claim_principal_type: str = "principal_type"
    claim_workspace: str = "workspace_id"
    claim_admin: str = "admin"

    database_pool_size: int = 8
    database_acquire_timeout_s: float = 2.0
    database_statement_timeout_s: float = 30.0
    housekeeping_interval_s: float = 60.0
    limits: Limits = Limits()

    @property
    def drain_s(self) -> float:
        """How long what is under way may go on once the service is told to stop; its grace period is longer."""
        return 10.0

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return (init_settings,)

    @classmethod
    def from_environment(cls) -> Self:
        """Reads upper-case variables; an empty one says nothing.

        Raises `pydantic.ValidationError` naming each that is missing or wrong.
        """
        return cls(**EnvSettingsSource(cls, env_ignore_empty=True)())
