"""One HTTP connection whose memory and time are bounded, so that no client takes too much.

uvicorn's own protocol accepts a head of any size, waits for it for ever, parses every request of a
pipeline at once, and leaves the connection of a client that does not read open. Here each of these
has a bound. The application bounds the time between a head and its answer.
"""

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Any

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from engine.process.http_limits import (
    PIECE_BYTES,
    HttpLimits,
    RequestRefusedError,
    RequestSize,
    refusal,
)
from engine.process.joined_writes import JoinedWrites

_HELD_BYTES = 128 * 1024
_NOT_HTTP = (400, "this is not HTTP/1.1")


class BoundedProtocol(HttpToolsProtocol):
    """One connection within `limits`.

    Bytes go to the parser in pieces, and none while a request of the pipeline waits. So at most one
    piece is parsed and unanswered, and at most one read is not parsed. `is_admitted` says whether
    the server has room for the connection; `refusals` counts refused requests and closed
    connections by status or reason.
    """

    def __init__(
        self,
        *args: Any,
        limits: HttpLimits,
        is_admitted: Callable[["BoundedProtocol"], bool],
        refusals: Counter[str],
        **options: Any,
    ) -> None:
        super().__init__(*args, **options)
        self._limits = limits
        self._is_admitted = is_admitted
        self._refusals = refusals
        self._held = bytearray()
        self._refused = False
        self._size = RequestSize(limits)
        self._waits_since = self.loop.time()
        self._head_since: float | None = None
        self._write_stalled_since: float | None = None
        self._closing_since: float | None = None

    # Callbacks of the transport.

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Accept the connection if there is room, or if room can be made."""
        super().connection_made(JoinedWrites(transport, self.loop))
        if not self._is_admitted(self):
            self._refuse(503, "too many connections; try again")

    def data_received(self, data: bytes) -> None:
        """Parse as much as may be parsed now."""
        if self._refused:
            return
        if self._waiting and self._head_since is None:
            self._head_since = self.loop.time()
        self._held += data
        self._parse()
        if len(self._held) > _HELD_BYTES:
            self._refuse(413, "too much was sent before the answer to what came before")

    def pause_writing(self) -> None:
        """The client reads slowly."""
        super().pause_writing()
        self._write_stalled_since = self.loop.time()

    def resume_writing(self) -> None:
        """The client has read the written bytes."""
        super().resume_writing()
        self._write_stalled_since = None

    # Callbacks of the parser.

    def on_message_begin(self) -> None:
        """A head begins."""
        super().on_message_begin()
        self._head_since = self._head_since or self.loop.time()
        self._size.begin()

    def on_url(self, url: bytes) -> None:
        """A part of the path."""
        super().on_url(url)
        self._size.add_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header, or a trailer: trailers count as headers and are dropped."""
        self._size.add_header(name, value)
        if self._size.in_head:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """The head is complete."""
        self._size.end_head()
        self._head_since = None
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """The body is complete; another head may follow."""
        self._size.end_body()
        self._head_since = None
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """The answer is written: the next request may begin."""
        more = bool(self.pipeline)
        super().on_response_complete()
        self._waits_since = self.loop.time()
        self._head_since = None
        if self._refused and not more:
            self.transport.close()
        elif self._held:
            # Later, because the application has not returned yet.
            self.loop.call_soon(self._parse)

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002
        """uvicorn's own refusal, in the form of the others."""
        self._refuse(*_NOT_HTTP)

    # Calls of the server.

    def sweep(self, now: float) -> None:
        """Close the connection if one of its deadlines has passed."""
        limits = self._limits
        if self.transport.is_closing():
            self._closing_since = self._closing_since or now
            if now - self._closing_since > limits.stall_seconds:
                self._abort("stalled")
        elif self._write_stalled_since and now - self._write_stalled_since > limits.stall_seconds:
            self._abort("stalled")
        elif not self._waiting:
            return
        elif self._head_since is not None:
            if now - self._head_since > limits.head_seconds:
                self._refuse(408, "the head of the request took too long")
        elif now - self._waits_since > limits.idle_seconds:
            self.transport.close()

    def idle_since(self) -> float | None:
        """How long the connection has waited for a head; None when it has one."""
        return self._waits_since if self._waiting and not self.transport.is_closing() else None

    def close_for_another(self) -> None:
        """Close at once, to make room for another connection."""
        self._abort("gave_way")

    @property
    def _waiting(self) -> bool:
        return not self.pipeline and self._answered

    @property
    def _answered(self) -> bool:
        """Whether every request so far is answered."""
        last: RequestResponseCycle | None = self.cycle  # None until the first one
        return last is None or last.response_complete

    def _parse(self) -> None:
        self._unset_keepalive_if_required()
        while self._held and not self._refused and not self.pipeline and self.parser is not None:
            piece = bytes(self._held[:PIECE_BYTES])
            del self._held[:PIECE_BYTES]
            try:
                self._size.add_piece(len(piece))
                self.parser.feed_data(piece)
            except httptools.HttpParserUpgrade:
                # A change of protocol is refused: the request is answered, and is the last one.
                self._refused = True
                self._held.clear()
                self.cycle.keep_alive = False
            except (httptools.HttpParserError, RequestRefusedError) as error:
                # The parser wraps what its callbacks raise.
                cause = error if isinstance(error, RequestRefusedError) else error.__context__
                if isinstance(cause, RequestRefusedError):
                    self._refuse(cause.status, cause.message)
                else:
                    self._refuse(*_NOT_HTTP)
        if self._held and not self._refused:
            self.flow.pause_reading()

    def _refuse(self, status: int, message: str) -> None:
        """Stop reading, and answer with the reason, unless another answer is being written."""
        self._refused = True
        self._held.clear()
        self._refusals[str(status)] += 1
        answered = self._answered
        if answered and self._size.in_head:
            self.transport.write(refusal(status, message))
            self.transport.close()
        elif answered or not self._size.in_head:
            # In the middle of a body, whose request is answered or will not be.
            self.transport.close()
        else:
            # Waiting requests are dropped: the current answer is the last.
            self.flow.pause_reading()
            self.pipeline.clear()

    def _abort(self, reason: str) -> None:
        self._refusals[reason] += 1
        self.transport.abort()
