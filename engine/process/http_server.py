"""The HTTP server of a process's ports: uvicorn with limits on what one client can take."""

import contextlib
import socket
from collections.abc import Iterator
from typing import Any

import uvicorn

from engine.process.errors import PortInUseError

_BACKLOG = 2048
_HEAD_BYTES = 64 * 1024
_IDLE_SECONDS = 30  # of a connection between two requests


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
                http="h11",
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                limit_concurrency=connections,
                h11_max_incomplete_event_size=_HEAD_BYTES,
                timeout_keep_alive=_IDLE_SECONDS,
                **options,
            )
        )

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals are left to lifecycle.py."""
        yield
