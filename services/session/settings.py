"""The settings of the session service."""

from libs.chassis.settings import ServiceSettings


class SessionSettings(ServiceSettings):
    """`erasure_repeat_s`: how long an unconfirmed erasure waits before it is announced again."""

    erasure_repeat_s: float = 30.0
