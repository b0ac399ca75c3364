"""Ports (uvicorn with limits on what one client can take), and what the metrics port answers.

/metrics, /healthz (the event loop runs), /readyz (the process can work): each request to /readyz
checks the servers again; no result is cached.
"""

import asyncio
import contextlib
import socket
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec
import structlog
import uvicorn
from prometheus_client import CollectorRegistry, Gauge, make_asgi_app

from catalog.bounds import within
from engine.process.errors import ProcessError
from engine.process.failures import ServerErrors
from engine.process.settings import PREFIX

log = structlog.get_logger(__name__)

Check = Callable[[], Awaitable[bool]]
Send = Callable[[dict[str, Any]], Awaitable[None]]
# Whether all is well at a path, and the body that says so.
ShowHealth = Callable[[str], Awaitable[tuple[bool, dict[str, Any]]]]

PROBE = "probe"  # the kind of call (see ServerErrors) of a probe that writes nothing
_CHECK_SECONDS = 2.0
_BACKLOG = 2048
_HEAD_BYTES = 64 * 1024
_IDLE_SECONDS = 30  # of a connection between two requests
_PROBE_SECONDS = 1.5
_CLOCK_SECONDS = 2.0
SKEW_SECONDS = 30.0  # by which clocks may differ without an error


async def probe(
    send_request: Callable[[], Awaitable[object]],
    operation: str,
    errors: ServerErrors,
    deadline: float = _PROBE_SECONDS,
) -> bool:
    """Whether a server works now: whether `send_request` does not raise. `deadline` in seconds."""
    try:
        await within(deadline, send_request())
    except Exception as error:  # whatever it is, the answer is no
        errors.failed(error, operation)
        return False
    errors.answered(operation)
    return True


async def run_checks(checks: Mapping[str, Check]) -> dict[str, bool]:
    """The results by name; a check that raises, or takes longer than 2 s, counts as failed."""

    async def passes(check: Check) -> bool:
        try:
            return await within(_CHECK_SECONDS, check())
        except Exception:  # whatever it is, the answer is no
            return False

    answers = await asyncio.gather(*map(passes, checks.values()))
    return dict(zip(checks, answers, strict=True))


@dataclass
class ClockSkew:
    """Compares this process's clock with those of servers, which `servers` reads, by name.

    If a trigger's clock is minutes off, every detection seems stale or from the future.
    """

    servers: Mapping[str, Callable[[], Awaitable[float]]]
    gauge: Gauge
    clock: Callable[[], float] = time.time
    _skews: dict[str, float] = field(default_factory=dict)

    def agrees_within(self, seconds: float) -> bool:
        """Whether this clock is not known to be wrong by more than these seconds.

        It is wrong if it is ahead of all servers, or behind all: one server with a wrong clock does
        not make this clock wrong.
        """
        skews = self._skews.values()
        return not skews or (min(skews) <= seconds and max(skews) >= -seconds)

    async def all_agree_within(self, seconds: float) -> bool:
        """Measure, and return whether this clock differs from none by more than these seconds.

        Raises as `measure`.
        """
        for server in self.servers:
            await self.measure(server)
        return all(abs(skew) <= seconds for skew in self._skews.values())

    async def measure(self, server: str) -> None:
        """Ask one server for its time. Raises the errors of its reader, and TimeoutError."""
        began = self.clock()
        there = await within(_CLOCK_SECONDS, self.servers[server]())
        # The server looked at its clock at some time during the request.
        skew = max(0.0, began - there) - max(0.0, there - self.clock())
        before, self._skews[server] = self._skews.get(server, 0.0), skew
        self.gauge.labels(server).set(skew)
        if abs(skew) > SKEW_SECONDS >= abs(before):
            log.error(
                "this process's clock differs from a server's: detections are taken for too old "
                "or from the future; set the clocks by NTP",
                server=server,
                seconds_ahead=round(skew, 1),
            )


def listen(host: str, port: int, setting: str) -> socket.socket:
    """A listening TCP socket; port 0 takes any free port.

    Raises ProcessError, which names the `setting`.
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
        raise ProcessError(
            f"cannot open {host}:{port}: {error.strerror}; "
            f"choose another with {PREFIX}{setting} (0 for any)"
        ) from None
    return listener


class HttpServer(uvicorn.Server):
    """Serves an ASGI application on a port that is open.

    A head has at most 64 KiB; over `connections` the answer is 503. `options` are uvicorn's.
    """

    def __init__(
        self, app: Any, listener: socket.socket, *, connections: int = 100, **options: Any
    ) -> None:
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
        self._listener = listener
        self.port: int = listener.getsockname()[1]

    async def serve_until(self, stop: asyncio.Event | None = None) -> None:
        """Serve until cancelled, or until `stop`; then the requests in flight are finished."""

        async def end() -> None:
            await (stop or asyncio.Event()).wait()
            self.should_exit = True

        ending = asyncio.create_task(end())
        try:
            await self.serve(sockets=[self._listener])
        finally:
            ending.cancel()
            self._listener.close()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals are left to lifecycle.py."""
        yield


def health_server(
    listener: socket.socket, registry: CollectorRegistry, checks: Mapping[str, Check]
) -> HttpServer:
    """Serves the metrics port in the event loop that it reports on.

    /readyz answers 200 if all of `checks` pass, else 503, and lists each result by name.
    """

    async def show_health(path: str) -> tuple[bool, dict[str, Any]]:
        if path == "/healthz":
            return True, {"status": "ok"}
        results = await run_checks(checks)
        ready = all(results.values())
        return ready, {"status": "ready" if ready else "not ready", "checks": results}

    return metrics_server(listener, make_asgi_app(registry), show_health)


def metrics_server(listener: socket.socket, metrics: Any, show_health: ShowHealth) -> HttpServer:
    """Serves /metrics with an ASGI application, and /healthz and /readyz with 200 or 503."""

    async def answer(scope: dict[str, Any], receive: Any, send: Send) -> None:
        path = scope["path"]
        if path == "/metrics":
            await metrics(scope, receive, send)
            return
        status, body = 404, {"status": "error", "message": "not found", "code": 404}
        if path in ("/healthz", "/readyz"):
            is_good, body = await show_health(path)
            status = 200 if is_good else 503
        headers = [(b"content-type", b"application/json"), (b"cache-control", b"no-store")]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": msgspec.json.encode(body)})

    return HttpServer(answer, listener, interface="asgi3")
