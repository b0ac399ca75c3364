"""The link between a worker and its parent.

The parent opens the worker's metrics port on loopback, and sends bounded HTTP GETs to it.
"""

import asyncio
import socket
from dataclasses import dataclass
from typing import NamedTuple, Self

import h11

from catalog.deadline import within

_SECONDS = 4.0  # longer than a worker's checks take, shorter than the timeout of a scrape
_MOST_BYTES = 32 * 1024 * 1024
_PIECE = 64 * 1024
_OK = 200


class ParentProcess(NamedTuple):
    """The parent of a worker: its process id, and the socket that it opened for the worker."""

    pid: int
    listener: socket.socket

    @classmethod
    def of(cls, words: str) -> Self:
        """Parse the text `pid:descriptor`. Raises ValueError, OSError."""
        pid, _, descriptor = words.partition(":")
        return cls(int(pid), socket.socket(fileno=int(descriptor)))


@dataclass(frozen=True, slots=True)
class WorkerAnswer:
    """A complete answer."""

    status: int
    content_type: str
    body: bytes

    @property
    def ok(self) -> bool:
        """Whether the answer is the requested page."""
        return self.status == _OK


async def ask_worker(port: int, path: str, accepted: str) -> WorkerAnswer | None:
    """The answer of the worker that listens on `port`; None without a whole answer in time."""
    try:
        return await within(_SECONDS, _exchange(port, path, accepted))
    except (OSError, TimeoutError, h11.ProtocolError):
        return None


async def _exchange(port: int, path: str, accepted: str) -> WorkerAnswer | None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        http = h11.Connection(h11.CLIENT)
        headers = [("host", "127.0.0.1"), ("accept", accepted), ("connection", "close")]
        request = h11.Request(method="GET", target=path, headers=headers)
        writer.write((http.send(request) or b"") + (http.send(h11.EndOfMessage()) or b""))
        return await _answer(http, reader)
    finally:
        writer.transport.abort()


async def _answer(http: h11.Connection, reader: asyncio.StreamReader) -> WorkerAnswer | None:
    status, content_type, body = 0, "", bytearray()
    while True:
        event = http.next_event()
        if event is h11.NEED_DATA:
            http.receive_data(await reader.read(_PIECE))
        elif isinstance(event, h11.Response):
            status = event.status_code
            content_type = dict(event.headers).get(b"content-type", b"").decode("latin-1")
        elif isinstance(event, h11.Data):
            body += event.data
            if len(body) > _MOST_BYTES:
                return None
        elif isinstance(event, h11.EndOfMessage):
            return WorkerAnswer(status, content_type, bytes(body))
        else:
            return None
