"""Whether memory was ever asked to swap an actor of a replay: such a question may still be on its way."""

from libs.chassis.migrations import execute

revision = "distiller_0012"
down_revision = "distiller_0011"
branch_labels = None
depends_on = None


def upgrade() -> None:
    execute("""
alter table replay_actors add column swap_asked boolean not null default false;
update replay_actors set swap_asked = true where state = 'swapping';
""")
