"""`python -m services.memory` serves; with `migrate` it brings the database to its newest schema."""

from libs.chassis.command import main
from services.memory.app import build
from services.memory.settings import MemorySettings

if __name__ == "__main__":
    main("memory", MemorySettings, build)
