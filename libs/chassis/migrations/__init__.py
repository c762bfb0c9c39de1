"""Alembic for every service: this environment is shared, the revisions are each service's own, plain SQL, forward only.

Not imported by a service that serves: `python -m services.<name> migrate` does.
"""

from pathlib import Path

from alembic import command, op
from alembic.config import Config
from sqlalchemy import make_url

HERE = Path(__file__).parent


def upgrade(database_url: str, revisions: Path) -> None:
    """Brings a database to the newest revision, one migration run at a time. Blocks; needs no running event loop."""
    config = Config()
    config.set_main_option("script_location", str(HERE))
    config.set_main_option("version_locations", str(revisions))
    config.set_main_option("path_separator", "os")
    config.attributes["url"] = make_url(database_url).set(drivername="postgresql+asyncpg")
    command.upgrade(config, "head")


def execute(sql: str) -> None:
    """Runs any number of statements in the revision's transaction, without waiting long for a lock."""
    connection = op.get_bind().connection.dbapi_connection
    assert connection is not None  # noqa: S101
    connection.run_async(lambda driver: driver.execute(f"set local lock_timeout = '4s';\n{sql}"))


def shared(name: str) -> str:
    """A numbered file of tables that every service has; such a file never changes once released."""
    return (HERE / f"{name}.sql").read_text()
