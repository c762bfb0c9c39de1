"""The replays of a pipeline are listed, the latest first."""

from libs.chassis.migrations import execute

revision = "distiller_0008"
down_revision = "distiller_0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    execute("create index replays_pipeline on replays (pipeline_uid, replay_uid);")
