"""Clients that request one path repeatedly, each as soon as it has its answer."""

import asyncio
import time
from typing import NamedTuple, cast

from benchmarks.outside import processor_seconds

_HEAD_END = b"\r\n\r\n"
_LENGTH = b"content-length:"


class Measured(NamedTuple):
    """Answers a second, seconds of the slowest of a hundred, and the server's processor time of
    each, in seconds."""

    rate: float
    p99: float
    cost: float


class UnexpectedAnswerError(Exception):
    """The answer is not 200; the message has its beginning."""


class _Client(asyncio.Protocol):
    """One connection, one request at a time. The answer must have a content-length."""

    def __init__(self, request: bytes, until: float) -> None:
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.seconds: list[float] = []
        self.body = b""
        self._request = request
        self._until = until
        self._answer = b""
        self._sent = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._send()

    def data_received(self, data: bytes) -> None:
        self._answer += data
        head, found, body = self._answer.partition(_HEAD_END)
        if not found or len(body) < _length(head):
            return
        if not head.startswith(b"HTTP/1.1 200"):
            self.ended.set_exception(UnexpectedAnswerError(self._answer[:300].decode()))
            self._transport.close()
            return
        self.seconds.append(time.perf_counter() - self._sent)
        self.body, self._answer = body, b""
        if time.perf_counter() < self._until:
            self._send()
        else:
            self.ended.set_result(None)
            self._transport.close()

    def connection_lost(self, _error: Exception | None) -> None:
        if not self.ended.done():
            self.ended.set_exception(UnexpectedAnswerError("the connection was closed"))

    def _send(self) -> None:
        self._sent = time.perf_counter()
        self._transport.write(self._request)


def _length(head: bytes) -> int:
    (line,) = [line for line in head.lower().split(b"\r\n") if line.startswith(_LENGTH)]
    return int(line.removeprefix(_LENGTH))


def request_of(port: int, path: str, headers: dict[str, str]) -> bytes:
    """A GET as bytes."""
    lines = [f"GET {path} HTTP/1.1", f"host: 127.0.0.1:{port}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode()


async def fetch(port: int, request: bytes) -> bytes:
    """The body of one answer. Raises UnexpectedAnswerError."""
    _, client = await _connect(port, request, until=0.0)
    await client.ended
    return client.body


async def measure(port: int, request: bytes, *, pid: int, clients: int, seconds: float) -> Measured:
    """Measure the process `pid` with so many clients for so long. Raises UnexpectedAnswerError."""
    begin, used = time.perf_counter(), processor_seconds(pid)
    connected = [await _connect(port, request, until=begin + seconds) for _ in range(clients)]
    await asyncio.gather(*(client.ended for _, client in connected))
    took, used = time.perf_counter() - begin, processor_seconds(pid) - used
    times = sorted(each for _, client in connected for each in client.seconds)
    return Measured(len(times) / took, times[int(len(times) * 0.99)], used / len(times))


async def _connect(port: int, request: bytes, *, until: float) -> tuple[object, _Client]:
    loop = asyncio.get_running_loop()
    return await loop.create_connection(lambda: _Client(request, until), "127.0.0.1", port)
