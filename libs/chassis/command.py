"""The command line of every service: `python -m services.<name>` serves, `… migrate` migrates.

The only place where a service's process reads its environment. A wrong setting is one line and exit status 2.
"""

import importlib
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn, TypeVar

from fastapi import FastAPI
from pydantic import ValidationError
from pydantic_settings import SettingsError

from libs.chassis import logs
from libs.chassis.app import serve
from libs.chassis.http import describe
from libs.chassis.models import WrongModels
from libs.chassis.settings import ServiceSettings

UNUSABLE = (OSError, ValueError, TypeError)  # what reading a file of the wrong kind or shape raises
SettingsT = TypeVar("SettingsT", bound=ServiceSettings)


def main(service: str, settings_type: type[SettingsT], build: Callable[[SettingsT], FastAPI]) -> None:
    """Runs the command in `sys.argv` and exits with its status."""
    arguments = sys.argv[1:]
    if arguments not in ([], ["migrate"]):
        print(f"usage: python -m services.{service} [migrate]", file=sys.stderr)
        sys.exit(2)
    try:
        settings = settings_type.from_environment()
    except (ValidationError, SettingsError) as error:
        what = describe(error.errors()) if isinstance(error, ValidationError) else str(error)
        _refuse(service, what)
    logs.configure(settings.log_level)
    if arguments == ["migrate"]:
        # Loaded by name: a service that serves must not load Alembic.
        migrations = importlib.import_module("libs.chassis.migrations")
        migrations.upgrade(settings.database_url.get_secret_value(), revisions(service))
        return
    try:
        app = build(settings)
    except UNUSABLE as error:
        problem = about_file(settings, error)
        if problem is None:
            raise
        _refuse(service, problem)
    serve(app, settings)


def about_file(settings: ServiceSettings, error: Exception) -> str | None:
    """One line about a file that a setting names and a service cannot use, without repeating what it holds.

    None when no setting names a file: then the fault is ours.
    """
    named = [f"{name.upper()} {value}" for name, value in settings if name.endswith("_file") and value is not None]
    if not named:
        return None
    match error:
        case OSError():
            what = error.strerror or "cannot be read"
        case WrongModels():
            what = str(error)
        case ValidationError():
            faults = [(".".join(map(str, fault["loc"])) or "the whole", fault["msg"]) for fault in error.errors()[:5]]
            what = "; ".join(f"{where}: {message}" for where, message in faults)
        case json.JSONDecodeError():
            what = f"is not JSON: {error.msg} in line {error.lineno}"
        case _:
            what = "does not hold what it should"
    return f"{', '.join(named)}: {what}"


def _refuse(service: str, what: str) -> NoReturn:
    print(f"{service}: wrong settings: {what}", file=sys.stderr)
    sys.exit(2)


def revisions(service: str) -> Path:
    """Where a service keeps its Alembic revisions."""
    return Path(__file__).parents[2] / "services" / service / "migrations"
