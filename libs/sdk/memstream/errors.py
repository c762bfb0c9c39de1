"""What a call can raise.

MemstreamError                everything below
  InvalidParameterValue 400   FailedPrecondition 400   Unauthenticated 401   PermissionDenied 403
  NotFound 404                AlreadyExists 409        Aborted 409
  ResourceExhausted 429, Unavailable 503   raised only after retries; nothing was written
  InternalError 500           Unreachable              no answer came

An argument that cannot be right is a `ValueError`, raised before any call.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any


class MemstreamError(Exception):
    """`error_code` is the server's, or None for a fault found on this side. `hint` says what may help."""

    def __init__(
        self,
        message: str,
        *,
        error_code: str | None = None,
        hint: str | None = None,
        status: int | None = None,
        reason: str | None = None,
        metadata: Mapping[str, str] | None = None,
        request_id: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.error_code = error_code
        self.hint = hint
        self.status = status
        self.reason = reason
        self.metadata = dict(metadata or {})
        self.request_id = request_id


class InvalidParameterValue(MemstreamError):
    """What was sent is wrong; the message says what is allowed."""


class FailedPrecondition(MemstreamError):
    """The state does not allow it."""


class Unauthenticated(MemstreamError):
    """The token is missing, invalid or expired."""


class PermissionDenied(MemstreamError):
    """The caller lacks access to the store."""


class NotFound(MemstreamError):
    """There is no such resource in this workspace."""


class AlreadyExists(MemstreamError):
    """The id or key is taken."""


class Aborted(MemstreamError):
    """Somebody else changed it first: read again, then repeat."""


class ResourceExhausted(MemstreamError):
    """Too many requests, also after waiting as told."""


class Unavailable(MemstreamError):
    """The server could not serve, also after waiting as told; nothing was written."""


class InternalError(MemstreamError):
    """A fault of the server. With reason `OUTCOME_UNKNOWN` the change may have happened."""


class Unreachable(MemstreamError):
    """No answer came."""


BY_CODE: dict[str, type[MemstreamError]] = {
    "INVALID_PARAMETER_VALUE": InvalidParameterValue,
    "FAILED_PRECONDITION": FailedPrecondition,
    "UNAUTHENTICATED": Unauthenticated,
    "PERMISSION_DENIED": PermissionDenied,
    "NOT_FOUND": NotFound,
    "RESOURCE_DOES_NOT_EXIST": NotFound,
    "ALREADY_EXISTS": AlreadyExists,
    "RESOURCE_ALREADY_EXISTS": AlreadyExists,
    "ABORTED": Aborted,
    "RESOURCE_EXHAUSTED": ResourceExhausted,
    "UNAVAILABLE": Unavailable,
    "TEMPORARILY_UNAVAILABLE": Unavailable,
    "INTERNAL_ERROR": InternalError,
}
BY_STATUS: dict[int, type[MemstreamError]] = {
    401: Unauthenticated,
    403: PermissionDenied,
    404: NotFound,
    429: ResourceExhausted,
    503: Unavailable,
}
# The commands of hints work as they stand, also the name in them.
ISSUE = "memstream tokens issue --user you@example.com"
TOKEN_HINT = f"pass token= (--token) or set MEMSTREAM_TOKEN; beside the server's keys `{ISSUE}` makes one"
HINTS: dict[type[MemstreamError], str] = {
    Unauthenticated: TOKEN_HINT,
    PermissionDenied: "the store's creator or an admin can grant READ or WRITE",
}
ADMINS = re.compile(r"\badmin may ")
ADMINS_HINT = f"beside the server's keys `{ISSUE} --admin` makes an admin's token"


def error_of(status: int, body: Any) -> MemstreamError:
    """The exception for an answer that is not a success, whatever its body."""
    fields = body if isinstance(body, dict) else {}
    code = fields.get("error_code")
    kind = BY_CODE.get(str(code)) or BY_STATUS.get(status, MemstreamError)
    details = [detail for detail in fields.get("details") or () if isinstance(detail, dict)]
    info = next((detail for detail in details if "reason" in detail), {})
    message = str(fields.get("message") or f"The server answered with status {status}.")
    return kind(
        message,
        error_code=str(code) if code else None,
        hint=_hint(kind, message),
        status=status,
        reason=info.get("reason"),
        metadata=info.get("metadata"),
        request_id=next((detail["request_id"] for detail in details if "request_id" in detail), None),
    )


def _hint(kind: type[MemstreamError], message: str) -> str | None:
    """What no grant can give needs another token."""
    return ADMINS_HINT if kind is PermissionDenied and ADMINS.search(message) else HINTS.get(kind)
