"""One JSON line per event, said once, where it is decided. Never user text, tokens or payloads."""

import logging
import sys

import structlog


def configure(level: str) -> None:
    """Called once by a process's `__main__`."""
    number = logging.getLevelNamesMapping()[level.upper()]
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="%(levelname)s %(name)s %(message)s")
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )


def logger(name: str) -> structlog.typing.FilteringBoundLogger:
    bound: structlog.typing.FilteringBoundLogger = structlog.get_logger(module=name)
    return bound
