"""One JSON line per event, said once, where it is decided. Never user text, tokens or payloads."""

import logging
import sys
from traceback import extract_tb
from typing import Any

import structlog
from structlog.typing import EventDict


def configure(level: str) -> None:
    """Called once by a process's `__main__`."""
    number = logging.getLevelNamesMapping()[level.upper()]
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="%(levelname)s %(name)s %(message)s")
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            _frames_only,
            structlog.processors.JSONRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )


def _frames_only(_: Any, __: str, event: EventDict) -> EventDict:
    """An exception's type and frames: its text may quote what a user sent."""
    failed = event.pop("exc_info", None)
    if isinstance(failed, BaseException):
        event["error"] = type(failed).__name__
        event["frames"] = [f"{each.filename}:{each.lineno} {each.name}" for each in extract_tb(failed.__traceback__)]
    return event


def logger(name: str) -> structlog.typing.FilteringBoundLogger:
    bound: structlog.typing.FilteringBoundLogger = structlog.get_logger(module=name)
    return bound
