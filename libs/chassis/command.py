"""The command line of every service: `python -m services.<name>` serves, `… migrate` migrates.

The only place where a service's process reads its environment. A wrong setting is one line and exit status 2.
"""

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from fastapi import FastAPI
from pydantic import ValidationError

from libs.chassis import logs
from libs.chassis.app import serve
from libs.chassis.http import describe
from libs.chassis.settings import ServiceSettings

SettingsT = TypeVar("SettingsT", bound=ServiceSettings)


def main(service: str, settings_type: type[SettingsT], build: Callable[[SettingsT], FastAPI]) -> None:
    """Runs the command in `sys.argv` and exits with its status."""
    arguments = sys.argv[1:]
    if arguments not in ([], ["migrate"]):
        print(f"usage: python -m services.{service} [migrate]", file=sys.stderr)
        sys.exit(2)
    try:
        settings = settings_type.from_environment()
    except ValidationError as error:
        print(f"{service}: wrong settings: {describe(error.errors())}", file=sys.stderr)
        sys.exit(2)
    logs.configure(settings.log_level)
    if arguments == ["migrate"]:
        # Loaded by name: a service that serves must not load Alembic.
        migrations = importlib.import_module("libs.chassis.migrations")
        migrations.upgrade(settings.database_url.get_secret_value(), revisions(service))
    else:
        serve(build(settings), settings)


def revisions(service: str) -> Path:
    """Where a service keeps its Alembic revisions."""
    return Path(__file__).parents[2] / "services" / service / "migrations"
