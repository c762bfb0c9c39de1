"""The settings of the session service."""

from libs.chassis.settings import ServiceSettings
from libs.chassis.stores import Creators


class SessionSettings(ServiceSettings):
    """`erasure_repeat_s`: how long an unconfirmed erasure waits before it is announced again."""

    store_creators: Creators = "everybody"
    erasure_repeat_s: float = 30.0
