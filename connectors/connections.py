"""Idle connections, kept for the next call of the same company to the same place."""

import ssl
from collections import OrderedDict
from typing import NamedTuple

from connectors.budget import ReplyBudget
from connectors.connection import Connection
from connectors.network import GuardedBackend
from connectors.streams import BoundedStream, TlsStream

KEEP_SECONDS = 15.0
MOST_IDLE = 512


class Origin(NamedTuple):
    """The place that a url leads to: nothing of it is shared between companies."""

    company_id: int
    scheme: str
    host: str
    port: int


class Connections:
    """Gives out a connection that nobody else uses; each step costs the same, however many.

    At most `most_idle` are kept; one that is idle for `keep` seconds is closed.
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
        self._idle: dict[Origin, list[Connection]] = {}
        self._oldest: OrderedDict[Connection, Origin] = OrderedDict()

    def take_idle(self, origin: Origin) -> Connection | None:
        """One that still stands, the one used last, if there is one."""
        while connections := self._idle.get(origin):
            connection = self._forget(connections[-1])
            if not connection.has_expired:
                return connection
            connection.close()
        return None

    async def connect(self, origin: Origin, *, seconds: float, budget: ReplyBudget) -> Connection:
        """A new one, within `seconds`; `budget` is for TLS. Raises EgressError, OSError."""
        stream: BoundedStream
        stream = raw = await self._backend.connect(origin.host, origin.port, seconds=seconds)
        raw.budget = budget
        if origin.scheme == "https":
            try:
                stream = TlsStream(raw, self._ssl_context, origin.host)
                await stream.shake_hands()
            except BaseException:
                raw.close()
                raise
        return Connection(stream, keep=self._keep)

    def give_back(self, origin: Origin, connection: Connection) -> None:
        """Keep it if it can serve again, and close what is too much."""
        if not connection.is_idle:
            connection.close()
            return
        self._idle.setdefault(origin, []).append(connection)
        self._oldest[connection] = origin
        if len(self._oldest) > self._most_idle:
            self._forget(next(iter(self._oldest))).close()

    def close_expired(self) -> None:
        """Close what has been idle for too long, or was closed by the other side."""
        for connection in [each for each in self._oldest if each.has_expired]:
            self._forget(connection).close()

    def close(self) -> None:
        """Close all that are idle."""
        for connection in list(self._oldest):
            self._forget(connection).close()

    def _forget(self, connection: Connection) -> Connection:
        origin = self._oldest.pop(connection)
        connections = self._idle[origin]
        connections.remove(connection)
        if not connections:
            del self._idle[origin]
        return connection
