"""TCP and TLS on asyncio's sockets, read a piece at a time and within a budget.

A socket is read only when a call needs data, so unread data fills the kernel's buffers and not
this process's. TLS runs in memory here, so that the bytes below it are counted and paced as well.
"""

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Callable
from typing import Protocol, TypeVar

from connectors.errors import SendError
from connectors.reply_budget import ReplyBudget

PIECE_BYTES = 16 * 1024

Result = TypeVar("Result")


class BoundedStream(Protocol):
    """One connection. The caller sets a deadline for the whole call.

    Each read is charged to `budget`, which the caller sets for each call. `read` returns the data
    that has arrived, up to `most` bytes, and b"" at the end. `write` sends all data or raises
    SendError. `has_more` says whether the peer has hung up or has sent data unasked.
    """

    budget: ReplyBudget

    async def read(self, most: int) -> bytes: ...
    async def write(self, data: bytes) -> None: ...
    def has_more(self) -> bool: ...
    def close(self) -> None: ...


class TcpStream:
    """A connected socket. A TLS handshake must end by `connect_until` (the loop's time)."""

    budget: ReplyBudget

    def __init__(self, connected: socket.socket, connect_until: float) -> None:
        self._socket = connected
        self.connect_until = connect_until

    async def read(self, most: int) -> bytes:
        """As BoundedStream says."""
        data = await asyncio.get_running_loop().sock_recv(self._socket, most)
        self.budget.take_bytes(len(data))
        return data

    async def write(self, data: bytes) -> None:
        """As BoundedStream says."""
        try:
            await asyncio.get_running_loop().sock_sendall(self._socket, data)
        except OSError as error:
            raise SendError(error.errno, error.strerror) from error

    def write_now(self, data: bytes) -> None:
        """Send as much as can be sent without waiting. Raises OSError."""
        self._socket.send(data)

    def has_more(self) -> bool:
        """As BoundedStream says."""
        try:
            self._socket.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return False
        except OSError:
            return True
        return True

    def close(self) -> None:
        """At once."""
        self._socket.close()


class TlsStream:
    """TLS over a TcpStream; `shake_hands` first."""

    budget: ReplyBudget

    def __init__(self, raw: TcpStream, context: ssl.SSLContext, hostname: str) -> None:
        self.budget = raw.budget
        self._raw = raw
        self._arrived, self._leaving = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._arrived, self._leaving, server_hostname=hostname)

    async def shake_hands(self) -> None:
        """Verify the service. Raises OSError."""
        try:
            async with asyncio.timeout_at(self._raw.connect_until):
                await self._with_arrivals(self._tls.do_handshake)
                await self._flush()
        except ssl.SSLEOFError:
            raise ConnectionResetError("hung up while shaking hands") from None
        except ssl.SSLError:
            with contextlib.suppress(OSError):  # the alert that says why
                self._raw.write_now(self._leaving.read())
            raise

    async def read(self, most: int) -> bytes:
        """As BoundedStream says; the data of the next TLS record."""
        self._raw.budget = self.budget
        try:
            return await self._with_arrivals(lambda: self._tls.read(most))
        except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
            return b""

    async def write(self, data: bytes) -> None:
        """As BoundedStream says."""
        self._raw.budget = self.budget
        await self._with_arrivals(lambda: self._tls.write(data))
        await self._flush()

    def has_more(self) -> bool:
        """As BoundedStream says."""
        return bool(self._arrived.pending or self._tls.pending()) or self._raw.has_more()

    def close(self) -> None:
        """At once."""
        self._raw.close()

    async def _with_arrivals(self, step: Callable[[], Result]) -> Result:
        """The result of `step`, which is repeated with each piece that arrives."""
        while True:
            try:
                return step()
            except ssl.SSLWantReadError:
                await self._flush()
                data = await self._raw.read(PIECE_BYTES)
            if data:
                self._arrived.write(data)
            else:
                self._arrived.write_eof()
            await self.budget.take_read(b"", is_head=False)

    async def _flush(self) -> None:
        if self._leaving.pending:
            await self._raw.write(self._leaving.read())
