"""The frame around every HTTP answer: request id, limits, metrics, the contract's error body for any failure."""

import json
import time
from collections.abc import Sequence
from typing import Annotated, Any, TypeVar

import msgspec
from fastapi import Depends, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.routing import Match, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from libs.chassis.auth import Caller, Verifier
from libs.chassis.errors import ApiError, Internal, InvalidParameter, NotFound, OutcomeUnknown, TooLarge, Unavailable
from libs.chassis.limits import Admission
from libs.chassis.logs import logger
from libs.chassis.metrics import Metrics
from libs.chassis.wire import ANSWERED
from libs.contracts.ids import uuid7
from libs.contracts.limits import Limits

GONE = 499  # in the metrics: the client left before an answer

log = logger(__name__)
ModelT = TypeVar("ModelT", bound=BaseModel)


async def authenticated(request: Request) -> Caller:
    """The caller, or 401. Every route but health has this, which a test over the OpenAPI document holds."""
    caller: Caller | ApiError = request.scope["state"]["caller"]
    if isinstance(caller, ApiError):
        raise caller
    return caller


Authenticated = Annotated[Caller, Depends(authenticated)]


async def json_body(request: Request, model: type[ModelT]) -> ModelT:
    """What a plain route is sent: JSON whatever its Content-Type says; half a surrogate pair is text, as in FastAPI."""
    body = await request.body()
    try:
        return model.model_validate(json.loads(body.decode()))
    except ValidationError as invalid:
        errors = [{**error, "loc": ("body", *error["loc"])} for error in invalid.errors()]
        raise InvalidParameter(describe(errors)) from None
    except (ValueError, RecursionError):
        raise InvalidParameter(f"{NOT_JSON}.") from None


def json_response(body: Any, *, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(msgspec.json.encode(body), status, headers, "application/json")


def error_response(error: ApiError, request: Request) -> Response:
    if isinstance(error, OutcomeUnknown) and getattr(request.state, "takes_key", False):
        error = Unavailable(
            "The connection to the database was lost before it confirmed the change. "
            "Repeat the request with the same Idempotency-Key."
        )
    headers = {} if error.retry_after_s is None else {"Retry-After": str(error.retry_after_s)}
    if error.status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    return json_response(error.body(request.state.request_id), status=error.status, headers=headers)


def frame(
    app: FastAPI,
    service: str,
    verifier: Verifier,
    metrics: Metrics,
    limits: Limits,
    plain: Sequence[Route] = (),
) -> None:
    """Puts the frame around an application; `verifier` answers `authenticated`, `plain` routes skip FastAPI."""
    app.add_exception_handler(ApiError, _on_api_error)
    app.add_exception_handler(RequestValidationError, _on_invalid)
    app.add_exception_handler(HTTPException, _on_http_error)
    app.add_middleware(_Frame, service=service, verifier=verifier, metrics=metrics, limits=limits, plain=plain)


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


NOT_JSON = "the body must be a JSON object, sent with Content-Type: application/json"
NOT_AN_OBJECT = {"json_invalid", "model_attributes_type", "dict_type", "model_type"}


def describe(errors: Sequence[Any]) -> str:
    """One line that names each field and what it must be, without repeating what was sent."""
    parts = []
    for error in errors[:5]:
        where = ".".join(str(part) for part in error["loc"] if part not in ("body", "query", "path"))
        if error["type"] in NOT_AN_OBJECT and (error["loc"] == ("body",) or error["type"] == "json_invalid"):
            parts.append(NOT_JSON)
            continue
        message = error["msg"].removeprefix("Value error, ")
        parts.append(f"{where or 'the body'}: {message}")
    return "; ".join(parts) + "."


class _Frame:
    def __init__(
        self,
        app: ASGIApp,
        *,
        service: str,
        verifier: Verifier,
        metrics: Metrics,
        limits: Limits,
        plain: Sequence[Route],
    ) -> None:
        self._app = app
        self._plain = plain
        self._service = service
        self._verifier = verifier
        self._measured = metrics.http(service)
        self._limits = limits
        self._admission = Admission(limits.requests_per_workspace)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id = str(uuid7())
        caller = self._caller(scope)
        scope.setdefault("state", {}).update(request_id=request_id, caller=caller)
        admitted: Caller | None = None
        started, status = time.perf_counter(), 0

        async def send_framed(message: Message) -> None:
            nonlocal status, admitted
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message.get("headers", ()), (b"x-request-id", request_id.encode())]
                if admitted:  # a watch goes on for hours, and costs next to nothing
                    self._admission.leave(admitted.workspace_id)
                    admitted = None
            await send(message)

        try:
            self._check_head(scope)
            if isinstance(caller, Caller):
                self._admission.enter(caller.workspace_id)
                admitted = caller
            await self._answer(scope, self._limited(scope, receive, caller), send_framed)
        except ApiError as error:
            await error_response(error, Request(scope))(scope, receive, send_framed)
        except ClientDisconnect:
            status = status or GONE
        except Exception as failed:  # the last line: a fault of ours answers 500 and says nothing else
            log.error("request_failed", service=self._service, request_id=request_id, exc_info=failed)
            if status == 0:
                internal = Internal("The server failed on this request.", reason="INTERNAL")
                await error_response(internal, Request(scope))(scope, receive, send_framed)
        finally:
            if admitted:
                self._admission.leave(admitted.workspace_id)
            status = scope["state"].get(ANSWERED, status)
            self._measured(scope["method"], status, time.perf_counter() - started)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        for route in self._plain:
            match, matched = route.matches(scope)
            if match is Match.FULL:
                scope.update(matched)
                response = await route.endpoint(Request(scope, receive))
                await response(scope, receive, send)
                return
        await self._app(scope, receive, send)

    def _caller(self, scope: Scope) -> Caller | ApiError:
        """Who calls, or why nobody does; a route that needs no token does not ask."""
        try:
            value = next((value for name, value in scope["headers"] if name == b"authorization"), None)
            return self._verifier.caller(None if value is None else value.decode("latin-1"))
        except ApiError as refused:
            return refused

    def _check_head(self, scope: Scope) -> None:
        limit = self._limits.head_bytes
        size = len(scope["path"]) + len(scope["query_string"])
        if size + sum([len(name) + len(value) for name, value in scope["headers"]]) > limit:
            error = InvalidParameter(f"The address and the headers may have at most {limit} bytes.")
            error.status = 431
            raise error
        if "\x00" in scope["path"]:
            raise NotFound("No name contains a NUL character.")

    def _limited(self, scope: Scope, receive: Receive, caller: Caller | ApiError) -> Receive:
        """Counts the body as it comes; over the limit it is refused before anything is done.

        Nobody's body is not read at all.
        """
        limit = self._limits.body_bytes
        length = next((value for name, value in scope["headers"] if name == b"content-length"), b"0")
        declared = int(length) if length.isdigit() else 0
        if not declared and scope["method"] in ("GET", "DELETE"):
            return receive
        received = 0

        async def receive_limited() -> Message:
            nonlocal received
            if isinstance(caller, ApiError):
                raise caller
            if declared > limit:
                raise TooLarge(f"The body may have at most {limit} bytes.")
            message = await receive()
            if message["type"] == "http.request":
                received += len(message.get("body", b""))
                if received > limit:
                    raise TooLarge(f"The body may have at most {limit} bytes.")
            return message

        return receive_limited
