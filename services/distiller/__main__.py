"""`python -m services.distiller` serves; `… migrate` brings its database to the newest revision."""

from libs.chassis.command import main
from services.distiller.app import build
from services.distiller.settings import DistillerSettings

if __name__ == "__main__":
    main("distiller", DistillerSettings, build)
