"""TCP and TLS for httpcore, on asyncio: connections that go only where the guard lets them."""

import asyncio
import ssl
from collections.abc import Iterable, Sequence
from typing import Any

import httpcore

from connectors.egress import Egress

_CONNECT_SECONDS = 1.0


class GuardedBackend(httpcore.AsyncNetworkBackend):
    """Opens connections to addresses that the guard gave, never to a name.

    What httpcore passes as `timeout` (seconds) runs over look-up, TCP and TLS together.
    """

    def __init__(self, egress: Egress) -> None:
        self._egress = egress

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109  # httpcore's signature
        local_address: str | None = None,  # noqa: ARG002
        socket_options: Iterable[Any] | None = None,  # noqa: ARG002
    ) -> httpcore.AsyncNetworkStream:
        """Connect to one of the checked addresses of `host`. Raises EgressError, OSError."""
        loop = asyncio.get_running_loop()
        until = loop.time() + (_CONNECT_SECONDS if timeout is None else timeout)
        async with asyncio.timeout_at(until):
            addresses = await self._egress.addresses(host, port)
        return await _connect(addresses, port, until)

    async def connect_unix_socket(
        self,
        path: str,
        timeout: float | None = None,  # noqa: ASYNC109
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        """No connector leads to a file."""
        raise NotImplementedError

    async def sleep(self, seconds: float) -> None:
        """For httpcore's own retries, which are off."""
        await asyncio.sleep(seconds)


async def _connect(addresses: Sequence[str], port: int, until: float) -> "Stream":
    """The first address that answers; each gets an even share of what time is left."""
    loop = asyncio.get_running_loop()
    failure: OSError = OSError("no address")
    for number, address in enumerate(addresses):
        share = (until - loop.time()) / (len(addresses) - number)
        try:
            async with asyncio.timeout(share):
                reader, writer = await asyncio.open_connection(address, port)
        except OSError as error:  # TimeoutError is one
            failure = error
        else:
            return Stream(reader, writer, until)
    raise failure


class Stream(httpcore.AsyncNetworkStream):
    """One connection. Deadlines of reads and writes are the caller's, over the whole call."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, connect_until: float
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._connect_until = connect_until

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ARG002, ASYNC109
        """What has arrived; b"" at the end."""
        return await self._reader.read(max_bytes)

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:  # noqa: ARG002, ASYNC109
        """Send all of it. httpcore reads on after a WriteError: who hangs up early may have
        answered before."""
        try:
            self._writer.write(buffer)
            await self._writer.drain()
        except OSError as error:
            raise httpcore.WriteError(str(error)) from error

    async def aclose(self) -> None:
        """At once: a peer that hangs does not get to keep the connection open."""
        self._writer.transport.abort()

    async def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,  # noqa: ARG002, ASYNC109
    ) -> httpcore.AsyncNetworkStream:
        """The same connection under TLS, verified for `server_hostname`. Raises OSError."""
        try:
            async with asyncio.timeout_at(self._connect_until):
                await self._writer.start_tls(ssl_context, server_hostname=server_hostname)
        except BaseException:
            await self.aclose()
            raise
        return self

    def get_extra_info(self, info: str) -> Any:
        """What httpcore asks: whether the peer has hung up (or talks unasked), and the TLS."""
        if info == "is_readable":
            return self._reader.at_eof() or bool(self._reader._buffer)  # type: ignore[attr-defined]  # noqa: SLF001
        return self._writer.get_extra_info(info)
