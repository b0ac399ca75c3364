"""The limits of an HTTP connection, and the size of its current request. Pure."""

from dataclasses import dataclass
from http import HTTPStatus

import msgspec

PIECE_BYTES = 4096
_HEADER_OVERHEAD = len(": \r\n")


@dataclass(frozen=True, kw_only=True)
class HttpLimits:
    """The limits of one connection, and the number of connections.

    `head_bytes` and `headers` bound a request's head, trailers included; `message_bytes` bounds a
    body with its framing. `head_seconds` is the time for a head from its first byte, `idle_seconds`
    for its first byte, `stall_seconds` for a client to read what is written.
    """

    head_bytes: int = 64 * 1024
    headers: int = 100
    message_bytes: int = 256 * 1024
    connections: int = 100
    head_seconds: float = 10.0
    idle_seconds: float = 30.0
    stall_seconds: float = 30.0


class RequestRefusedError(Exception):
    """A request is refused and not read on. `status` and `message` are the answer."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


class RequestSize:
    """Counts the size of a connection's requests, one after the other.

    `in_head` is False while a body is read. Over a limit the methods raise RequestRefusedError.
    """

    def __init__(self, limits: HttpLimits) -> None:
        self.in_head = True
        self._limits = limits
        self._piece_bytes = 0
        self._header_bytes = 0
        self._header_count = 0

    def begin(self) -> None:
        """A request begins."""
        self._header_bytes = self._header_count = 0

    def add_url(self, url: bytes) -> None:
        """The parser found a part of the path."""
        self._add_to_head(len(url))

    def add_header(self, name: bytes, value: bytes) -> None:
        """The parser found a header, or a trailer: those count as headers."""
        self._header_count += 1
        if self._header_count > self._limits.headers:
            raise RequestRefusedError(431, f"accepted: at most {self._limits.headers} header lines")
        self._add_to_head(len(name) + len(value) + _HEADER_OVERHEAD)

    def end_head(self) -> None:
        """The head is complete: the body follows."""
        self.in_head = False
        self._piece_bytes = 0

    def end_body(self) -> None:
        """The body is complete: another head may follow."""
        self.in_head = True
        self._piece_bytes = 0

    def add_piece(self, size: int) -> None:
        """Count bytes before they go to the parser, at most PIECE_BYTES.

        The parser holds back half a header, and framing, without a callback, so both are counted
        here.
        """
        self._piece_bytes += size
        if self.in_head:
            if self._piece_bytes > self._limits.head_bytes + PIECE_BYTES:
                raise self._too_large_head()
        elif self._piece_bytes > self._limits.message_bytes:
            raise RequestRefusedError(413, f"accepted: at most {self._limits.message_bytes} bytes")

    def _add_to_head(self, size: int) -> None:
        self._header_bytes += size
        if self._header_bytes > self._limits.head_bytes:
            raise self._too_large_head()

    def _too_large_head(self) -> RequestRefusedError:
        limit = self._limits.head_bytes
        return RequestRefusedError(431, f"accepted: a head of at most {limit} bytes")


def refusal(status: int, message: str) -> bytes:
    """The whole answer to a refused request."""
    body = msgspec.json.encode({"status": "error", "message": message, "code": status})
    phrase = HTTPStatus(status).phrase
    head = (
        f"HTTP/1.1 {status} {phrase}\r\ncontent-type: application/json\r\n"
        f"content-length: {len(body)}\r\ncache-control: no-store\r\nconnection: close\r\n\r\n"
    )
    return head.encode() + body
