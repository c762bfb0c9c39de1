"""Run by Alembic, which only writes SQL here; `upgrade` runs it."""

from alembic import context

context.configure(dialect_name="postgresql")
context.run_migrations()
