"""One connection of HTTP/1.1, over h11, whose replies are parsed within a budget."""

import time
from dataclasses import dataclass

import h11

from connectors.errors import PeerError, ReplyLimitError, SendError
from connectors.reply_budget import ReplyBudget
from connectors.streams import PIECE_BYTES, BoundedStream

_HEAD_BYTES = 64 * 1024
_SWITCHING = 101

RawHeaders = list[tuple[bytes, bytes]]


@dataclass(frozen=True, slots=True, kw_only=True)
class RawRequest:
    """A request in the form in which it is sent: names in lower case, the target escaped."""

    method: str
    target: bytes
    headers: RawHeaders
    body: bytes


@dataclass(frozen=True, slots=True)
class RawReply:
    """A complete reply, its headers and body unchanged."""

    status: int
    headers: RawHeaders
    body: bytes


class HttpConnection:
    """Makes one exchange after the other over a connected stream. The owner closes it.

    The connection may be idle for `idle_seconds`.
    """

    def __init__(self, stream: BoundedStream, *, idle_seconds: float) -> None:
        self._stream = stream
        self._idle_seconds = idle_seconds
        self._expires = 0.0
        self._idle = False
        self._http = h11.Connection(h11.CLIENT, max_incomplete_event_size=_HEAD_BYTES)

    async def exchange(
        self, message: RawRequest, *, budget: ReplyBudget, body_bytes: int
    ) -> RawReply:
        """Send a request and read its whole reply, with a body of `body_bytes` at most.

        Raises PeerError, ReplyLimitError, OSError, and h11.LocalProtocolError for a request that
        is not valid. After an error or a cancellation the connection cannot be used again.
        """
        self._idle = False
        self._stream.budget = budget
        await self._send(message)
        head = await self._head(budget)
        body = b"" if head.status_code == _SWITCHING else await self._body(budget, body_bytes)
        self._rest()
        return RawReply(head.status_code, list(head.headers), body)

    @property
    def is_idle(self) -> bool:
        """Whether the connection can be used for another exchange, as far as this side knows."""
        return self._idle

    @property
    def has_expired(self) -> bool:
        """Whether it was idle for too long, or the service has hung up or sent data unasked."""
        return time.monotonic() > self._expires or self._stream.has_more()

    def close(self) -> None:
        """Close at once, without waiting for the peer."""
        self._idle = False
        self._stream.close()

    async def _send(self, message: RawRequest) -> None:
        request = h11.Request(method=message.method, target=message.target, headers=message.headers)
        parts = [self._http.send(request)]
        if message.body:
            parts.append(self._http.send(h11.Data(data=message.body)))
        parts.append(self._http.send(h11.EndOfMessage()))
        try:
            await self._stream.write(b"".join(part for part in parts if part))
        except SendError:
            # A service that hangs up before it has read the whole request may have replied already.
            return

    async def _head(self, budget: ReplyBudget) -> h11.Response | h11.InformationalResponse:
        while True:
            event = await self._next(budget)
            if isinstance(event, h11.Response):
                return event
            if isinstance(event, h11.InformationalResponse):
                if event.status_code == _SWITCHING:
                    return event
            else:
                raise PeerError("no reply")

    async def _body(self, budget: ReplyBudget, most: int) -> bytes:
        body = bytearray()
        while isinstance(event := await self._next(budget), h11.Data):
            body += event.data
            if len(body) > most:
                raise ReplyLimitError(f"a reply of more than {most} bytes")
        return bytes(body)

    async def _next(self, budget: ReplyBudget) -> object:
        """The next event of the reply."""
        while (event := self._parse()) is h11.NEED_DATA:
            is_head = self._http.their_state is h11.SEND_RESPONSE
            data = await self._stream.read(PIECE_BYTES)
            await budget.take_read(data, is_head=is_head)
            self._http.receive_data(data)
        await budget.take_event()
        return event

    def _parse(self) -> object:
        try:
            return self._http.next_event()
        except Exception as error:
            # (Any other error that h11 raises is a defect of h11 that this reply has triggered.)
            raise PeerError(type(error).__name__) from error

    def _rest(self) -> None:
        """Make the connection idle, if it stays open and no data is left over.

        Left over data would be taken for the reply to the next request.
        """
        done = (self._http.our_state, self._http.their_state) == (h11.DONE, h11.DONE)
        if done and not self._http.trailing_data[0]:
            self._http.start_next_cycle()
            self._idle = True
            self._expires = time.monotonic() + self._idle_seconds
