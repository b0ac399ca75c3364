"""Services whose answers are as costly to read as possible."""

import asyncio
from typing import Any

from tests.servers.http_service import Answer, ReceivedRequest, writing

CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
INTERIM = b"HTTP/1.1 103 Early Hints\r\n\r\n"
_ONE_BYTE_CHUNKS = CHUNKED + b"1\r\nx\r\n" * 60_000 + b"0\r\n\r\n"
_FLOOD_SECONDS = 2.5


async def interim_replies(_request: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
    """2.5 s of interim replies, as fast as they are read."""
    until = asyncio.get_running_loop().time() + _FLOOD_SECONDS
    while asyncio.get_running_loop().time() < until:
        writer.write(INTERIM * 500)
        await writer.drain()
        await asyncio.sleep(0)  # the service's other calls are flooded as well
    writer.close()


async def one_byte_a_millisecond(_request: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
    """A body that comes byte by byte, each in a packet of its own."""
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 60000\r\n\r\n")
    for _ in range(60_000):
        writer.write(b"x")
        await writer.drain()
        await asyncio.sleep(0.001)  # the service's own slowness


async def last_line_missing(_request: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
    """Header lines without an end."""
    writer.write(b"HTTP/1.1 200 OK\r\n")
    while True:
        writer.write(b"a:\r\n" * 1000)
        await writer.drain()
        await asyncio.sleep(0)  # the service's other calls are flooded as well


# Each is cut off by a limit, or by the deadline where it is slow to begin with.
BURNING: dict[str, Answer] = {
    "chunks": writing(_ONE_BYTE_CHUNKS),
    "interim": interim_replies,
    "heads": last_line_missing,
    "bytes": one_byte_a_millisecond,
}


def together(answer: Answer, count: int) -> Answer:
    """No request is answered before there are `count`; then all are."""
    requested = 0
    full = asyncio.Event()

    async def answer_together(received: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        nonlocal requested
        requested += 1
        if requested >= count:
            full.set()
        await full.wait()
        await answer(received, writer)

    return answer_together


def head(*lines: bytes, body: bytes = b"{}") -> Any:
    """A whole reply with these header lines."""
    return writing(b"\r\n".join([b"HTTP/1.1 200 OK", *lines, b"", b""]) + body)
