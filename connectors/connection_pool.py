"""Opens connections to addresses that the guard allows, and keeps idle ones for reuse."""

import asyncio
import socket
import ssl
from collections import OrderedDict
from collections.abc import Sequence
from typing import NamedTuple

from connectors.connection import HttpConnection
from connectors.egress import EgressGuard
from connectors.reply_budget import ReplyBudget
from connectors.streams import BoundedStream, TcpStream, TlsStream

IDLE_SECONDS = 15.0
MOST_IDLE = 512
_MOST_ADDRESSES_TRIED = 8  # of one name; the guard checks all of them


class PoolKey(NamedTuple):
    """A connection is reused for the same key only, so never for another company."""

    company_id: int
    scheme: str
    host: str
    port: int


class ConnectionPool:
    """Opens connections, and keeps at most `most_idle` idle ones for `idle_seconds` each.

    Every step costs the same however many connections there are.
    """

    def __init__(
        self,
        *,
        egress: EgressGuard,
        ssl_context: ssl.SSLContext,
        idle_seconds: float = IDLE_SECONDS,
        most_idle: int = MOST_IDLE,
    ) -> None:
        self._egress = egress
        self._ssl_context = ssl_context
        self._ssl_context.set_alpn_protocols(["http/1.1"])
        self._idle_seconds = idle_seconds
        self._most_idle = most_idle
        self._idle: dict[PoolKey, list[HttpConnection]] = {}
        self._by_age: OrderedDict[HttpConnection, PoolKey] = OrderedDict()

    def take_idle(self, key: PoolKey) -> HttpConnection | None:
        """The idle connection that was used last and is still open, or None."""
        while connections := self._idle.get(key):
            connection = self._remove(connections[-1])
            if not connection.has_expired:
                return connection
            connection.close()
        return None

    async def connect(self, key: PoolKey, *, seconds: float, budget: ReplyBudget) -> HttpConnection:
        """Open a connection. Raises EgressError or OSError.

        `seconds` bound look-up, TCP and TLS together; `budget` bounds the bytes that TLS reads.
        """
        until = asyncio.get_running_loop().time() + seconds
        async with asyncio.timeout_at(until):
            addresses = await self._egress.addresses(key.host, key.port)
        stream: BoundedStream
        stream = raw = await _connect_first(addresses[:_MOST_ADDRESSES_TRIED], key.port, until)
        raw.budget = budget
        if key.scheme == "https":
            try:
                stream = TlsStream(raw, self._ssl_context, key.host)
                await stream.shake_hands()
            except BaseException:
                raw.close()
                raise
        return HttpConnection(stream, idle_seconds=self._idle_seconds)

    def release(self, key: PoolKey, connection: HttpConnection) -> None:
        """Keep the connection if it can serve again; close the oldest beyond `most_idle`."""
        if not connection.is_idle:
            connection.close()
            return
        self._idle.setdefault(key, []).append(connection)
        self._by_age[connection] = key
        if len(self._by_age) > self._most_idle:
            self._remove(next(iter(self._by_age))).close()

    def close_expired(self) -> None:
        """Close connections that were idle for too long or that the service has closed."""
        for connection in [each for each in self._by_age if each.has_expired]:
            self._remove(connection).close()

    def close(self) -> None:
        """Close all idle connections."""
        for connection in list(self._by_age):
            self._remove(connection).close()

    def _remove(self, connection: HttpConnection) -> HttpConnection:
        key = self._by_age.pop(connection)
        connections = self._idle[key]
        connections.remove(connection)
        if not connections:
            del self._idle[key]
        return connection


async def _connect_first(addresses: Sequence[str], port: int, until: float) -> TcpStream:
    """Connect to the first address that answers; each gets an even share of the time left."""
    loop = asyncio.get_running_loop()
    failure: OSError = OSError("no address")
    for number, address in enumerate(addresses):
        share = (until - loop.time()) / (len(addresses) - number)
        try:
            async with asyncio.timeout(share):
                return TcpStream(await _connect(address, port), until)
        except OSError as error:  # TimeoutError is one
            failure = error
    raise failure


async def _connect(address: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    one = socket.socket(family, socket.SOCK_STREAM)
    try:
        one.setblocking(False)
        one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        await asyncio.get_running_loop().sock_connect(one, (address, port))
    except BaseException:
        one.close()
        raise
    return one
