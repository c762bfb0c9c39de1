"""What can go wrong, for callers and for messages.

ApiError                     an answer of the public surface: status, code, message
  InvalidParameter 400         what was sent is wrong; FailedPrecondition 400: the state forbids it
  TooLarge 413                 a body or an item over its byte limit
  Unauthenticated 401          PermissionDenied 403          NotFound 404
  AlreadyExists 409            Aborted 409
  Exhausted 429, Unavailable 503   nothing was written: the published client resends any method on these
  OutcomeUnknown 500           a commit may have happened, and repeating is not safe
  Internal 500                 our fault
Retry, Reject                the fate of a message, decided in `delivery.py`
  Undone                       of a question: nothing was written
"""

from collections.abc import Mapping
from typing import Any

DOMAIN = "memstream"


class ApiError(Exception):
    """An answer of the public surface. `message` says what was wrong and what is allowed; no SQL, no foreign names."""

    status = 500
    code = "INTERNAL_ERROR"

    def __init__(
        self,
        message: str,
        *,
        reason: str | None = None,
        metadata: Mapping[str, str] | None = None,
        retry_after_s: int | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.reason = reason
        self.metadata = dict(metadata or {})
        self.retry_after_s = retry_after_s

    def body(self, request_id: str) -> dict[str, Any]:
        """The JSON that the published client parses."""
        kind = "type.googleapis.com/google.rpc."
        details: list[dict[str, Any]] = [{"@type": f"{kind}RequestInfo", "request_id": request_id}]
        if self.reason:
            details.append(
                {"@type": f"{kind}ErrorInfo", "reason": self.reason, "domain": DOMAIN, "metadata": self.metadata}
            )
        if self.retry_after_s is not None:
            details.append({"@type": f"{kind}RetryInfo", "retry_delay": f"{self.retry_after_s}s"})
        # What was sent may stand in it, half a surrogate pair too.
        message = self.message.encode(errors="replace").decode()
        return {"error_code": self.code, "message": message, "details": details}


class InvalidParameter(ApiError):
    status, code = 400, "INVALID_PARAMETER_VALUE"


class FailedPrecondition(ApiError):
    status, code = 400, "FAILED_PRECONDITION"


class TooLarge(ApiError):
    status, code = 413, "INVALID_PARAMETER_VALUE"


class Unauthenticated(ApiError):
    status, code = 401, "UNAUTHENTICATED"


class PermissionDenied(ApiError):
    status, code = 403, "PERMISSION_DENIED"


class NotFound(ApiError):
    status, code = 404, "NOT_FOUND"


class AlreadyExists(ApiError):
    status, code = 409, "ALREADY_EXISTS"


class Aborted(ApiError):
    status, code = 409, "ABORTED"


class Exhausted(ApiError):
    status, code = 429, "RESOURCE_EXHAUSTED"

    def __init__(self, message: str, *, retry_after_s: int = 1) -> None:
        super().__init__(message, retry_after_s=retry_after_s)


class Unavailable(ApiError):
    status, code = 503, "TEMPORARILY_UNAVAILABLE"

    def __init__(self, message: str = "The database cannot be reached; nothing was written.") -> None:
        super().__init__(message, retry_after_s=1)


class Contended(Unavailable):
    """The database ended a deadlock, a conflict or a long wait by refusing this, of which less may well succeed."""

    def __init__(self, message: str = "Somebody else is at work on the same; nothing was written.") -> None:
        super().__init__(message)


class OutcomeUnknown(ApiError):
    """The connection was lost after the statement was sent. With an Idempotency-Key this becomes `Unavailable`."""

    def __init__(self) -> None:
        super().__init__(
            "The connection to the database was lost before it confirmed the change, which may have happened. "
            "Read the state before repeating, or send an Idempotency-Key, with which repeating is safe.",
            reason="OUTCOME_UNKNOWN",
        )


class Internal(ApiError):
    pass


class Retry(Exception):
    """Later: the message comes back after its consumer's next delay. The text becomes the reason if it is parked."""


class Undone(Retry):
    """A question that changed nothing: it reached nobody, or the answer says so."""


class Reject(Exception):
    """Never: the message is parked at once with this text as its reason."""
