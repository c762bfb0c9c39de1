"""The frame around every HTTP answer: request id, body limit, metrics, the contract's error body for any failure."""

import asyncio
import time
from collections.abc import Sequence
from typing import Annotated, Any

import msgspec
from fastapi import Depends, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from libs.chassis.auth import Caller, Verifier
from libs.chassis.errors import ApiError, Internal, InvalidParameter, NotFound, OutcomeUnknown, TooLarge, Unavailable
from libs.chassis.idempotency import HEADER as IDEMPOTENCY_HEADER
from libs.chassis.logs import logger
from libs.chassis.metrics import Metrics
from libs.contracts.ids import uuid7
from libs.contracts.limits import Limits

BODY_DEADLINE_S = 30.0

log = logger(__name__)


async def authenticated(request: Request) -> Caller:
    """The caller, or 401. Every route but health has this, which a test over the OpenAPI document holds."""
    verifier: Verifier = request.app.state.verifier
    return verifier.caller(request.headers.get("authorization"))


Authenticated = Annotated[Caller, Depends(authenticated)]


def json_response(body: Any, *, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(msgspec.json.encode(body), status, headers, "application/json")


def error_response(error: ApiError, request: Request) -> Response:
    if isinstance(error, OutcomeUnknown) and IDEMPOTENCY_HEADER in request.headers:
        error = Unavailable(
            "The connection to the database was lost before it confirmed the change. "
            "Repeat the request with the same Idempotency-Key."
        )
    headers = {} if error.retry_after_s is None else {"Retry-After": str(error.retry_after_s)}
    if error.status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    return json_response(error.body(request.state.request_id), status=error.status, headers=headers)


def frame(app: FastAPI, service: str, verifier: Verifier, metrics: Metrics, limits: Limits) -> None:
    """Puts the frame around an application; `verifier` answers `authenticated`."""
    app.state.verifier = verifier
    app.add_exception_handler(ApiError, _on_api_error)
    app.add_exception_handler(RequestValidationError, _on_invalid)
    app.add_exception_handler(HTTPException, _on_http_error)
    app.add_middleware(_Frame, service=service, metrics=metrics, body_bytes=limits.body_bytes)


async def _on_api_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, ApiError)  # noqa: S101 - registered for it
    return error_response(error, request)


async def _on_invalid(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)  # noqa: S101 - registered for it
    return error_response(InvalidParameter(describe(error.errors())), request)


async def _on_http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)  # noqa: S101 - registered for it
    if isinstance(error.__cause__, ApiError):
        return error_response(error.__cause__, request)
    if error.status_code == 404:
        return error_response(NotFound("No such endpoint."), request)
    if error.status_code == 405:
        not_allowed = InvalidParameter(f"This endpoint does not take {request.method}.")
        not_allowed.status = 405
        return error_response(not_allowed, request)
    return error_response(InvalidParameter("The body must be a JSON object in UTF-8."), request)


def describe(errors: Sequence[Any]) -> str:
    """One line that names each field and what it must be, without repeating what was sent."""
    parts = []
    for error in errors[:5]:
        where = ".".join(str(part) for part in error["loc"] if part not in ("body", "query", "path"))
        message = "must be JSON" if error["type"] == "json_invalid" else error["msg"].removeprefix("Value error, ")
        parts.append(f"{where or 'the body'}: {message}")
    return "; ".join(parts) + "."


class _Frame:
    def __init__(self, app: ASGIApp, *, service: str, metrics: Metrics, body_bytes: int) -> None:
        self._app = app
        self._service = service
        self._metrics = metrics
        self._body_bytes = body_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request = Request(scope)
        request_id = str(uuid7())
        request.state.request_id = request_id
        started, status = time.perf_counter(), 0

        async def send_framed(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message.get("headers", ()), (b"x-request-id", request_id.encode())]
            await send(message)

        try:
            if "\x00" in scope["path"]:
                raise NotFound("No name contains a NUL character.")
            await self._app(scope, self._limited(scope, receive), send_framed)
        except ApiError as error:
            await error_response(error, request)(scope, receive, send_framed)
        except Exception as failed:  # the last line: a fault of ours answers 500 and says nothing else
            log.error("request_failed", service=self._service, request_id=request_id, exc_info=failed)
            if status == 0:
                internal = Internal("The server failed on this request.", reason="INTERNAL")
                await error_response(internal, request)(scope, receive, send_framed)
        finally:
            method = scope["method"]
            self._metrics.requests.labels(self._service, method, str(status)).inc()
            self._metrics.request_seconds.labels(self._service, method).observe(time.perf_counter() - started)

    def _limited(self, scope: Scope, receive: Receive) -> Receive:
        """Counts the body as it comes; over the limit, or not whole in time, it is refused before anything is done."""
        limit = self._body_bytes
        length = next((value for name, value in scope["headers"] if name == b"content-length"), b"0")
        declared = int(length) if length.isdigit() else 0
        if not declared and scope["method"] in ("GET", "DELETE"):
            return receive
        received, ended = 0, False
        deadline = time.monotonic() + BODY_DEADLINE_S

        async def receive_limited() -> Message:
            nonlocal received, ended
            if declared > limit:
                raise TooLarge(f"The body may have at most {limit} bytes.")
            if ended:
                return await receive()
            try:
                message = await asyncio.wait_for(receive(), max(0.0, deadline - time.monotonic()))
            except TimeoutError:
                slow = InvalidParameter(f"The body did not arrive within {BODY_DEADLINE_S:g} s.")
                slow.status = 408
                raise slow from None
            if message["type"] == "http.request":
                received += len(message.get("body", b""))
                ended = not message.get("more_body", False)
                if received > limit:
                    raise TooLarge(f"The body may have at most {limit} bytes.")
            return message

        return receive_limited
