"""Memory as something that one can do without: what `memstream.stateful` and `memstream.openai.AsyncSession` share.

An instance is a name, that of a session store and of a memory store. Where memory cannot be had there is one warning
for each cause, and `unavailable` counts what was done without.
"""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

from memstream.errors import MemstreamError, PermissionDenied
from memstream.values import one_of

OnUnavailable = Literal["ignore", "raise"]

logger = logging.getLogger("memstream")
unavailable: Counter[str] = Counter()
_warned: set[str] = set()


class ActorMismatch(PermissionDenied):
    """The session belongs to another actor. This is never gone on without."""


def bound_instance() -> str | None:
    """The one that the platform has bound to this process."""
    return os.environ.get("LAKEBASE_INSTANCE_NAME") or None


def checked(on_unavailable: OnUnavailable) -> OnUnavailable:
    one_of("on_unavailable", on_unavailable, ("ignore", "raise"))
    return on_unavailable


@contextmanager
def tolerated(what: str, on_unavailable: OnUnavailable) -> Iterator[None]:
    """Ends the block quietly where it raises a `MemstreamError`, unless that is to be raised."""
    try:
        yield
    except ActorMismatch:
        raise
    except MemstreamError as error:
        if on_unavailable == "raise":
            raise
        unavailable[what] += 1
        cause = error.error_code or type(error).__name__
        if cause not in _warned:
            _warned.add(cause)
            hint = f" ({error.hint})" if error.hint else ""
            logger.warning("memory is not available, going on without: %s%s", cause, hint)
