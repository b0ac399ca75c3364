"""The HTTP server of a process's ports: uvicorn with limits on what one client can take."""

import asyncio
import contextlib
import socket
from collections.abc import Iterator
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from engine.process.errors import PortInUseError

_BACKLOG = 2048
_HEAD_BYTES = 64 * 1024
_WAIT_SECONDS = 30.0


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


class HttpServer(uvicorn.Server):
    """Serves an application. A head has at most 64 KiB; over `connections` the answer is 503.

    `options` are uvicorn's.
    """

    def __init__(self, app: Any, *, connections: int = 100, **options: Any) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                http=_Connection,
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                limit_concurrency=connections,
                h11_max_incomplete_event_size=_HEAD_BYTES,
                timeout_keep_alive=int(_WAIT_SECONDS),
                **options,
            )
        )

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals are left to lifecycle.py."""
        yield


class _Connection(H11Protocol):
    """uvicorn's connection, which closes when a client neither sends a head nor reads its answer.

    uvicorn itself waits for both without an end. The application bounds the time in between.
    """

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._watch = self.loop.call_later(_WAIT_SECONDS, self._look, None)

    def connection_lost(self, exc: Exception | None) -> None:
        self._watch.cancel()
        super().connection_lost(exc)

    def _look(self, before: RequestResponseCycle | None) -> None:
        """Close if no request came since the last look, which was `before`'s."""
        request: RequestResponseCycle | None = self.cycle  # None until the first one
        if self.transport.is_closing():
            self.transport.abort()
        elif request is before and (request is None or request.response_complete):
            self.transport.close()
        self._watch = self.loop.call_later(_WAIT_SECONDS, self._look, request)
