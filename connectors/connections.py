"""Idle connections, kept for the next call of the same company to the same place."""

import ssl
from collections import OrderedDict

import httpcore

from connectors.budget import ReplyBudget
from connectors.connection import BoundedConnection
from connectors.network import GuardedBackend
from connectors.streams import BoundedStream, TlsStream

KEEP_SECONDS = 15.0
MOST_IDLE = 512

Key = tuple[int, bytes, bytes, int]


class Connections:
    """Gives out a connection that nobody else uses; each step costs the same, however many.

    (httpcore's own pool looks at every connection it has at every step.) Never shared between
    companies. At most `most_idle` are kept; one that is idle for `keep` seconds is closed.
    """

    def __init__(
        self,
        *,
        backend: GuardedBackend,
        ssl_context: ssl.SSLContext,
        keep: float = KEEP_SECONDS,
        most_idle: int = MOST_IDLE,
    ) -> None:
        self._backend = backend
        self._ssl_context = ssl_context
        self._ssl_context.set_alpn_protocols(["http/1.1"])
        self._keep = keep
        self._most_idle = most_idle
        self._idle: dict[Key, list[BoundedConnection]] = {}
        self._oldest: OrderedDict[BoundedConnection, Key] = OrderedDict()

    async def take_idle(self, company_id: int, origin: httpcore.Origin) -> BoundedConnection | None:
        """One that still stands, the one used last, if there is one."""
        key = _key(company_id, origin)
        while connections := self._idle.get(key):
            connection = self._forget(connections[-1])
            if connection.is_idle() and not connection.has_expired():
                return connection
            await connection.aclose()
        return None

    async def connect(
        self, origin: httpcore.Origin, *, seconds: float, budget: ReplyBudget
    ) -> BoundedConnection:
        """A new one, within `seconds`; `budget` is for TLS. Raises EgressError, OSError."""
        host = origin.host.decode("ascii")
        stream: BoundedStream
        stream = raw = await self._backend.connect_tcp(host, origin.port, timeout=seconds)
        raw.budget = budget
        if origin.scheme == b"https":
            try:
                stream = TlsStream(raw, self._ssl_context, host)
                await stream.shake_hands()
            except BaseException:
                await raw.aclose()
                raise
        return BoundedConnection(origin=origin, stream=stream, keep=self._keep)

    async def give_back(
        self, company_id: int, origin: httpcore.Origin, connection: BoundedConnection
    ) -> None:
        """Keep it if it can serve again, and close what is too much."""
        if not connection.is_idle():
            await connection.aclose()
            return
        key = _key(company_id, origin)
        self._idle.setdefault(key, []).append(connection)
        self._oldest[connection] = key
        if len(self._oldest) > self._most_idle:
            await self._forget(next(iter(self._oldest))).aclose()

    async def close_expired(self) -> None:
        """Close what has been idle for too long, or was closed by the other side."""
        for connection in [each for each in self._oldest if each.has_expired()]:
            await self._forget(connection).aclose()

    async def close(self) -> None:
        """Close all that are idle."""
        for connection in list(self._oldest):
            await self._forget(connection).aclose()

    def _forget(self, connection: BoundedConnection) -> BoundedConnection:
        key = self._oldest.pop(connection)
        connections = self._idle[key]
        connections.remove(connection)
        if not connections:
            del self._idle[key]
        return connection


def _key(company_id: int, origin: httpcore.Origin) -> Key:
    return company_id, origin.scheme, origin.host, origin.port
