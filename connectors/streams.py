"""TCP and TLS on asyncio's sockets, read a piece at a time and within a budget.

A socket is read only when a call asks: what a service sends beyond that fills the kernel's buffers
and not ours. TLS is our own loop, so that what arrives below it is counted and paced as well.
"""

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Callable
from typing import Any, TypeVar

import httpcore

from connectors.budget import ReplyBudget

PIECE_BYTES = 16 * 1024

Result = TypeVar("Result")


class BoundedStream(httpcore.AsyncNetworkStream):
    """One connection. Deadlines of reads and writes are the caller's, over the whole call.

    What is read is taken from `budget`, which changes with each call.
    """

    budget: ReplyBudget


class TcpStream(BoundedStream):
    """A connected socket. TLS, if there is to be any, has until `connect_until` (loop's time)."""

    def __init__(self, connected: socket.socket, connect_until: float) -> None:
        self._socket = connected
        self.connect_until = connect_until

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ARG002, ASYNC109  # httpcore's signature
        """What has arrived, a piece at most; b"" at the end."""
        wanted = min(max_bytes, PIECE_BYTES)
        data = await asyncio.get_running_loop().sock_recv(self._socket, wanted)
        self.budget.take_bytes(len(data))
        return data

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:  # noqa: ARG002, ASYNC109
        """Send all of it. httpcore reads on after a WriteError: who hangs up early may have
        answered before."""
        try:
            await asyncio.get_running_loop().sock_sendall(self._socket, buffer)
        except OSError as error:
            raise httpcore.WriteError(str(error)) from error

    def write_now(self, buffer: bytes) -> None:
        """Send what goes out without waiting. Raises OSError."""
        self._socket.send(buffer)

    async def aclose(self) -> None:
        """At once: a peer that hangs does not get to keep the connection open."""
        self._socket.close()

    def get_extra_info(self, info: str) -> Any:
        """What httpcore asks: whether the peer has hung up (or talks unasked)."""
        return self._has_more() if info == "is_readable" else None

    def _has_more(self) -> bool:
        try:
            self._socket.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return False
        except OSError:
            return True
        return True


class TlsStream(BoundedStream):
    """TLS over a TcpStream; `shake_hands` first."""

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
        except httpcore.WriteError as error:
            raise ConnectionResetError(str(error)) from None
        except ssl.SSLError:
            with contextlib.suppress(OSError):  # the alert that says why
                self._raw.write_now(self._leaving.read())
            raise

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ARG002, ASYNC109
        """What the next record says; b"" at the end."""
        self._raw.budget = self.budget
        try:
            return await self._with_arrivals(lambda: self._tls.read(max_bytes))
        except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
            return b""

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:  # noqa: ARG002, ASYNC109
        """Send all of it. Raises WriteError, as TcpStream does."""
        self._raw.budget = self.budget
        await self._with_arrivals(lambda: self._tls.write(buffer))
        await self._flush()

    async def aclose(self) -> None:
        """At once."""
        await self._raw.aclose()

    def get_extra_info(self, info: str) -> Any:
        """As TcpStream says."""
        if info == "is_readable" and (self._arrived.pending or self._tls.pending()):
            return True
        return self._raw.get_extra_info(info)

    async def _with_arrivals(self, step: Callable[[], Result]) -> Result:
        """The result of `step`, which is tried again with each piece that arrives."""
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
