"""uvicorn's HTTP/1.1 with an end to every wait: for a request's head, its body, and a client that takes no answer.

httptools bounds neither the size of a head nor its time, and uvicorn lets go of an idle connection's timer at the first
byte. What comes whole in one piece, as nearly every request does, costs no timer. A body's size is the frame's.
"""

import asyncio
from typing import ClassVar

import msgspec
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from libs.chassis.errors import ApiError, InvalidParameter
from libs.contracts.ids import uuid7
from libs.contracts.limits import Limits

ANSWERED = "answered"  # in a scope's state: the status with which the connection itself has answered the request


def bounded_http(limits: Limits) -> type[asyncio.Protocol]:
    """The protocol for `uvicorn.Config(http=...)`."""
    return type("BoundedHttp", (BoundedHttp,), {"limits": limits})


class BoundedHttp(HttpToolsProtocol):
    limits: ClassVar[Limits] = Limits()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._is_in_head = False
        self._head_bytes = 0
        self._head_timer: asyncio.TimerHandle | None = None
        self._body_timer: asyncio.TimerHandle | None = None
        self._answer_timer: asyncio.TimerHandle | None = None
        # Until its first byte it is as idle as between two requests.
        self.timeout_keep_alive_task = self.loop.call_later(self.timeout_keep_alive, self.timeout_keep_alive_handler)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._unset_keepalive_if_required()
        self._end_head()
        self._end_body()
        self._end_answer()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._is_in_head:
            self._head_bytes += len(data)
            if self._head_bytes > self.limits.head_bytes:
                error = InvalidParameter(f"The headers may have at most {self.limits.head_bytes} bytes.")
                error.status = 431
                self._refuse(error)
                return
        elif self.cycle is not None and not self.cycle.response_complete:
            self._wait_for_body()
            return  # a request is under way
        if self._head_timer is None:
            self._head_timer = self.loop.call_later(self.limits.head_deadline_s, self._close)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._is_in_head = True

    def on_headers_complete(self) -> None:
        self._is_in_head = False
        self._end_head()
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._end_body()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._wait_for_body()

    def send_400_response(self, msg: str) -> None:
        self._refuse(InvalidParameter("The request is not HTTP/1.1."))

    def _wait_for_body(self) -> None:
        """Not while an answer before it is under way: until then nobody reads."""
        if self.cycle.more_body and not self.pipeline and self._body_timer is None:
            self._body_timer = self.loop.call_later(self.limits.body_deadline_s, self._refuse_slow_body)

    def _refuse_slow_body(self) -> None:
        """Nothing was done: what answers a request waits for its body first."""
        if self.cycle.response_started:
            self.transport.close()
            return
        error = InvalidParameter(f"The body did not arrive within {self.limits.body_deadline_s:g} s.")
        error.status = 408
        self.cycle.scope["state"][ANSWERED] = error.status
        self._answer(error)

    def _refuse(self, error: ApiError) -> None:
        """Of a request whose head is wrong: an answer, unless one before it is still to be given on this connection."""
        if self.cycle is None or self.cycle.response_complete:
            self._answer(error)
        else:
            self._close()

    def _answer(self, error: ApiError) -> None:
        body = msgspec.json.encode(error.body(str(uuid7())))
        self.transport.write(
            STATUS_LINE[error.status]
            + b"content-type: application/json\r\nconnection: close\r\ncontent-length: %d\r\n\r\n" % len(body)
            + body
        )
        self.transport.close()

    def _close(self) -> None:
        """Once the request before is answered, if one is under way: it has its answer, whatever comes behind it."""
        if self.cycle is None or self.cycle.response_complete:
            self.transport.close()
        else:
            self.cycle.keep_alive = False
            self.flow.pause_reading()

    def _end_head(self) -> None:
        self._head_bytes = 0
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _end_body(self) -> None:
        if self._body_timer is not None:
            self._body_timer.cancel()
            self._body_timer = None

    def pause_writing(self) -> None:
        super().pause_writing()
        self._wait_for_reader()

    def resume_writing(self) -> None:
        self._end_answer()
        super().resume_writing()

    def _wait_for_reader(self) -> None:
        self._answer_timer = self.loop.call_later(
            self.limits.answer_deadline_s, self._look_at_reader, self.transport.get_write_buffer_size()
        )

    def _look_at_reader(self, waiting_bytes: int) -> None:
        """A slow reader is served, however long it takes; one that took nothing at all is left."""
        if self.transport.get_write_buffer_size() < waiting_bytes:
            self._wait_for_reader()
        else:
            self.transport.abort()

    def _end_answer(self) -> None:
        if self._answer_timer is not None:
            self._answer_timer.cancel()
            self._answer_timer = None
