"""The HTTP server of both ports of a process, with a bounded number of bounded connections."""

import asyncio
import contextlib
import socket
from collections import Counter
from collections.abc import Iterator
from typing import Any

import structlog
import uvicorn

from engine.process.errors import PortInUseError
from engine.process.http_connection import BoundedProtocol
from engine.process.http_limits import HttpLimits

_log = structlog.get_logger(__name__)

_BACKLOG = 2048
_TICKS_A_SWEEP = 5
_TICKS_A_REPORT = 100


def listen(host: str, port: int, *, setting: str) -> socket.socket:
    """A listening TCP socket; port 0 takes any free port. The error names `setting`.

    Raises PortInUseError.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio turns off Nagle's delay (40 ms an answer) only for a socket whose protocol is TCP.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(_BACKLOG)  # only now is a port that another process has bound refused
    except OSError as error:
        listener.close()
        raise PortInUseError(
            f"cannot open {host}:{port}: {error.strerror}; "
            f"choose another with {setting} (0 for any)"
        ) from None
    return listener


class BoundedServer(uvicorn.Server):
    """Serves an application on bounded connections (http_connection.py)."""

    def __init__(self, app: Any, limits: HttpLimits, **options: Any) -> None:
        """`options` are uvicorn's."""
        self._limits = limits
        self._refusals: Counter[str] = Counter()
        super().__init__(
            uvicorn.Config(
                app,
                http=self._connection,  # type: ignore[arg-type]  # called as a class is
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                timeout_keep_alive=int(limits.idle_seconds) + 1,  # the sweep is first
                **options,
            )
        )

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals are left to lifecycle.py."""
        yield

    async def on_tick(self, counter: int) -> bool:
        """Called by uvicorn ten times a second."""
        if counter % _TICKS_A_SWEEP == 0:
            now = asyncio.get_running_loop().time()
            for connection in self._connections():
                connection.sweep(now)
        if counter % _TICKS_A_REPORT == 0 and self._refusals:
            _log.warning("connections were refused or closed", **self._refusals)
            self._refusals.clear()
        return await super().on_tick(counter)

    def _admit(self, new: BoundedProtocol) -> bool:
        """Whether there is room for a connection that was just counted.

        If there is none, the connection that has waited longest for a head is closed. A client that
        opens many silent connections loses those; a client that sends its request at once loses
        none.
        """
        if len(self.server_state.connections) <= self._limits.connections:
            return True
        waiting = [
            (since, number, connection)
            for number, connection in enumerate(self._connections())
            if connection is not new and (since := connection.idle_since()) is not None
        ]
        if not waiting:
            return False
        min(waiting)[-1].close_for_another()
        return True

    def _connection(self, **options: Any) -> BoundedProtocol:
        return BoundedProtocol(
            limits=self._limits, is_admitted=self._admit, refusals=self._refusals, **options
        )

    def _connections(self) -> list[BoundedProtocol]:
        return [
            connection
            for connection in self.server_state.connections
            if isinstance(connection, BoundedProtocol)
        ]
