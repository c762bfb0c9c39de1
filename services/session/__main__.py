"""`python -m services.session` serves; with `migrate` it brings the database to its newest schema."""

from libs.chassis.command import main
from services.session.app import build
from services.session.settings import SessionSettings

if __name__ == "__main__":
    main("session", SessionSettings, build)
