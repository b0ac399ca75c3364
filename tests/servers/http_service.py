"""A customer's web service under the test's control: it answers, dawdles, lies, hangs or resets."""

import asyncio
import contextlib
import json
import socket
import ssl
import struct
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Self
from urllib.parse import parse_qsl, urlsplit

from engine.process.lifecycle import cancel

CONTENT = {"format": "template", "template": "<p>hello</p>", "title": "T", "push": "P"}


@dataclass
class ReceivedRequest:
    """A request as it arrived. Header names in lower case."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes
    at: float = field(default_factory=time.time)

    @property
    def path(self) -> str:
        return urlsplit(self.target).path

    @property
    def query(self) -> list[tuple[str, str]]:
        return parse_qsl(urlsplit(self.target).query, keep_blank_values=True)

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def id(self) -> str:
        return self.headers["idempotency-key"]


Answer = Callable[[ReceivedRequest, asyncio.StreamWriter], Awaitable[None]]


def replying(
    status: int = 200, body: bytes | object = None, after: float = 0.0, **headers: str
) -> Answer:
    """A whole reply; a body that is no bytes goes as JSON. `after` in seconds."""
    raw = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
    lines = [f"HTTP/1.1 {status} whatever", f"content-length: {len(raw)}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    whole = "\r\n".join([*lines, "", ""]).encode() + raw

    async def answer(_request: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        if after:
            await asyncio.sleep(after)  # the service's own slowness
        writer.write(whole)

    return answer


def content(after: float = 0.0, **fields: Any) -> Answer:
    """Content for a notification."""
    return replying(200, CONTENT | fields, after=after, content_type="application/json")


async def hanging(_request: ReceivedRequest, _writer: asyncio.StreamWriter) -> None:
    """Never answers."""
    await asyncio.Event().wait()


async def resetting(_request: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
    """Breaks the connection off."""
    connection = writer.get_extra_info("socket")
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


async def hanging_up(_request: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
    """Closes without a word."""
    writer.close()


def writing(*pieces: bytes, pause: float = 0.0, close: bool = True) -> Answer:
    """Raw bytes, piece by piece."""

    async def answer(_request: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(pause)  # the service's own slowness
        if close:
            writer.close()

    return answer


async def endless(_request: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
    """A body without an end, as fast as it is read."""
    writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
    while True:
        writer.write(b"1000\r\n" + b"x" * 4096 + b"\r\n")
        await writer.drain()


# Turns of the loop from an accepted connection to its handler's first step. A handler that is
# cancelled before it has started never closes its connection.
_STEPS_TO_SERVE = 5


class HttpService:
    """A server on loopback. `answer` may be set at any time; `received` is what has arrived."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.received: list[ReceivedRequest] = []
        self.connections = 0
        self.port = 0
        self.scheme = "http"
        self._serving: set[asyncio.Task[None]] = set()

    def url(self, path: str = "/", host: str = "127.0.0.1") -> str:
        """The address of `path`."""
        return f"{self.scheme}://{host}:{self.port}{path}"

    @asynccontextmanager
    async def running(
        self, *, tls: ssl.SSLContext | None = None, host: str = "127.0.0.1", port: int = 0
    ) -> AsyncIterator[Self]:
        """Serve within the context."""
        server = await asyncio.start_server(self._serve, host, port, ssl=tls, backlog=1024)
        self.port = server.sockets[0].getsockname()[1]
        self.scheme = "http" if tls is None else "https"
        try:
            yield self
        finally:
            server.close()
            for _ in range(_STEPS_TO_SERVE):
                await asyncio.sleep(0)
            await cancel(self._serving)
            await server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._serving.add(task)
        self.connections += 1
        try:
            # asyncio's streams complain of a handler that is cancelled, as this one's end is.
            ends = (asyncio.IncompleteReadError, asyncio.CancelledError, OSError)
            with contextlib.suppress(*ends):
                while not writer.is_closing():
                    received = await _read(reader)
                    self.received.append(received)
                    await self.answer(received, writer)
        finally:
            self._serving.discard(task)
            writer.transport.abort()


async def _read(reader: asyncio.StreamReader) -> ReceivedRequest:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    first, *lines = head.rstrip().split("\r\n")
    method, target, _ = first.split(" ", 2)
    headers = {}
    for line in lines:
        name, _, value = line.partition(":")
        headers[name.lower()] = value.strip()
    body = await reader.readexactly(int(headers.get("content-length", 0)))
    return ReceivedRequest(method, target, headers, body)


@asynccontextmanager
async def serving(answer: Answer, **options: Any) -> AsyncIterator[HttpService]:
    """A service that runs within the context."""
    async with HttpService(answer).running(**options) as service:
        yield service
