"""Pieces that are written one after the other are sent together, in order, and none is lost."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator

import pytest

from engine.process.joined_writes import JoinedWrites
from tests.servers.waiting import eventually


class Written:
    """A transport, and the socket that receives what it sends."""

    def __init__(self, transport: asyncio.Transport, receiver: socket.socket) -> None:
        self.transport = JoinedWrites(transport, asyncio.get_running_loop())
        self._receiver = receiver
        self._received = b""

    def received(self) -> bytes:
        """Everything so far."""
        with contextlib.suppress(BlockingIOError):
            while data := self._receiver.recv(65536):
                self._received += data
        return self._received

    async def receives(self, data: bytes) -> bool:
        await eventually(lambda: self.received() == data, deadline=30)
        return True


@pytest.fixture
async def written() -> AsyncIterator[Written]:
    sender, receiver = socket.socketpair()
    receiver.setblocking(False)
    transport, _ = await asyncio.get_running_loop().create_connection(asyncio.Protocol, sock=sender)
    yield Written(transport, receiver)
    transport.abort()
    receiver.close()


async def test_a_piece_waits_for_the_next_one(written: Written) -> None:
    written.transport.write(b"head ")
    assert written.received() == b""
    written.transport.write(b"body")
    assert written.received() == b"head body"


async def test_a_piece_does_not_wait_for_long(written: Written) -> None:
    written.transport.write(b"head")
    await asyncio.sleep(0)
    assert written.received() == b"head"


async def test_a_long_piece_does_not_wait(written: Written) -> None:
    """It counts for the transport at once, which stops a writer whose reader is slow."""
    written.transport.write(b"x" * 10_000)
    assert written.received() == b"x" * 10_000


async def test_the_order_stays(written: Written) -> None:
    pieces = [b"%d " % number * (number % 70 * 40) for number in range(300)]
    for number, piece in enumerate(pieces):
        if number % 3:
            written.transport.write(piece)
        else:
            written.transport.writelines([piece[:1], piece[1:]])
        if number % 11 == 0:
            await asyncio.sleep(0)
    assert await written.receives(b"".join(pieces))


async def test_closing_sends_what_waits(written: Written) -> None:
    written.transport.write(b"the reason")
    written.transport.close()
    assert written.transport.is_closing()
    assert await written.receives(b"the reason")


async def test_after_aborting_nothing_is_sent(written: Written) -> None:
    written.transport.write(b"too late")
    written.transport.abort()
    await asyncio.sleep(0)
    assert written.transport.is_closing()
    assert written.received() == b""
