"""`python -m services.session` serves; `python -m services.session migrate` brings the database to its newest schema."""

import sys
from pathlib import Path

from pydantic import ValidationError

from libs.chassis import logs
from libs.chassis.app import serve
from libs.chassis.http import describe
from services.session.app import REVISIONS, build
from services.session.settings import SessionSettings


def main(arguments: list[str]) -> int:
    if arguments not in ([], ["migrate"]):
        print("usage: python -m services.session [migrate]", file=sys.stderr)
        return 2
    try:
        settings = SessionSettings.from_environment()
        logs.configure(settings.log_level)
    except ValidationError as error:
        print(f"session: wrong settings: {describe(error.errors())}", file=sys.stderr)
        return 2
    except KeyError:
        print("session: wrong settings: log_level must be debug, info, warning or error.", file=sys.stderr)
        return 2
    if arguments == ["migrate"]:
        migrate(settings.database_url.get_secret_value(), REVISIONS)
    else:
        serve(build(settings), settings)
    return 0


def migrate(database_url: str, revisions: Path) -> None:
    from libs.chassis.migrations import upgrade  # noqa: PLC0415 - a service that serves does not load Alembic

    upgrade(database_url, revisions)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
