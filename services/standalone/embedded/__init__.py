"""Postgres and NATS from PyPI wheels, run as child processes that this process owns."""

from services.standalone.embedded.errors import EmbeddedError
from services.standalone.embedded.nats import EmbeddedNats, free_port
from services.standalone.embedded.postgres import EmbeddedPostgres

__all__ = ["EmbeddedError", "EmbeddedNats", "EmbeddedPostgres", "free_port"]
