"""The metrics port: /metrics, /healthz (the loop turns), /readyz (able to do the work)."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec
from prometheus_client import CollectorRegistry, make_asgi_app

from engine.process.bounded_http import BoundedServer, HttpLimits
from engine.process.listening import listen
from engine.process.readiness import Check, ask_all
from engine.process.settings import PREFIX

_HEAD_SECONDS = 5.0

Send = Callable[[dict[str, Any]], Awaitable[None]]


class HealthServer:
    """Serves the metrics port in the loop it reports on.

    `checks` by name: each says whether what it stands for is ready; one that raises or takes
    longer than 2 s is not. /readyz is 200 when all are, else 503, and names each.
    """

    def __init__(
        self, *, registry: CollectorRegistry, checks: Mapping[str, Check], host: str, port: int
    ) -> None:
        """Opens the port, so that a taken one is known at once. Raises PortInUseError."""
        self._metrics: Any = make_asgi_app(registry)
        self._checks = checks
        self._socket = listen(host, port, setting=f"{PREFIX}METRICS_PORT")
        self.port: int = self._socket.getsockname()[1]
        limits = HttpLimits(head_seconds=_HEAD_SECONDS)
        self._server = BoundedServer(self._answer, limits, interface="asgi3")

    async def run(self) -> None:
        """Serve until cancelled."""
        try:
            await self._server.serve(sockets=[self._socket])
        finally:
            self._socket.close()

    async def _answer(self, scope: dict[str, Any], receive: Any, send: Send) -> None:
        path = scope["path"]
        if path == "/metrics":
            await self._metrics(scope, receive, send)
        elif path == "/healthz":
            await _reply(send, 200, {"status": "ok"})
        elif path == "/readyz":
            results = await ask_all(self._checks)
            ready = all(results.values())
            status = "ready" if ready else "not ready"
            await _reply(send, 200 if ready else 503, {"status": status, "checks": results})
        else:
            await _reply(send, 404, {"status": "error", "message": "not found", "code": 404})


async def _reply(send: Send, status: int, body: dict[str, Any]) -> None:
    headers = [(b"content-type", b"application/json"), (b"cache-control", b"no-store")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": msgspec.json.encode(body)})
