"""Handles what every request needs: id, headers, deadline, log line, metrics, unexpected errors."""

import asyncio
import re
import time
from random import getrandbits

import structlog
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.answers import ApiError, error_answer, unavailable
from catalog.audit import audit_scope

_log = structlog.get_logger(__name__)
_PROBES = ("/healthz", "/readyz")  # requested every few seconds: counted, not logged
_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
_METHODS = frozenset(("GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH"))
_SANE_ID = re.compile(rb"[A-Za-z0-9._:-]{1,64}")
# The page's own script and styles are inline; its other files come from here.
_DOCS_POLICY = (
    "default-src 'none'; script-src 'self' 'unsafe-inline'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)
_POLICY = "default-src 'none'; frame-ancestors 'none'"
# An operation may set these to other values.
_HEADERS = {
    "cache-control": "no-store",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "cross-origin-resource-policy": "same-origin",
}


class ApiMetrics:
    """The metrics of one application. The label `route` is the template: no id, no url."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.requests = Counter(
            "proximity_api_requests_total",
            "Requests answered",
            ["method", "route", "status"],
            registry=registry,
        )
        self.seconds = Histogram(
            "proximity_api_request_seconds",
            "Time from the request's head to the end of its answer",
            ["method", "route"],
            buckets=_SECONDS,
            registry=registry,
        )
        self.in_flight = Gauge(
            "proximity_api_requests_in_flight",
            "Requests that are being answered",
            registry=registry,
        )


class RequestMiddleware:
    """The outermost middleware.

    `seconds` bounds the time until an answer begins, and then the time that each piece waits for a
    slow client; `whole_seconds` bounds the whole answer. An unexpected error is logged with the
    request's id and answered with 500 and no details; if the answer has begun, the connection ends.
    """

    def __init__(
        self, app: ASGIApp, *, metrics: ApiMetrics, seconds: float, whole_seconds: float
    ) -> None:
        self._app = app
        self._metrics = metrics
        self._seconds = seconds
        self._whole_seconds = whole_seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        exchange = _Exchange(scope, send, self._seconds, self._whole_seconds)
        begun = time.perf_counter()
        scope["request_id"] = exchange.id
        bound = structlog.contextvars.bind_contextvars(request=exchange.id)
        try:
            with audit_scope(), self._metrics.in_flight.track_inprogress():
                await self._answer(exchange, scope, receive)
        finally:
            self._note(exchange, scope, time.perf_counter() - begun)
            structlog.contextvars.reset_contextvars(**bound)

    async def _answer(self, exchange: "_Exchange", scope: Scope, receive: Receive) -> None:
        try:
            async with asyncio.timeout(self._seconds) as exchange.deadline:
                await self._app(scope, receive, exchange.send)
        except TimeoutError:
            refusal = unavailable("the answer took too long")
        except Exception as error:  # logged; the answer shows nothing of it
            _log.exception("request failed", error=type(error).__name__)
            refusal = ApiError(500, "internal error")
        else:
            return
        if exchange.status:
            raise ConnectionAbortedError("the answer ended too soon")
        exchange.deadline = None  # this answer is sent after it
        await error_answer(refusal)(scope, receive, exchange.send)

    def _note(self, exchange: "_Exchange", scope: Scope, seconds: float) -> None:
        method = scope["method"] if scope["method"] in _METHODS else "other"
        # All unknown paths share one name.
        route = str(getattr(scope.get("route"), "path", None) or "none")
        self._metrics.requests.labels(method, route, str(exchange.status)).inc()
        self._metrics.seconds.labels(method, route).observe(seconds)
        if route in _PROBES:
            return
        _log.info(
            "request",
            method=method,
            route=route,
            status=exchange.status,
            milliseconds=round(seconds * 1000, 1),
            company=scope.get("company"),
        )


class _Exchange:
    """A request and the state of its answer; `status` is 0 until the answer begins."""

    def __init__(self, scope: Scope, send: Send, seconds: float, whole_seconds: float) -> None:
        self.status = 0
        self._policy = _DOCS_POLICY if scope["path"] == "/docs" else _POLICY
        self.deadline: asyncio.Timeout | None = None
        self._send = send
        self._seconds = seconds
        self._end = asyncio.get_running_loop().time() + whole_seconds
        given = next((v for k, v in scope["headers"] if k == b"x-request-id"), b"")
        self.id = given.decode() if _SANE_ID.fullmatch(given) else f"{getrandbits(128):032x}"

    async def send(self, message: Message) -> None:
        """Send a message, with the headers that every answer has."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = MutableHeaders(scope=message)
            headers.setdefault("content-security-policy", self._policy)
            for name, value in _HEADERS.items():
                headers.setdefault(name, value)
            headers["x-request-id"] = self.id
        await self._send(message)
        if self.deadline is not None and not self.deadline.expired() and message.get("more_body"):
            # A piece was sent, so the time of the next piece begins.
            now = asyncio.get_running_loop().time()
            self.deadline.reschedule(min(now + self._seconds, self._end))
