"""Bare connections that send what no HTTP client would send."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterable

Pair = tuple[asyncio.StreamReader, asyncio.StreamWriter]
CLOSED = (ConnectionError, OSError, asyncio.IncompleteReadError)


@contextlib.asynccontextmanager
async def connected(port: int) -> AsyncIterator[Pair]:
    """A connection, aborted at the end."""
    pair = await asyncio.open_connection("127.0.0.1", port)
    try:
        yield pair
    finally:
        pair[1].transport.abort()


async def read_until_closed(reader: asyncio.StreamReader, *, deadline: float = 30.0) -> bytes:
    """All bytes until the server closes the connection. Raises TimeoutError."""
    found = b""
    async with asyncio.timeout(deadline):
        while True:
            try:
                piece = await reader.read(65_536)
            except CLOSED:
                return found
            if not piece:
                return found
            found += piece


async def send_all(writer: asyncio.StreamWriter, pieces: Iterable[bytes]) -> int:
    """Send until the server closes the connection. Returns the number of sent bytes."""
    sent = 0
    for piece in pieces:
        try:
            writer.write(piece)
            await writer.drain()
        except CLOSED:
            break
        if writer.is_closing():
            break
        sent += len(piece)
        # A drain that need not wait gives the loop no turn, and the end would not be seen.
        await asyncio.sleep(0)
    return sent


def status_of(answer: bytes) -> int:
    """The status of the first answer in these bytes."""
    return int(answer.split(b" ", 2)[1]) if answer else 0
