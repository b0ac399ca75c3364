"""The metrics port: /metrics, /healthz (the event loop runs), /readyz (the process can work).

Each request to /readyz checks the servers again; no result is cached.
"""

import asyncio
import socket
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec
from prometheus_client import CollectorRegistry, make_asgi_app

from catalog.database import within
from engine.process.failures import ServerErrors
from engine.process.http_server import HttpServer, listen
from engine.process.settings import PREFIX

Check = Callable[[], Awaitable[bool]]
Send = Callable[[dict[str, Any]], Awaitable[None]]

PROBE = "probe"  # the kind of call (see ServerErrors) of a probe that writes nothing
_CHECK_SECONDS = 2.0
_PROBE_SECONDS = 1.5


class ServerProbe:
    """Checks whether one server works. Concurrent callers share one request.

    `send_request` raises if the server does not work. `deadline` in seconds.
    """

    def __init__(
        self,
        send_request: Callable[[], Awaitable[object]],
        *,
        operation: str,
        errors: ServerErrors,
        deadline: float = _PROBE_SECONDS,
    ) -> None:
        self._send_request = send_request
        self._operation = operation
        self._errors = errors
        self._deadline = deadline
        self._running: asyncio.Task[bool] | None = None

    async def answers(self) -> bool:
        """Whether the server works now. Raises nothing."""
        if self._running is None:
            self._running = asyncio.create_task(self._answer(), name=f"probe {self._operation}")
        return await asyncio.shield(self._running)

    async def _answer(self) -> bool:
        try:
            await within(self._deadline, self._send_request())
        except Exception as error:  # whatever it is, the answer is no
            self._errors.failed(error, self._operation)
            return False
        else:
            self._errors.answered(self._operation)
            return True
        finally:
            self._running = None


async def run_checks(checks: Mapping[str, Check]) -> dict[str, bool]:
    """The results by name; a check that raises, or takes longer than 2 s, counts as failed."""
    answers = await asyncio.gather(*(_passes(check) for check in checks.values()))
    return dict(zip(checks, answers, strict=True))


async def _passes(check: Check) -> bool:
    try:
        return await within(_CHECK_SECONDS, check())
    except Exception:  # whatever it is, the answer is no
        return False


class HealthServer:
    """Serves the metrics port in the event loop that it reports on.

    /readyz answers 200 if all of `checks` pass, else 503, and lists each result by name. The port
    is opened at once: raises PortInUseError, which names `setting`. `listener` is a port that is
    open already, to be served instead.
    """

    def __init__(
        self,
        *,
        registry: CollectorRegistry,
        checks: Mapping[str, Check],
        host: str,
        port: int,
        setting: str = "METRICS_PORT",
        listener: socket.socket | None = None,
    ) -> None:
        self._metrics: Any = make_asgi_app(registry)
        self._checks = checks
        self._socket = listener or listen(host, port, setting=f"{PREFIX}{setting}")
        self.port: int = self._socket.getsockname()[1]
        self._server = HttpServer(self._answer, interface="asgi3")

    async def run(self) -> None:
        """Serve until cancelled."""
        try:
            await self._server.serve(sockets=[self._socket])
        finally:
            self._socket.close()

    async def _answer(self, scope: dict[str, Any], receive: Any, send: Send) -> None:
        match scope["path"]:
            case "/metrics":
                await self._metrics(scope, receive, send)
            case "/healthz":
                await reply(send, 200, {"status": "ok"})
            case "/readyz":
                results = await run_checks(self._checks)
                ready = all(results.values())
                status = "ready" if ready else "not ready"
                await reply(send, 200 if ready else 503, {"status": status, "checks": results})
            case _:
                await reply(send, 404, {"status": "error", "message": "not found", "code": 404})


async def reply(send: Send, status: int, body: dict[str, Any]) -> None:
    """Answer a probe with JSON."""
    headers = [(b"content-type", b"application/json"), (b"cache-control", b"no-store")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": msgspec.json.encode(body)})
